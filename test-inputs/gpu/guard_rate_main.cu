// What the launch guard costs: a million launches of an empty kernel through it and a million past it, in turns, in one program.
// `__real_cudaLaunchKernel` is the runtime's own function where a link has the references to cudaLaunchKernel lead to the guard.
#include "check.h"
#include <algorithm>
#include <chrono>
#include <vector>
__global__ void empty() {}
extern "C" cudaError_t __real_cudaLaunchKernel(const void *, dim3, dim3, void **, size_t, cudaStream_t);

using Launch = cudaError_t (*)(const void *, dim3, dim3, void **, size_t, cudaStream_t);

static double nanoseconds(Launch launch, int count) {
  CHECK(cudaDeviceSynchronize());
  auto start = std::chrono::steady_clock::now();
  for (int i = 0; i < count; i++)
    CHECK(launch((const void *)empty, dim3(1), dim3(1), nullptr, 0, nullptr));
  CHECK(cudaDeviceSynchronize());
  return std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - start).count() / count;
}

int main() {
  const int rounds = 100, count = 10000;
  std::vector<double> with, without, difference;
  nanoseconds(cudaLaunchKernel, count);
  nanoseconds(__real_cudaLaunchKernel, count);
  for (int i = 0; i < rounds; i++) {
    double guarded, bare;
    if (i % 2) {
      guarded = nanoseconds(cudaLaunchKernel, count);
      bare = nanoseconds(__real_cudaLaunchKernel, count);
    } else {
      bare = nanoseconds(__real_cudaLaunchKernel, count);
      guarded = nanoseconds(cudaLaunchKernel, count);
    }
    with.push_back(guarded);
    without.push_back(bare);
    difference.push_back(guarded - bare);
  }
  auto quantile = [](std::vector<double> values, double at) {
    std::sort(values.begin(), values.end());
    return values[(size_t)(at * (values.size() - 1))];
  };
  double guarded = quantile(with, 0.5), bare = quantile(without, 0.5);
  std::printf("%d launches each: with the guard %.0f/s (%.1f ns), without %.0f/s (%.1f ns)\n", rounds * count, 1e9 / guarded, guarded,
              1e9 / bare, bare);
  std::printf("difference of a pair: median %+.1f ns, middle half %+.1f to %+.1f ns (%+.2f %%)\n", quantile(difference, 0.5),
              quantile(difference, 0.25), quantile(difference, 0.75), 100 * quantile(difference, 0.5) / bare);
  // A launch takes some 2000 ns; the guard's share is a nanosecond or two, and 3 % allows for a busy machine.
  EXPECT(quantile(difference, 0.5) < 0.03 * bare, true);
  return pass();
}
