// Device functions only: no host code refers to this member, only device code of other members does.
#include "reduce.cuh"

namespace reduce {

// Set by nobody: keeps a device variable with an initial value in the library.
__device__ double identity[2] = {0.0, 0.0};

template <class Pair> static __device__ double over_block(double value, double start, Pair pair) {
  __shared__ double warps[block_size / 32];
  for (int offset = 16; offset > 0; offset /= 2)
    value = pair(value, __shfl_down_sync(0xffffffffu, value, offset));
  __syncthreads();
  if (threadIdx.x % 32 == 0)
    warps[threadIdx.x / 32] = value;
  __syncthreads();
  if (threadIdx.x == 0) {
    value = start;
    for (double warp : warps)
      value = pair(value, warp);
  }
  return value;
}

__device__ double block_sum(double value) {
  return over_block(value, identity[0], [](double a, double b) { return a + b; });
}

__device__ double block_max(double value) {
  return over_block(value, identity[1], [](double a, double b) { return a > b ? a : b; });
}

}  // namespace reduce
