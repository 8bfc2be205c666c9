#include "check.h"
int part1(), part2();
__global__ void own(int *out) { *out = 3; }
int main() {
  EXPECT(part1(), 1001);
  EXPECT(part2(), 2002);
  Array<int> out(1);
  own<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 3);
  return pass();
}
