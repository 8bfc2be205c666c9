// Linked with -r first (-DUNIT=n): the object holds its own images and registers them itself.
#include "check.h"
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
static __device__ int start = 1000 * UNIT;
static __global__ void kernel(int *out) { *out = start + UNIT; }
int JOIN(part, UNIT)() {
  Array<int> out(1);
  kernel<<<1, 1>>>(out);
  CHECK_LAUNCH();
  return out.at(0);
}
