// A unit compiled without -fgpu-rdc (whole_part.cu), which registers itself, beside device-linked ones.
#include "check.h"
int whole_part();
__global__ void own(int *out) { *out = 3; }
int main() {
  Array<int> out(1);
  own<<<1, 1>>>(out);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 3);
  EXPECT(whole_part(), 77);
  return pass();
}
