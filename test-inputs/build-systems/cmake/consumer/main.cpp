#include "vector.h"

int main() { return sum_of_squares(3) == 14 ? 0 : 1; }
