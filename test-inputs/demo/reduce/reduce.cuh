// A small library of reductions, built as libreduce.a.
#pragma once

namespace reduce {

constexpr int block_size = 256;

// Sum over the block, valid in thread 0; all threads of a block of block_size call it. block.cu
__device__ double block_sum(double value);
__device__ double block_max(double value);

// Reduces f(i) over all i to one value per block.
template <class Map, class Combine>
__global__ void per_block(Map map, Combine combine, int count, double *partial) {
  double value = 0;
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    value = combine.pair(value, map(i));
  value = combine.block(value);
  if (threadIdx.x == 0)
    partial[blockIdx.x] = value;
}

struct Sum {
  __device__ double pair(double a, double b) const { return a + b; }
  __device__ double block(double value) const { return block_sum(value); }
};
struct Max {
  __device__ double pair(double a, double b) const { return a > b ? a : b; }
  __device__ double block(double value) const { return block_max(value); }
};

double dot(const double *x, const double *y, int count);    // dot.cu
double max_abs(const double *x, int count);                 // max_abs.cu
double mean(const double *x, int count);                    // mean.cu, which the demo does not use

}  // namespace reduce
