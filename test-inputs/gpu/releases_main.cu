// Objects of clang 16, 19 and 22 in one program: kernels, variables and constants of each, device calls in both directions, one template
// kernel that all of them have.
#include "check.h"
template <class T> __global__ void shared(T *out) { *out += 1; }
__device__ int from16(int), from19(int), from22(int);
__device__ int from_main(int a) { return a + 1; }
__global__ void all(int *out) { *out = from16(1) + from19(2) + from22(3); }
int run16(int *), run19(int *), run22(int *);
int main() {
  Array<int> out(2);
  all<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 16 + 2 * 19 + 3 * 22);
  EXPECT(run16(out), 16);
  EXPECT(out.at(0), 17 + 160);
  EXPECT(run19(out), 19);
  EXPECT(out.at(0), 20 + 190);
  EXPECT(run22(out), 22);
  EXPECT(out.at(0), 23 + 220);
  EXPECT(out.at(1), 3);
  shared<int><<<1, 1>>>(out + 1);
  CHECK_LAUNCH();
  EXPECT(out.at(1), 4);
  return pass();
}
