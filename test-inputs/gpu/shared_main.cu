// A program with device code, two shared objects that it is linked with, and a plug-in that it loads, unloads
// and loads again.
#include "check.h"
#include <dlfcn.h>
#include <string>
#include <unistd.h>
extern "C" int shared1(int), shared2(int);
__global__ void kernel(int *out) { *out = 5; }
int main() {
  Array<int> out(1);
  kernel<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 5);
  EXPECT(shared1(0), 11);
  EXPECT(shared2(0), 22);
  EXPECT(shared1(4), 15);
  EXPECT(shared2(3), 25);
  char self[4096] = "";
  if (readlink("/proc/self/exe", self, sizeof self - 1) < 0) return 2;
  std::string path = self;
  path = path.substr(0, path.rfind('/')) + "/libshared3.so";
  for (int i = 0; i < 3; i++) {
    void *plugin = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!plugin) { std::printf("%s\nFAIL\n", dlerror()); return 1; }
    EXPECT(((int (*)(int))dlsym(plugin, "shared3"))(i), 33 + i);
    EXPECT(dlclose(plugin), 0);
  }
  kernel<<<1, 1>>>(out);
  CHECK_LAUNCH();
  return pass();
}
