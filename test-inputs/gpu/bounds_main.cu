// __launch_bounds__: the limits are those of the image, and a block beyond them is refused.
#include "check.h"
__global__ void __launch_bounds__(128) narrow(int *out) { out[threadIdx.x] = threadIdx.x; }
__global__ void __launch_bounds__(1024, 2) wide(int *out) { out[threadIdx.x] = 2 * threadIdx.x; }
int main() {
  cudaFuncAttributes a, b;
  CHECK(cudaFuncGetAttributes(&a, (const void *)narrow));
  CHECK(cudaFuncGetAttributes(&b, (const void *)wide));
  EXPECT(a.maxThreadsPerBlock, 128);
  EXPECT(b.maxThreadsPerBlock, 1024);
  EXPECT(b.numRegs <= 32, true);
  Array<int> out(1024);
  wide<<<1, 1024>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(1023), 2046);
  narrow<<<1, 128>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(127), 127);
  narrow<<<1, 256>>>(out);
  EXPECT(cudaGetLastError() != cudaSuccess, true);
  return pass();
}
