// Objects of clang and nvcc in one image: calls, variables, structs and launches cross both ways, statics of one name stay apart, and a
// variable template that both have is one variable.
#include "check.h"
#include "mixed.h"

__device__ int clang_double(int x) { return 2 * x; }
__device__ int clang_counter = 20;
__constant__ float clang_table[4] = {10, 20, 30, 40};
static __device__ int own = 1000;

__global__ void clang_kernel(int *out) { *out = nvcc_add(own, both_inline(1)); }
__global__ void pairs(float *out) {
  Pair pair = nvcc_pair(0.5f);
  out[0] = pair.first;
  out[1] = pair.second;
  out[2] = nvcc_table[3];
}

int main() {
  Array<int> out(1);
  Array<float> floats(3);
  // 42 + 100 + (5 + 1)
  EXPECT(nvcc_run(out), 148);
  clang_kernel<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 1000 + 1 + 6);
  nvcc_launches_clang_kernel(out);
  CHECK_LAUNCH();
  nvcc_kernel<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 149);
  int counter = 0;
  CHECK(cudaMemcpyFromSymbol(&counter, nvcc_counter, sizeof counter));
  EXPECT(counter, 12);
  EXPECT(nvcc_reads_clang_counter(), 26);
  pairs<<<1, 1>>>(floats);
  CHECK_LAUNCH();
  EXPECT(floats.at(0), 2.5f);
  EXPECT(floats.at(1), 30.5f);
  EXPECT(floats.at(2), 4.0f);
  const float table[4] = {0, 7, 0, 8};
  CHECK(cudaMemcpyToSymbol(nvcc_table, table, sizeof table));
  pairs<<<1, 1>>>(floats);
  CHECK_LAUNCH();
  EXPECT(floats.at(0), 7.5f);
  EXPECT(floats.at(2), 8.0f);
  return pass();
}
