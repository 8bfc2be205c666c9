// libdevice and half precision: transcendental functions of both widths, compared with the host's.
#include "check.h"
#include <cmath>
#include <cuda_fp16.h>
__device__ double from_other_unit(double x);  // math_other.cu
__global__ void kernel(double *out, double x) {
  out[0] = sin(x);
  out[1] = exp(x);
  out[2] = pow(x, 1.25);
  out[3] = erf(x);
  out[4] = from_other_unit(x);
  out[5] = sinf((float)x);
  out[6] = __half2float(__hadd(__float2half(1.5f), __float2half(2.25f)));
  out[7] = fma(x, x, 1.0);
  out[8] = __popcll(0xff00ff) + __clz(1);
}
int main() {
  Array<double> out(9);
  const double x = 0.7;
  kernel<<<1, 1>>>(out, x);
  CHECK_LAUNCH();
  const double expected[] = {sin(x), exp(x), pow(x, 1.25), erf(x), tgamma(x), sinf((float)x), 3.75, x * x + 1, 47};
  for (int i = 0; i < 9; i++) {
    if (std::fabs(out.at(i) - expected[i]) > (i == 5 ? 1e-6 : 1e-14)) {
      std::printf("value %d is %.17g, not %.17g\nFAIL\n", i, out.at(i), expected[i]);
      return 1;
    }
  }
  return pass();
}
