__global__ void add(int *out, int value) { atomicAdd(out, value); }
