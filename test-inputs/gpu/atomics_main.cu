// Atomics on global and shared memory, of several types and scopes, and fences.
#include "check.h"
__device__ unsigned long long wide;
__device__ double real;
__device__ unsigned tickets;
__global__ void kernel(int *histogram, int *last) {
  __shared__ int local[16];
  if (threadIdx.x < 16) local[threadIdx.x] = 0;
  __syncthreads();
  atomicAdd(&local[threadIdx.x % 16], 1);
  atomicAdd(&wide, 1ull << 33);
  atomicAdd(&real, 0.5);
  __syncthreads();
  if (threadIdx.x < 16) atomicAdd(&histogram[threadIdx.x], local[threadIdx.x]);
  __threadfence();
  if (threadIdx.x == 0 && atomicInc(&tickets, gridDim.x) == gridDim.x - 1) {
    int sum = 0;
    for (int i = 0; i < 16; i++) sum += atomicCAS(&histogram[i], -1, 0);
    *last = sum;
  }
}
int main() {
  Array<int> histogram(16), last(1);
  kernel<<<40, 128>>>(histogram, last);
  CHECK_LAUNCH();
  unsigned long long w;
  double r;
  CHECK(cudaMemcpyFromSymbol(&w, wide, sizeof w));
  CHECK(cudaMemcpyFromSymbol(&r, real, sizeof r));
  EXPECT(w, (1ull << 33) * 40 * 128);
  EXPECT(r, 0.5 * 40 * 128);
  for (int i = 0; i < 16; i++) EXPECT(histogram.at(i), 40 * 8);
  EXPECT(last.at(0) > 0, true);
  return pass();
}
