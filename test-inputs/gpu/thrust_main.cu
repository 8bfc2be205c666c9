// Thrust and CUB: all of their kernels are hidden.
#include "check.h"
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <thrust/device_vector.h>
#include <thrust/reduce.h>
#include <thrust/sort.h>
#include <vector>
struct Affine {
  int factor, offset;
  __host__ __device__ int operator()(int x) const { return factor * x + offset; }
};
int main() {
  const int n = 100000;
  std::vector<int> values(n);
  unsigned state = 12345;
  for (int &v : values) v = (state = state * 1664525u + 1013904223u) >> 8;
  try {
    thrust::device_vector<int> device(values);
    thrust::sort(device.begin(), device.end());
    std::vector<int> sorted(n);
    thrust::copy(device.begin(), device.end(), sorted.begin());
    for (int i = 1; i < n; i++)
      if (sorted[i - 1] > sorted[i]) { std::printf("not sorted at %d\nFAIL\n", i); return 1; }
    long long sum = thrust::reduce(device.begin(), device.end(), 0LL), expected = 0;
    for (int v : values) expected += v;
    EXPECT(sum, expected);
    thrust::transform(device.begin(), device.end(), device.begin(), Affine{2, 1});
    EXPECT((int)device[n - 1], 2 * sorted[n - 1] + 1);
    Array<int> in(1000), out(1000);
    std::vector<int> ones(1000, 1);
    in.fill(ones.data());
    size_t bytes = 0;
    CHECK(cub::DeviceScan::InclusiveSum(nullptr, bytes, in.data, out.data, 1000));
    Array<char> scratch(bytes + 1);
    CHECK(cub::DeviceScan::InclusiveSum(scratch.data, bytes, in.data, out.data, 1000));
    CHECK_LAUNCH();
    EXPECT(out.at(999), 1000);
  } catch (const std::exception &e) {
    std::printf("%s\nFAIL\n", e.what());
    return 1;
  }
  return pass();
}
