// One of several units (-DUNIT=n) with tables of constants: one that is the same in all of them, one that
// is not (-DDIFFERENT makes them too much for the 64 KB bank).
#include "check.h"
#define JOIN_(a, b) a##b
#define JOIN(a, b) JOIN_(a, b)
template <int Start, int Size> struct Values {
  int at[Size];
  constexpr Values() : at() {
    for (int i = 0; i < Size; i++) at[i] = Start * 1000003 + i * i;
  }
};
static const __device__ Values<1, 6000> same;
#ifdef DIFFERENT
static const __device__ Values<UNIT, 5000> own;
#else
static const __device__ Values<UNIT, 100> own;
#endif
static __global__ void kernel(int *out, int i) {
  out[0] = same.at[i];
  out[1] = own.at[i];
}
__global__ void JOIN(named, UNIT)(int *out, int i) { *out = same.at[i + 1]; }
int JOIN(unit, UNIT)() {
  Array<int> out(3);
  for (int i : {0, 57, 99}) {
    kernel<<<1, 1>>>(out, i);
    JOIN(named, UNIT)<<<1, 1>>>(out + 2, i);
    CHECK_LAUNCH();
    EXPECT(out.at(0), 1000003 + i * i);
    EXPECT(out.at(1), UNIT * 1000003 + i * i);
    EXPECT(out.at(2), 1000003 + (i + 1) * (i + 1));
  }
  return 1;
}
