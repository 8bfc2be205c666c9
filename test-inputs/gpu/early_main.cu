// Device code in constructors of static variables, in units of clang and of nvcc: each finds its kernels and variables there, and what it
// leaves in them stays. UNITS is how many units there are, TOO_EARLY a mask of those for which it is too early.
#include "check.h"
#include "early.h"

Early early[EARLY_UNITS];
int early_turns;
__device__ int early_total;
#ifndef TOO_EARLY
#define TOO_EARLY 0
#endif

int main() {
  EXPECT(early_turns, UNITS);
  int total = 0, ran = 0, cell = -1;
  for (int unit = 0; unit < UNITS; unit++) {
    const bool too_early = TOO_EARLY >> unit & 1;
    std::printf("unit %d: turn %d, step %d, cell %d\n", unit, early[unit].turn, early[unit].error, early[unit].seen);
    EXPECT(early[unit].error != 0, too_early);
    if (too_early) continue;
    EXPECT(early[unit].seen, 100 * unit + 10);
    ran++;
  }
  CHECK(cudaMemcpyFromSymbol(&total, early_total, sizeof total));
  EXPECT(total, ran);
  for (int unit = 0; unit < UNITS; unit++) {
    EXPECT(early[unit].again(&cell), 0);
    EXPECT(cell, TOO_EARLY >> unit & 1 ? 11 : 100 * unit + 20);
  }
  CHECK(cudaMemcpyFromSymbol(&total, early_total, sizeof total));
  EXPECT(total, ran + UNITS);
  return pass();
}
