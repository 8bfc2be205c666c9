// Kernels and data in several units, each needing the others: device calls, extern __device__ and
// __constant__ variables written and read by the host, a variable with an initial value, a pointer to
// another unit's variable.
#include "check.h"

extern __device__ int counter;             // cross_data.cu
extern __device__ float initialised[4];    // cross_data.cu
extern __constant__ float weights[8];      // cross_data.cu
extern __device__ int *const pointer_to_counter;
__device__ float weighted(const float *x); // cross_code.cu
__global__ void from_other_unit(int *out, int n);  // cross_code.cu

__global__ void kernel(const float *x, float *out) {
  out[threadIdx.x] = weighted(x + 8 * threadIdx.x) + initialised[threadIdx.x % 4];
  atomicAdd(&counter, 1);
  if (threadIdx.x == 0)
    atomicAdd(pointer_to_counter, 1000);
}

int main() {
  float w[8], x[32 * 8];
  for (int i = 0; i < 8; i++) w[i] = i + 1;
  for (int i = 0; i < 32 * 8; i++) x[i] = i;
  CHECK(cudaMemcpyToSymbol(weights, w, sizeof w));
  int start = 5;
  CHECK(cudaMemcpyToSymbol(counter, &start, sizeof start));
  Array<float> in(32 * 8), out(32);
  in.fill(x);
  kernel<<<1, 32>>>(in, out);
  CHECK_LAUNCH();
  for (int t = 0; t < 32; t++) {
    float sum = 0;
    for (int i = 0; i < 8; i++) sum += w[i] * x[8 * t + i];
    EXPECT(out.at(t), sum + 10 * (t % 4) + 0.5f);
  }
  int count;
  CHECK(cudaMemcpyFromSymbol(&count, counter, sizeof count));
  EXPECT(count, 5 + 32 + 1000);
  void *address;
  CHECK(cudaGetSymbolAddress(&address, initialised));
  float first;
  CHECK(cudaMemcpy(&first, address, sizeof first, cudaMemcpyDefault));
  EXPECT(first, 0.5f);
  Array<int> squares(100);
  from_other_unit<<<2, 50>>>(squares, 100);
  CHECK_LAUNCH();
  EXPECT(squares.at(99), 99 * 99 + count);
  return pass();
}
