// Built for sm_80 only, with no PTX: on a GPU of another generation the launch must say so (error 209).
#include "check.h"
__global__ void kernel(int *out) { *out = 1; }
int main() {
  int major;
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  kernel<<<1, 1>>>(nullptr);
  cudaError_t error = cudaGetLastError();
  std::printf("launch: %d %s\n", (int)error, cudaGetErrorName(error));
  EXPECT((int)error, major == 8 ? (int)cudaSuccess : (int)cudaErrorNoKernelImageForDevice);
  return pass();
}
