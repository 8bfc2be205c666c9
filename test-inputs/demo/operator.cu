// The five-point operator: data and a device function that other units use.
#include "heat.cuh"

namespace heat {

__constant__ Problem problem;
__device__ unsigned long long rows_applied = 0;

__device__ double apply_row(const double *field, int row) {
  const int n = problem.n, i = row % n, j = row / n;
  const double center = field[row];
  const double west = i > 0 ? field[row - 1] : 0, east = i + 1 < n ? field[row + 1] : 0;
  const double south = j > 0 ? field[row - n] : 0, north = j + 1 < n ? field[row + n] : 0;
  const double scale = 1 / (problem.spacing * problem.spacing);
  return problem.conductivity_x * scale * (2 * center - west - east) +
         problem.conductivity_y * scale * (2 * center - south - north) + problem.reaction * center;
}

}  // namespace heat
