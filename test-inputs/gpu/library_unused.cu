extern __device__ int defined_nowhere(int);
__global__ void unused(int *out) { *out = defined_nowhere(*out); }
void unused_host() { unused<<<1, 1>>>(0); }
