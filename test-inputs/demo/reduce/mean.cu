// A member that nothing in the demo refers to: it must stay out of the program, on both sides.
#include "host.h"

namespace reduce {

struct Value {
  const double *x;
  __device__ double operator()(int i) const { return x[i]; }
};

double mean(const double *x, int count) {
  double sum = 0;
  for (double value : run(Value{x}, Sum{}, count))
    sum += value;
  return count ? sum / count : 0;
}

}  // namespace reduce
