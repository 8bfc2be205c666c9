// Declared for both compilers: mixed_main.cu is clang's, mixed_nvcc.cu is nvcc's.
#pragma once
#include <cuda_runtime.h>

struct Pair {
  float first, second;
};
// Defined by nvcc.
__global__ void nvcc_kernel(int *out);
__device__ int nvcc_add(int x, int y);
__device__ Pair nvcc_pair(float x);
extern __device__ int nvcc_counter;
extern __constant__ float nvcc_table[4];
// Defined by clang.
__device__ int clang_double(int x);
extern __device__ int clang_counter;
extern __constant__ float clang_table[4];

__global__ void clang_kernel(int *out);

// In both objects, and one in the program.
template <class T> __device__ T shared_cell = 5;
inline __device__ int both_inline(int x) { return x + shared_cell<int>; }

// Host functions of nvcc's object.
int nvcc_run(int *device_out);
int nvcc_reads_clang_counter();
void nvcc_launches_clang_kernel(int *device_out);
