// Inline and template variables, template kernels and lambdas in objects of both compilers: one of each in the program. clang's weak
// definitions give way to nvcc's. Constants and textures cross.
#include "both.h"
#include "check.h"
__device__ __attribute__((weak)) int weak_cell = 80;
__device__ __attribute__((weak)) int weak_function(int x) { return x + 1000; }
__constant__ int clang_constant = 200;
__global__ void weak(int *out) { *out = clang_constant + nvcc_constant + weak_function(weak_cell); }
__global__ void textures(int *out, cudaTextureObject_t texture) { *out = 10 * fetch(texture, 1) + tex1Dfetch<int>(texture, 2); }

int main() {
  Array<int> out(1), texels(4);
  weak<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 200 + 100 + 8 + 1);
  EXPECT(other_run(out), 0);
  EXPECT(out.at(0), 8 + 1);

  const int eleven = 11;
  CHECK(cudaMemcpyToSymbol(inline_cell, &eleven, sizeof eleven));
  CHECK(cudaMemset(out, 0, sizeof(int)));
  add<int><<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 1 + 11 + 6 + 2);
  apply<<<1, 1>>>(out, [] __device__(int x) { return x + 30; });
  CHECK_LAUNCH();
  EXPECT(out.at(0), 50);
  EXPECT(nvcc_run(out), 11);
  EXPECT(out.at(0), 2 * (50 + 20) + 200);

  const int values[4] = {1, 2, 3, 4};
  texels.fill(values);
  cudaResourceDesc resource = {};
  resource.resType = cudaResourceTypeLinear;
  resource.res.linear.devPtr = texels.data;
  resource.res.linear.desc = cudaCreateChannelDesc<int>();
  resource.res.linear.sizeInBytes = sizeof values;
  cudaTextureDesc description = {};
  description.readMode = cudaReadModeElementType;
  cudaTextureObject_t texture;
  CHECK(cudaCreateTextureObject(&texture, &resource, &description, nullptr));
  textures<<<1, 1>>>(out, texture);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 10 * 2 + 3);
  return pass();
}
