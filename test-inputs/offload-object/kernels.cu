// One of everything that clang writes an offload entry for.
__constant__ int constants[4];
__device__ float variable;
template <class T> __global__ void generic(T *out) { *out = constants[0] + variable; }
__global__ void plain(int *out) { *out = constants[1]; }
static __global__ void internal(int *out) { *out = constants[2]; }
void launch(int *out) {
  plain<<<1, 1>>>(out);
  internal<<<1, 1>>>(out);
  generic<<<1, 1>>>(out);
  constants[0] = 0;
  variable = 0;
}
