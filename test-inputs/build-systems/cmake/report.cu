#include <cstdio>

__global__ void say_hello() { printf("hello from the device\n"); }

void report(int sum) {
  say_hello<<<1, 1>>>();
  cudaError_t error = cudaDeviceSynchronize();
  printf("sum = %d, %s\n", sum, error == cudaSuccess ? "all is well" : cudaGetErrorString(error));
}
