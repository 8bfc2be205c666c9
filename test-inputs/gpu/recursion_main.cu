// Recursion within a unit and across two, which leaves real calls and a stack.
#include "check.h"
__device__ int is_odd(int n);  // recursion_other.cu
__device__ int is_even(int n) { return n == 0 ? 1 : is_odd(n - 1); }
__device__ long long ackermann(long long m, long long n) {
  return m == 0 ? n + 1 : n == 0 ? ackermann(m - 1, 1) : ackermann(m - 1, ackermann(m, n - 1));
}
__device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
__global__ void kernel(long long *out) {
  out[0] = is_even(34);
  out[1] = is_even(35);
  out[2] = ackermann(2, 5);
  out[3] = fibonacci(15);
}
int main() {
  CHECK(cudaDeviceSetLimit(cudaLimitStackSize, 32 << 10));
  Array<long long> out(4);
  kernel<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 1);
  EXPECT(out.at(1), 0);
  EXPECT(out.at(2), 13);
  EXPECT(out.at(3), 610);
  return pass();
}
