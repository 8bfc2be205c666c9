// Static and dynamic shared memory (more than 48 KB of it), warp shuffles, cooperative groups.
#include "check.h"
#include <cooperative_groups.h>
#include <vector>
__device__ float warp_sum(float x);  // reduce_warp.cu
extern __shared__ float dynamic[];
__global__ void reduce_static(const float *in, float *out, int n) {
  __shared__ float sums[8];
  float sum = 0;
  for (int i = threadIdx.x; i < n; i += blockDim.x) sum += in[i];
  sum = warp_sum(sum);
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = sum;
  cooperative_groups::this_thread_block().sync();
  if (threadIdx.x == 0) {
    for (int i = 1; i < 8; i++) sum += sums[i];
    *out = sum;
  }
}
__global__ void reverse(const float *in, float *out, int n) {
  for (int i = threadIdx.x; i < n; i += blockDim.x) dynamic[i] = in[i];
  __syncthreads();
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = dynamic[n - 1 - i];
}
int main() {
  const int n = 20000;
  std::vector<float> values(n);
  for (int i = 0; i < n; i++) values[i] = i % 7;
  Array<float> in(n), out(n), sum(1);
  in.fill(values.data());
  reduce_static<<<1, 256>>>(in, sum, n);
  CHECK_LAUNCH();
  double expected = 0;
  for (float v : values) expected += v;
  EXPECT((double)sum.at(0), expected);
  CHECK(cudaFuncSetAttribute((const void *)reverse, cudaFuncAttributeMaxDynamicSharedMemorySize, n * 4));
  reverse<<<1, 512, n * 4>>>(in, out, n);
  CHECK_LAUNCH();
  for (int i : {0, 1, n / 2, n - 1}) EXPECT(out.at(i), values[n - 1 - i]);
  return pass();
}
