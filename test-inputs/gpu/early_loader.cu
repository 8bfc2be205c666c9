// early_main.cu and its units in a shared object that is loaded, run and unloaded twice by a program that has used the device by then.
#include "check.h"
#include <dlfcn.h>
#include <string>

__global__ void own(int *out) { *out += 1; }

int main(int, char **program) {
  Array<int> out(1);
  for (int round = 1; round <= 3; round++) {
    own<<<1, 1>>>(out);
    CHECK_LAUNCH();
    EXPECT(out.at(0), round);
    if (round == 3) break;
    std::string path = program[0];
    void *library = dlopen((path.substr(0, path.rfind('/') + 1) + "libearly.so").c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) return std::printf("%s\nFAIL\n", dlerror()), 1;
    // int run_early()
    EXPECT(((int (*)())dlsym(library, "_Z9run_earlyv"))(), 0);
    EXPECT(dlclose(library), 0);
    EXPECT(dlopen((path.substr(0, path.rfind('/') + 1) + "libearly.so").c_str(), RTLD_NOW | RTLD_NOLOAD) == nullptr, true);
  }
  return pass();
}
