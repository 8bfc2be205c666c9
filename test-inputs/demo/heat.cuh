// The steady heat equation with a reaction term on the unit square, n x n inner points:
// what the units of the solver share. Definitions are spread over the units on purpose, so that
// nearly every kernel needs code or data of another object or of the library.
#pragma once
#include <cstddef>

namespace heat {

struct Problem {
  int n;                              // inner points per side
  double spacing;                     // 1 / (n + 1)
  double conductivity_x, conductivity_y;
  double reaction;
};

struct Mode {                         // amplitude * sin(kx pi x) * sin(ky pi y)
  int kx, ky;
  double amplitude;
};
constexpr int mode_count = 24;

extern __constant__ Problem problem;                  // operator.cu; main.cu writes it
extern __constant__ Mode modes[mode_count];           // source.cu
extern __device__ unsigned long long rows_applied;    // operator.cu; solver.cu counts, main.cu reads

__device__ double apply_row(const double *field, int row);   // operator.cu
__device__ double source(int row);                           // source.cu
__host__ __device__ inline double laplacian_eigenvalue(int k, double spacing) {
  double s = sin(k * 3.14159265358979323846 * spacing / 2);
  return 4 * s * s / (spacing * spacing);
}

// y = a * x + y, instantiated in two units
template <class T> __global__ void axpy(T a, const T *x, T *y, int count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += gridDim.x * blockDim.x)
    y[i] += a * x[i];
}

// Conjugate gradients from zero; returns the number of iterations. solver.cu
int solve(double *solution, double *residual, int n, double tolerance, int max_iterations);
void fill_source(double *right_side, int n);          // source.cu

void check(cudaError_t error, const char *what);      // main.cu

}  // namespace heat
