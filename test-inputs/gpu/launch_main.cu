// Kernels launched from device code, of the same unit and of another: needs libcudadevrt, which nobody names.
#include "check.h"
__global__ void add(int *out, int value);
__global__ void child(int *out, int depth) { atomicAdd(out, depth); }
__global__ void parent(int *out) {
  child<<<1, 32>>>(out, 2);
  add<<<2, 1>>>(out, 100);
}
int main() {
  Array<int> out(1);
  parent<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 264);
  return pass();
}
