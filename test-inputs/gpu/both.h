// What both compilers' objects define: both_main.cu is clang's, both_other.cu is clang's, too, both_nvcc.cu is nvcc's.
#pragma once
#include <cuda_runtime.h>
inline __device__ int inline_cell = 3;
inline __constant__ int inline_table[2] = {5, 6};
template <class T> inline __device__ T template_cell = 2;
template <class T> __global__ void add(T *out) { *out += T(1) + inline_cell + inline_table[1] + template_cell<T>; }
template <class F> __global__ void apply(int *out, F f) { *out = f(*out); }
extern __constant__ int clang_constant, nvcc_constant;
__device__ int fetch(cudaTextureObject_t texture, int i);
int nvcc_run(int *out);
int other_run(int *out);
