#include "check.h"
__device__ int own_variable = 70;
__global__ void whole(int *out) { *out = own_variable + 7; }
int whole_part() {
  Array<int> out(1);
  whole<<<1, 1>>>(out);
  CHECK_LAUNCH();
  return out.at(0);
}
