// nvcc's half of both_main.cu. To nvcc no device variable is weak: what it defines is what counts.
#include "both.h"
__device__ int weak_cell = 8;
__device__ int weak_function(int x) { return x + 1; }
__constant__ int nvcc_constant = 100;
__device__ int fetch(cudaTextureObject_t texture, int i) { return tex1Dfetch<int>(texture, i); }
int nvcc_run(int *out) {
  int value = 0;
  add<int><<<1, 1>>>(out);
  apply<<<1, 1>>>(out, [] __device__(int x) { return 2 * x + clang_constant; });
  if (cudaGetLastError() || cudaDeviceSynchronize()) return -1;
  return cudaMemcpyFromSymbol(&value, inline_cell, sizeof value) ? -2 : value;
}
