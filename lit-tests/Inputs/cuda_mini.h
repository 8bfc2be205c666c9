// The few declarations that CUDA tests need, in place of the toolkit's headers (which cost a second
// per compilation, and would make every test need the toolkit). Declarations only: the functions are
// those of libcudart or of the recording runtime.
#pragma once

#define __host__ __attribute__((host))
#define __device__ __attribute__((device))
#define __global__ __attribute__((global))
#define __shared__ __attribute__((shared))
#define __constant__ __attribute__((constant))
#define __launch_bounds__(...) __attribute__((launch_bounds(__VA_ARGS__)))

typedef __SIZE_TYPE__ size_t;
struct dim3 {
  unsigned x, y, z;
  __host__ __device__ dim3(unsigned x, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};
typedef struct CUstream_st *cudaStream_t;
typedef int cudaError_t;

extern "C" {
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared = 0, cudaStream_t stream = 0);
cudaError_t cudaLaunchKernel(const void *stub, dim3 grid, dim3 block, void **args, size_t shared, cudaStream_t stream);
cudaError_t cudaMalloc(void **pointer, size_t size);
cudaError_t cudaFree(void *pointer);
cudaError_t cudaMemcpy(void *to, const void *from, size_t size, int kind);
cudaError_t cudaMemcpyToSymbol(const void *symbol, const void *from, size_t size, size_t offset, int kind);
cudaError_t cudaMemcpyFromSymbol(void *to, const void *symbol, size_t size, size_t offset, int kind);
cudaError_t cudaDeviceSynchronize();
cudaError_t cudaGetLastError();
int printf(const char *format, ...);
}

template <class T> cudaError_t write_symbol(T &symbol, const T &value) {
  return cudaMemcpyToSymbol(&symbol, &value, sizeof(T), 0, 1);
}
template <class T> cudaError_t read_symbol(T &value, T &symbol) {
  return cudaMemcpyFromSymbol(&value, &symbol, sizeof(T), 0, 2);
}
