// Four hundred kernels in one program, launched on several streams.
#include "check.h"
template <int N> __global__ void kernel(int *out) { out[N] = N * N + 1; }
template <int N> void launch_all(int *out, cudaStream_t *streams) {
  if constexpr (N > 0) {
    kernel<N - 1><<<1, 1, 0, streams[N % 4]>>>(out);
    launch_all<N - 1>(out, streams);
  }
}
int main() {
  cudaStream_t streams[4];
  for (auto &stream : streams) CHECK(cudaStreamCreate(&stream));
  Array<int> out(400);
  launch_all<400>(out, streams);
  CHECK_LAUNCH();
  for (int i = 0; i < 400; i++) EXPECT(out.at(i), i * i + 1);
  for (auto &stream : streams) CHECK(cudaStreamDestroy(stream));
  return pass();
}
