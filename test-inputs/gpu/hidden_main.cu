// Hidden kernels and variables, template kernels in several units, internal kernels of one name.
#include "check.h"
#include "hidden.cuh"

int other_unit(int);

__attribute__((visibility("hidden"))) __device__ int hidden_variable = 3;
__attribute__((visibility("hidden"))) __global__ void hidden_kernel(int *out) { *out = hidden_variable + 1; }
namespace {
__global__ void internal(int *out) { *out = 10; }
}

int main() {
  Array<int> out(1);
  int value = 41;
  CHECK(cudaMemcpyToSymbol(hidden_variable, &value, sizeof value));
  hidden_kernel<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 42);
  generic<int, 5><<<1, 1>>>(out, 7);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 35);
  internal<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 10);
  EXPECT(other_unit(1), 20);
  EXPECT(other_unit(2), 35);
  EXPECT(other_unit(3), 12);
  auto kernel = generic<int, 6>;
  kernel<<<1, 1>>>(out, 7);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 42);
  void *arguments[] = {&out.data, &value};
  CHECK(cudaLaunchKernel((const void *)generic<int, 2>, 1, 1, arguments, 0, 0));
  CHECK_LAUNCH();
  EXPECT(out.at(0), 82);
  return pass();
}
