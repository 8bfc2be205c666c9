__device__ int offset = 1000;
__device__ int only_device(int x) { return 3 * x + offset; }
