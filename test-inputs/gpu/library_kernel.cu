__device__ int only_device(int x);
__global__ void library_kernel(int *out, int x) { *out = only_device(x) + 1; }
