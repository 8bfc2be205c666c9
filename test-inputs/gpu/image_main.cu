// Tells which image ran: built with several architectures, each marks its own. The argument-free run
// accepts the device's own architecture or, compiled from PTX, an older one.
#include "check.h"
__global__ void which(int *out) {
#ifdef __CUDA_ARCH__
  *out = __CUDA_ARCH__ / 10;
#endif
}
int main() {
  int major, minor;
  CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
  CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
  Array<int> out(1);
  which<<<1, 1>>>(out);
  CHECK_LAUNCH();
  cudaFuncAttributes attributes;
  CHECK(cudaFuncGetAttributes(&attributes, (const void *)which));
  std::printf("device sm_%d%d, code for sm_%d (ptx %d, binary %d)\n", major, minor, out.at(0), attributes.ptxVersion,
              attributes.binaryVersion);
#ifdef EXPECTED_ARCH
  EXPECT(out.at(0), EXPECTED_ARCH);
#else
  EXPECT(out.at(0), 10 * major + minor);
#endif
  return pass();
}
