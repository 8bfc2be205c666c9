// nvcc's half of mixed_main.cu.
#include "mixed.h"

__device__ int nvcc_counter = 10;
__constant__ float nvcc_table[4] = {1, 2, 3, 4};
__device__ int nvcc_add(int x, int y) {
  atomicAdd(&nvcc_counter, 1);
  return x + y;
}
__device__ Pair nvcc_pair(float x) { return Pair{x + nvcc_table[1], x + clang_table[2]}; }

static __device__ int own = 100; // clang's half has a static of this name, too
__global__ void nvcc_kernel(int *out) {
  atomicAdd(&clang_counter, 3);
  shared_cell<int> += 1;
  *out = clang_double(21) + own + both_inline(0);
}

int nvcc_run(int *device_out) {
  int value = 0;
  nvcc_kernel<<<1, 1>>>(device_out);
  if (cudaGetLastError() || cudaMemcpy(&value, device_out, sizeof value, cudaMemcpyDeviceToHost)) return -1;
  return value;
}
int nvcc_reads_clang_counter() {
  int value = 0;
  return cudaMemcpyFromSymbol(&value, clang_counter, sizeof value) ? -1 : value;
}
void nvcc_launches_clang_kernel(int *device_out) { clang_kernel<<<1, 1>>>(device_out); }
