// One unit of early_main.cu, by either compiler: number UNIT, with a managed variable where MANAGED is defined.
#include "early.h"

#define JOIN2(a, b) a##b
#define JOIN(a, b) JOIN2(a, b)
#define cell JOIN(early_cell, UNIT)
__device__ int cell = 1;

namespace {
#ifdef MANAGED
__managed__ int managed = 7;
#endif

__global__ void step(int *out) {
  cell += 10;
  atomicAdd(&early_total, 1);
#ifdef MANAGED
  managed += 1;
#endif
  *out = cell;
}

int use(int *seen) {
  int *out, value = -1;
  if (cudaMalloc(&out, sizeof *out)) return 1;
#ifdef MANAGED
  int before = managed;
#endif
  step<<<1, 1>>>(out);
  if (cudaGetLastError()) return 2;
  if (cudaMemcpy(&value, out, sizeof value, cudaMemcpyDeviceToHost)) return 3;
  if (cudaMemcpyFromSymbol(seen, cell, sizeof *seen)) return 4;
  cudaFree(out);
#ifdef MANAGED
  if (managed != before + 1) return 5;
#endif
  return value == *seen ? 0 : 6;
}

int first() {
  const int value = 100 * UNIT;
  Early &mine = early[UNIT];
  mine.turn = ++early_turns;
  mine.again = use;
  mine.error = cudaMemcpyToSymbol(cell, &value, sizeof value) ? 7 : use(&mine.seen);
  cudaGetLastError();
  return 0;
}

const int at_start = first();
} // namespace
