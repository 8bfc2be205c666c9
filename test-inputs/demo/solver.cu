// Conjugate gradients. Its kernels call apply_row (operator.cu) and count in a variable that lives
// there; dot products come from the reduce library.
#include "heat.cuh"
#include "reduce/reduce.cuh"

namespace heat {

__global__ void apply_operator(const double *in, double *out, int count) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row < count)
    out[row] = apply_row(in, row);
  if (threadIdx.x == 0)
    atomicAdd(&rows_applied, (unsigned long long)min(blockDim.x, count - blockIdx.x * blockDim.x));
}

// y = x + a * y. Hidden: launched from this object only, as most kernels of header libraries are.
__attribute__((visibility("hidden"))) __global__ void update_direction(const double *x, double a, double *y, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count)
    y[i] = x[i] + a * y[i];
}

int solve(double *solution, double *residual, int n, double tolerance, int max_iterations) {
  const int count = n * n, blocks = (count + 127) / 128;
  double *direction, *image;
  check(cudaMalloc(&direction, count * sizeof(double)), "cudaMalloc");
  check(cudaMalloc(&image, count * sizeof(double)), "cudaMalloc");
  check(cudaMemset(solution, 0, count * sizeof(double)), "cudaMemset");
  check(cudaMemcpy(direction, residual, count * sizeof(double), cudaMemcpyDeviceToDevice), "cudaMemcpy");
  const double start = reduce::dot(residual, residual, count);
  double squared = start;
  int iterations = 0;
  while (iterations < max_iterations && !(squared < tolerance * tolerance * start)) {
    apply_operator<<<blocks, 128>>>(direction, image, count);
    check(cudaGetLastError(), "launch of apply_operator");
    const double step = squared / reduce::dot(direction, image, count);
    axpy<double><<<64, 128>>>(step, direction, solution, count);
    axpy<double><<<64, 128>>>(-step, image, residual, count);
    check(cudaGetLastError(), "launch of axpy");
    const double next = reduce::dot(residual, residual, count);
    update_direction<<<blocks, 128>>>(residual, next / squared, direction, count);
    check(cudaGetLastError(), "launch of update_direction");
    squared = next;
    ++iterations;
  }
  check(cudaFree(direction), "cudaFree");
  check(cudaFree(image), "cudaFree");
  return iterations;
}

}  // namespace heat
