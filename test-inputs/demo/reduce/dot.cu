#include "host.h"

namespace reduce {

struct Product {
  const double *x, *y;
  __device__ double operator()(int i) const { return x[i] * y[i]; }
};

double dot(const double *x, const double *y, int count) {
  double sum = 0;
  for (double value : run(Product{x, y}, Sum{}, count))
    sum += value;
  return sum;
}

}  // namespace reduce
