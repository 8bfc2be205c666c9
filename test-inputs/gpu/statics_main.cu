// Static device variables that a kernel uses before the host does: clang renames them half-way. Another
// unit has variables of the same names.
#include "check.h"
int other();
static __constant__ float table[4];
static __device__ int counter = 100;
static __device__ double untouched = 2.5;
static __device__ int only_kernels_use = 7;
__global__ void kernel(float *out, int i) {
  out[0] = table[i];
  out[1] = untouched;
  out[2] = only_kernels_use++;
  counter += i;
}
int main() {
  float values[4] = {1, 2, 4, 8};
  int start = 200, end;
  CHECK(cudaMemcpyToSymbol(table, values, sizeof values));
  CHECK(cudaMemcpyToSymbol(counter, &start, sizeof start));
  double read;
  CHECK(cudaMemcpyFromSymbol(&read, untouched, sizeof read));
  EXPECT(read, 2.5);
  Array<float> out(3);
  kernel<<<1, 1>>>(out, 3);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 8.f);
  EXPECT(out.at(1), 2.5f);
  EXPECT(out.at(2), 7.f);
  CHECK(cudaMemcpyFromSymbol(&end, counter, sizeof end));
  EXPECT(end, 203);
  EXPECT(other(), 55);
  return pass();
}
