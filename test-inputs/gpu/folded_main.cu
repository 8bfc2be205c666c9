// Kernels whose host stubs look the same: a linker that folds identical code must not launch one for another.
#include "check.h"
int other(int);
template <int N> __global__ void mark(int *out) { *out = N; }
__global__ void first(int *out) { *out = 101; }
__global__ void second(int *out) { *out = 102; }
static __global__ void internal(int *out) { *out = 103; }
int main() {
  Array<int> out(1);
  mark<1><<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 1);
  mark<2><<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 2);
  first<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 101);
  second<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 102);
  internal<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 103);
  EXPECT(other(0), 203);
  EXPECT(other(1), 2);
  return pass();
}
