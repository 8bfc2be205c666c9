// printf from the device, with arguments of several types, read back from a file that stdout is turned to.
#include "check.h"
#include <cstring>
#include <unistd.h>
__global__ void kernel(double x) { printf("thread %d says %s %.3f %lld\n", threadIdx.x, "hello", x, 1234567890123LL); }
int main() {
  char text[400] = "";
  std::FILE *temporary = std::tmpfile();
  if (!temporary) { std::perror("tmpfile"); return 2; }
  int file = fileno(temporary), saved = dup(1);
  std::fflush(stdout);
  dup2(file, 1);
  kernel<<<1, 2>>>(1.5);
  CHECK_LAUNCH();
  std::fflush(stdout);
  dup2(saved, 1);
  lseek(file, 0, SEEK_SET);
  ssize_t size = read(file, text, sizeof text - 1);
  std::printf("%zd bytes: %s", size, text);
  EXPECT(std::strstr(text, "thread 0 says hello 1.500 1234567890123\n") != nullptr, true);
  EXPECT(std::strstr(text, "thread 1 says hello 1.500 1234567890123\n") != nullptr, true);
  return pass();
}
