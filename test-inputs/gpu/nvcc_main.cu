// Objects of nvcc alone, which no nvcc -dlink has linked.
#include "check.h"
#include <cuda_runtime.h>
__device__ int other(int x);
extern __device__ int cell;
__global__ void kernel(int *out) { *out = other(3) + cell; }
int main() {
  Array<int> out(1);
  const int seven = 7;
  CHECK(cudaMemcpyToSymbol(cell, &seven, sizeof seven));
  kernel<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 37);
  return pass();
}
