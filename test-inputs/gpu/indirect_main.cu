// Function pointers (a table in device memory, a pointer fetched by the host) and virtual calls, with the
// callees in another unit.
#include "check.h"
#include "indirect.cuh"
#include <new>

__global__ void by_table(int *out, int which, int x) { *out = operations[which](x); }
__global__ void by_pointer(int *out, Operation operation, int x) { *out = operation(x); }
__global__ void by_virtual(int *out, int which, int x) {
  Shape *shape = make_shape(which, x);
  *out = shape->area();
  delete shape;
}

int main() {
  Array<int> out(1);
  const int expected[] = {11, 20, 100};
  for (int i = 0; i < 3; i++) {
    by_table<<<1, 1>>>(out, i, 10);
    CHECK_LAUNCH();
    EXPECT(out.at(0), expected[i]);
  }
  Operation pointer;
  CHECK(cudaMemcpyFromSymbol(&pointer, exported, sizeof pointer));
  by_pointer<<<1, 1>>>(out, pointer, 6);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 36);
  const int areas[] = {25, 75, 30};
  for (int i = 0; i < 3; i++) {
    by_virtual<<<1, 1>>>(out, i, 5);
    CHECK_LAUNCH();
    EXPECT(out.at(0), areas[i]);
  }
  return pass();
}
