#include "vector.h"
#include <cstdio>

int main() {
  int sum = sum_of_squares(3);
  std::printf("sum = %d\n", sum);
  return sum == 14 ? 0 : 1;
}
