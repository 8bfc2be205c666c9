#include "check.h"
template <int N> __global__ void mark(int *out) { *out = N; }
static __global__ void internal(int *out) { *out = 203; }
int other(int which) {
  Array<int> out(1);
  if (which) mark<2><<<1, 1>>>(out); else internal<<<1, 1>>>(out);
  CHECK_LAUNCH();
  return out.at(0);
}
