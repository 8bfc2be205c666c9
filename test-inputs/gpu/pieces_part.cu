// One part of pieces_main.cu: calls back into it, and uses variables of its own and of it.
#include "pieces.h"
#define CELL PIECES_JOIN(cell, PART)
#define TABLE PIECES_JOIN(table, PART)
__device__ int CELL = 10 * PART;
__constant__ int TABLE[2] = {PART, -PART};
static __device__ int own(int x) { return x * PART; } // one name in all parts
__device__ int PIECES_JOIN(part, PART)(int x) {
  CELL += 1;
  atomicAdd(&main_cell, 1);
  return own(back(x)) + CELL + TABLE[0] + main_table[1];
}
#ifdef HOST
__global__ void PIECES_JOIN(kernel, PART)(int *out) { *out = PIECES_JOIN(part, PART)(5); }
// The part's cell as the host sees it, after a kernel of the part has run.
int PIECES_JOIN(run, PART)(int *out) {
  int value;
  PIECES_JOIN(kernel, PART)<<<1, 1>>>(out);
  if (cudaGetLastError() || cudaDeviceSynchronize()) return -1;
  return cudaMemcpyFromSymbol(&value, CELL, sizeof value) ? -2 : value;
}
#endif
