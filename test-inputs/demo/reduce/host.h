// Host side of the reductions: runs per_block and finishes on the host.
#pragma once
#include "reduce.cuh"
#include <vector>

namespace reduce {

template <class Map, class Combine> std::vector<double> run(Map map, Combine combine, int count) {
  const int blocks = 64;
  std::vector<double> partial(blocks);
  double *device_partial;
  if (cudaMalloc(&device_partial, blocks * sizeof(double)) != cudaSuccess)
    return {};
  per_block<<<blocks, block_size>>>(map, combine, count, device_partial);
  cudaMemcpy(partial.data(), device_partial, blocks * sizeof(double), cudaMemcpyDeviceToHost);
  cudaFree(device_partial);
  return partial;
}

}  // namespace reduce
