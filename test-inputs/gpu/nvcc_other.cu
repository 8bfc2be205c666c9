__device__ int cell = 1;
__device__ int other(int x) { return 10 * x; }
