// Device code in several forms in one image: calls and variables cross from bitcode to each of the four parts and back. What the forms are
// is said in tools/gpu-test.sh. -DHOST: the parts have host code, whose kernels are launched from either side. -DEARLY=n: n parts use
// their variables in static constructors.
#include "check.h"
#include "pieces.h"

__device__ int back(int x) { return x + 1; }
__device__ int main_cell = 100;
__constant__ int main_table[2] = {3, 4};
static __device__ int own(int x) { return -x; }

__global__ void all(int *out, int x) { *out = part1(x) + part2(x) + part3(x) + part4(x); }
__global__ void cells(int *out) { *out = cell1 + cell2 + cell3 + cell4 + own(table1[1] + table2[1] + table3[1] + table4[1]); }

#ifdef HOST
using Launch = void (*)(int *);
template <void (*kernel)(int *)> void launch(int *out) { kernel<<<1, 1>>>(out); }
void check_part(int n, int (*run)(int *), Launch from_here, int *data, Array<int> &out) {
  // cell: 10 n at first, one more with each call
  EXPECT(run(data), 10 * n + 2);
  EXPECT(out.at(0), 6 * n + 10 * n + 2 + n + 4);
  from_here(data);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 6 * n + 10 * n + 3 + n + 4);
}
#endif

int main() {
  Array<int> out(1);
  int value;
  all<<<1, 1>>>(out, 7);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 10 * 8 + 104 + 10 + 16);
  CHECK(cudaMemcpyFromSymbol(&value, main_cell, sizeof value));
  EXPECT(value, 104);
  cells<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 104 + 10);
#ifdef HOST
  check_part(1, run1, launch<kernel1>, out, out);
  check_part(2, run2, launch<kernel2>, out, out);
  check_part(3, run3, launch<kernel3>, out, out);
  check_part(4, run4, launch<kernel4>, out, out);
  CHECK(cudaMemcpyFromSymbol(&value, main_cell, sizeof value));
  EXPECT(value, 112);
  const int table[2] = {0, 50};
  CHECK(cudaMemcpyToSymbol(table3, table, sizeof table));
  cells<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 112 + 7 - 50);
#endif
  return pass();
}
