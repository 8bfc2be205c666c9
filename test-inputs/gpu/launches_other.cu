#include "launches.h"

__global__ void there(int *out, Item item, short first) {
  extern __shared__ int shared[];
  int thread = threadIdx.x + blockDim.x * threadIdx.y;
  shared[thread] = item.parts[thread % 3];
  __syncthreads();
  if (thread == 0)
    atomicAdd(out, (int)(item.factor * (shared[0] + shared[1] + shared[2])) + first + item.tag + (int)blockIdx.z);
}
__global__ void there_launches_here(int *out) {
  Item item = {'\2', 4, {1, 1, 1}};
  here<<<dim3(1, 1, 3), dim3(2, 2), 4 * sizeof(int)>>>(out, item, 5);
}
template <class T> __global__ void there_of(T *out, T value) { atomicAdd(out, value); }
template __global__ void there_of<int>(int *, int);
