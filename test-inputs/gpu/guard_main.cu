// The launch guard on a real GPU. Built for sm_80 only, without PTX, a launch on another generation must say what is wrong, once; with
// -DJIT, and PTX that the driver is told not to compile, as well. The program itself sees nothing of it.
#include "check.h"
#include <cerrno>
#include <cstring>
#include <unistd.h>
__global__ void kernel(int *out) { *out = 1; }

static char said[8192];

int main() {
#ifdef JIT
  setenv("CUDA_DISABLE_PTX_JIT", "1", 1);
#endif
  unsetenv("WARPLINK_LAUNCH_GUARD");
  cudaDeviceProp properties;
  CHECK(cudaGetDeviceProperties(&properties, 0));
  if (properties.major == 8)
    return std::puts("this GPU runs sm_80: nothing to see"), pass();
  // What goes to stderr goes to a file for as long as the launches take.
  char name[] = "/tmp/guard-XXXXXX";
  int file = mkstemp(name), before = dup(2);
  unlink(name);
  dup2(file, 2);
  errno = 77;
  kernel<<<1, 1>>>(nullptr);
  int after_first = errno;
  cudaError_t peeked = cudaPeekAtLastError(), first = cudaGetLastError(), none = cudaGetLastError();
  kernel<<<1, 1>>>(nullptr);
  cudaError_t second = cudaGetLastError();
  dup2(before, 2);
  lseek(file, 0, SEEK_SET);
  ssize_t length = read(file, said, sizeof said - 1);
  std::printf("launch: %d %s\nsaid:\n%s", (int)first, cudaGetErrorName(first), said);
  EXPECT(length > 0, true);
#ifndef JIT
  // Where it may compile PTX, the driver itself looks for files and changes errno.
  EXPECT(after_first, 77);
#endif
  EXPECT((int)peeked, (int)first);
  EXPECT((int)none, (int)cudaSuccess);
  EXPECT((int)second, (int)first);
#ifdef JIT
  bool expected = first == 209 || first == 218 || first == 221 || first == 222 || first == 223;
  EXPECT(expected, true);
#else
  EXPECT((int)first, (int)cudaErrorNoKernelImageForDevice);
#endif
  char text[64];
  std::snprintf(text, sizeof text, "(error %d)", (int)first);
  EXPECT(std::strstr(said, text) != nullptr, true);
  EXPECT(std::strstr(said, properties.name) != nullptr, true);
  std::snprintf(text, sizeof text, "(sm_%d%d)", properties.major, properties.minor);
  EXPECT(std::strstr(said, text) != nullptr, true);
  EXPECT(std::strstr(said, "cubin for sm_80; ") != nullptr, true);
  const char *once = std::strstr(said, "(error ");
  EXPECT(std::strstr(once + 1, "(error ") == nullptr, true);
  // The device is still good for everything else.
  Array<int> numbers(1);
  EXPECT(numbers.at(0), 0);
  return pass();
}
