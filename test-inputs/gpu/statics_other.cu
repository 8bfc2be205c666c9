#include "check.h"
static __constant__ float table[2];
static __device__ int counter = 50;
__global__ void other_kernel(int *out) { *out = counter + (int)table[1]; }
int other() {
  float values[2] = {0, 5};
  CHECK(cudaMemcpyToSymbol(table, values, sizeof values));
  int start;
  CHECK(cudaMemcpyFromSymbol(&start, counter, sizeof start));
  EXPECT(start, 50);
  Array<int> out(1);
  other_kernel<<<1, 1>>>(out);
  CHECK_LAUNCH();
  return out.at(0);
}
