// Kernels, device functions and variables in members of a static library, pulled by the host, by the
// device or not at all.
#include "check.h"
__global__ void library_kernel(int *out, int x);       // library_kernel.cu
__device__ int only_device(int x);                     // library_device.cu
int library_launches(int x);                           // library_host.cu
__global__ void kernel(int *out, int x) { *out = only_device(x); }
int main() {
  Array<int> out(1);
  kernel<<<1, 1>>>(out, 4);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 4 * 3 + 1000);
  library_kernel<<<1, 1>>>(out, 5);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 5 * 3 + 1000 + 1);
  EXPECT(library_launches(6), 12);
  return pass();
}
