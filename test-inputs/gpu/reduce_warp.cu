__device__ float warp_sum(float x) {
  for (int offset = 16; offset; offset /= 2) x += __shfl_down_sync(0xffffffffu, x, offset);
  return x;
}
