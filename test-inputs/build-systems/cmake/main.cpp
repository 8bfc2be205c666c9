#include "vector.h"

void negate_square_on_device(int *x);
void report(int sum);

int main(int argc, char **) {
  int sum = sum_of_squares(3);
  if (argc > 1)
    negate_square_on_device(nullptr);
  report(sum);
  return sum == 14 ? 0 : 1;
}
