// Device code launches kernels of another unit, both ways; tools/gpu-test.sh has clang compile one of the units and nvcc the other.
// Structs as parameters, blocks and grids of several dimensions, dynamic shared memory, streams, an explicit instance of a template, and a
// kernel that launches itself.
#include "check.h"
#include "launches.h"

__global__ void here(int *out, Item item, short first) {
  extern __shared__ int shared[];
  int thread = threadIdx.x + blockDim.x * threadIdx.y;
  shared[thread] = item.parts[thread % 3];
  __syncthreads();
  if (thread == 0)
    atomicAdd(out, (int)(item.factor * (shared[0] + shared[1] + shared[2])) + first + item.tag + (int)blockIdx.z);
}
__global__ void here_launches_there(int *out) {
  Item item = {'\1', 2.5, {2, 4, 6}};
  there<<<dim3(2, 1, 2), dim3(4, 2), 8 * sizeof(int)>>>(out, item, 100);
  cudaStream_t stream;
  cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking);
  there_of<int><<<3, 1, 0, stream>>>(out + 1, 7);
  cudaStreamDestroy(stream);
}
__global__ void again(int *out, int depth) {
  atomicAdd(out, 1);
  if (depth > 0)
    again<<<2, 1>>>(out, depth - 1);
}

int main() {
  Array<int> out(3);
  here_launches_there<<<1, 1>>>(out);
  CHECK_LAUNCH();
  // Four blocks, two of them with z = 1.
  EXPECT(out.at(0), 4 * (30 + 100 + 1) + 2);
  EXPECT(out.at(1), 21);
  there_launches_here<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 526 + 3 * (12 + 5 + 2) + 3);
  again<<<1, 1>>>(out + 2, 3);
  CHECK_LAUNCH();
  EXPECT(out.at(2), 15);
  return pass();
}
