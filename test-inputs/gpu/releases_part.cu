// One release's part of releases_main.cu: N is the release. Compiled without the toolkit's headers, which the older releases do not know.
#define GLUE2(a, b) a##b
#define GLUE(a, b) GLUE2(a, b)
template <class T> __global__ void shared(T *out) { *out += 1; }
__device__ int from_main(int);
__device__ int GLUE(from, N)(int a) { return a * N; }
__device__ int GLUE(variable, N);
__constant__ int GLUE(constant, N) = 10 * N;
static __global__ void only(int *out) { *out = from_main(GLUE(variable, N)) + GLUE(constant, N); }
int GLUE(run, N)(int *out) {
  int value = N;
  if (write_symbol(GLUE(variable, N), value)) return -1;
  only<<<1, 1>>>(out);
  shared<int><<<1, 1>>>(out + 1);
  if (cudaGetLastError() || cudaDeviceSynchronize()) return -2;
  value = 0;
  return read_symbol(value, GLUE(variable, N)) ? -3 : value;
}
