// malloc and free on the device, a device lambda as a kernel argument, local arrays, struct parameters.
#include "check.h"
struct Large { int values[200]; };
__global__ void by_value(Large large, int *out) {
  int sum = 0;
  for (int i = threadIdx.x; i < 200; i += 32) sum += large.values[i];
  atomicAdd(out, sum);
}
__global__ void with_heap(int *out, int n) {
  int *list = (int *)malloc(n * sizeof(int));
  for (int i = 0; i < n; i++) list[i] = i + threadIdx.x;
  int sum = 0, local[64];
  for (int i = 0; i < n; i++) local[list[i] % 64] = list[i];
  for (int i = 0; i < n; i++) sum += local[list[i] % 64];
  free(list);
  out[threadIdx.x] = sum;
}
template <class F> __global__ void apply(F f, int *out) { out[threadIdx.x] = f(threadIdx.x); }
int main() {
  Array<int> out(32);
  Large large;
  int expected = 0;
  for (int i = 0; i < 200; i++) expected += large.values[i] = 3 * i;
  by_value<<<1, 32>>>(large, out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), expected);
  with_heap<<<1, 32>>>(out, 50);
  CHECK_LAUNCH();
  EXPECT(out.at(3), 50 * 49 / 2 + 50 * 3);
  const int factor = 9;
  apply<<<1, 32>>>([=] __device__(int x) { return factor * x; }, out);
  CHECK_LAUNCH();
  EXPECT(out.at(31), 9 * 31);
  return pass();
}
