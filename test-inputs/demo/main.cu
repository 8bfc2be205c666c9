// Solves the problem on the device and checks the result against the known discrete solution.
//   heat              PASS or FAIL, exit status 0 or 1
//   heat --no-check   launches the same kernels for two iterations and checks nothing: for the
//                     recording runtime, which runs no device code
#include "heat.cuh"
#include "reduce/reduce.cuh"
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace heat {

void check(cudaError_t error, const char *what) {
  if (error == cudaSuccess)
    return;
  std::printf("FAIL %s: %s\n", what, cudaGetErrorString(error));
  std::exit(1);
}

}  // namespace heat

using namespace heat;

int main(int argc, char **argv) {
  const bool no_check = argc > 1 && !std::strcmp(argv[1], "--no-check");
  const int n = no_check ? 32 : 255, count = n * n;
  const Problem setup = {n, 1.0 / (n + 1), 1.0, 0.5, 10.0};
  cudaDeviceProp device;
  check(cudaGetDeviceProperties(&device, 0), "cudaGetDeviceProperties");
  std::printf("device: %s\n", device.name);

  check(cudaMemcpyToSymbol(problem, &setup, sizeof setup), "writing problem");
  double *solution, *residual;
  check(cudaMalloc(&solution, count * sizeof(double)), "cudaMalloc");
  check(cudaMalloc(&residual, count * sizeof(double)), "cudaMalloc");
  fill_source(residual, n);
  const int iterations = solve(solution, residual, n, 1e-12, no_check ? 2 : 2000);

  // Subtract the solution computed here, on the device, with the same axpy as the solver's.
  Mode host_modes[mode_count];
  check(cudaMemcpyFromSymbol(host_modes, modes, sizeof host_modes), "reading modes");
  std::vector<double> expected(count);
  const double pi = 3.14159265358979323846;
  for (int row = 0; row < count; ++row)
    for (const Mode &mode : host_modes)
      expected[row] += mode.amplitude * std::sin(mode.kx * pi * (row % n + 1) * setup.spacing) *
                       std::sin(mode.ky * pi * (row / n + 1) * setup.spacing);
  double *difference;
  check(cudaMalloc(&difference, count * sizeof(double)), "cudaMalloc");
  check(cudaMemcpy(difference, expected.data(), count * sizeof(double), cudaMemcpyHostToDevice), "cudaMemcpy");
  axpy<double><<<64, 128>>>(-1.0, solution, difference, count);
  check(cudaGetLastError(), "launch of axpy");
  const double error = reduce::max_abs(difference, count), size = reduce::max_abs(solution, count);
  unsigned long long applied = 0;
  check(cudaMemcpyFromSymbol(&applied, rows_applied, sizeof applied), "reading rows_applied");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");

  std::printf("%d x %d points, %d iterations, %llu rows applied\n", n, n, iterations, applied);
  if (no_check) {
    std::puts("result not checked");
    return 0;
  }
  std::printf("largest value %.6f, largest error %.3g\n", size, error);
  const bool good = iterations > 10 && iterations < 2000 && applied == (unsigned long long)iterations * count &&
                    size > 0.5 && error < 1e-8;
  std::puts(good ? "PASS" : "FAIL");
  return !good;
}
