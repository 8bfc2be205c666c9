__device__ int counter;
__device__ float initialised[4] = {0.5f, 10.5f, 20.5f, 30.5f};
__constant__ float weights[8];
extern __device__ int *const pointer_to_counter;
__device__ int *const pointer_to_counter = &counter;
__device__ __attribute__((noinline)) int square(int x) { return x * x; }
