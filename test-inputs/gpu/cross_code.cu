extern __constant__ float weights[8];
extern __device__ int counter;
__device__ int square(int x);  // cross_data.cu

__device__ float weighted(const float *x) {
  float sum = 0;
  for (int i = 0; i < 8; i++) sum += weights[i] * x[i];
  return sum;
}

__global__ void from_other_unit(int *out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = square(i) + counter;
}
