#include "check.h"
#include "hidden.cuh"
namespace {
__global__ void internal(int *out) { *out = 20; }
}
int other_unit(int which) {
  Array<int> out(1);
  switch (which) {
  case 1: internal<<<1, 1>>>(out); break;
  case 2: generic<int, 5><<<1, 1>>>(out, 7); break;
  case 3: generic<int, 4><<<1, 1>>>(out, 3); break;
  }
  CHECK_LAUNCH();
  return out.at(0);
}
