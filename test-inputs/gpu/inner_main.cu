// A program with device code of its own around another one (pieces_main.cu as run_pieces) that was linked by itself, into a shared object or
// with -r.
#include "check.h"
int run_pieces();
static __device__ int main_cell = 7; // the inner program has one of this name
__global__ void own(int *out) { *out = main_cell++; }
int main() {
  Array<int> out(1);
  own<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 7);
  EXPECT(run_pieces(), 0);
  own<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 8);
  return pass();
}
