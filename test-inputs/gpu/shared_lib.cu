// A shared object with device code of its own (-DUNIT=n); kernels and variables have the same names in each.
#include "check.h"
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
__attribute__((visibility("hidden"))) __device__ int value = UNIT;
__attribute__((visibility("hidden"))) __global__ void kernel(int *out) { *out = 10 * UNIT + value; }
extern "C" int JOIN(shared, UNIT)(int add) {
  int v;
  CHECK(cudaMemcpyFromSymbol(&v, value, sizeof v));
  v += add;
  CHECK(cudaMemcpyToSymbol(value, &v, sizeof v));
  Array<int> out(1);
  kernel<<<1, 1>>>(out);
  CHECK_LAUNCH();
  return out.at(0);
}
