#include "check.h"
static __global__ void twice(int *out, int x) { *out = 2 * x; }
int library_launches(int x) {
  Array<int> out(1);
  twice<<<1, 1>>>(out, x);
  CHECK_LAUNCH();
  return out.at(0);
}
