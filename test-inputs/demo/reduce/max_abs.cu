#include "host.h"

namespace reduce {

struct Magnitude {
  const double *x;
  __device__ double operator()(int i) const { return fabs(x[i]); }
};

double max_abs(const double *x, int count) {
  double largest = 0;
  for (double value : run(Magnitude{x}, Max{}, count))
    largest = value > largest ? value : largest;
  return largest;
}

}  // namespace reduce
