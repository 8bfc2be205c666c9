// Declared for both compilers: four parts in four forms, and what the program gives them. A part whose host code counts (-DHOST) has a
// kernel, too.
#pragma once
#include <cuda_runtime.h>

#define PIECES_JOIN_(a, b) a##b
#define PIECES_JOIN(a, b) PIECES_JOIN_(a, b)

// Of pieces_main.cu.
__device__ int back(int x);
extern __device__ int main_cell;
extern __constant__ int main_table[2];

// Of pieces_part.cu, -DPART=n.
#define PIECES_DECLARE(n)                                                                                      \
  __device__ int part##n(int x);                                                                               \
  extern __device__ int cell##n;                                                                               \
  extern __constant__ int table##n[2];                                                                         \
  __global__ void kernel##n(int *out);                                                                         \
  int run##n(int *out);
PIECES_DECLARE(1)
PIECES_DECLARE(2)
PIECES_DECLARE(3)
PIECES_DECLARE(4)
