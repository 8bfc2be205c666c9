// A third object of both_main.cu: it has the weak definitions as well.
#include "both.h"
__device__ __attribute__((weak)) int weak_cell = 80;
__device__ __attribute__((weak)) int weak_function(int x) { return x + 1000; }
__global__ void other(int *out) { *out = weak_function(weak_cell); }
int other_run(int *out) {
  other<<<1, 1>>>(out);
  return cudaGetLastError() || cudaDeviceSynchronize();
}
