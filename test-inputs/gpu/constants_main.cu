#include "check.h"
int unit1(), unit2(), unit3(), unit4(), unit5();
__constant__ int user[100];
__global__ void kernel(int *out, int i) { *out = user[i]; }
int main() {
  int values[100];
  for (int i = 0; i < 100; i++) values[i] = 7 * i;
  CHECK(cudaMemcpyToSymbol(user, values, sizeof values));
  Array<int> out(1);
  kernel<<<1, 1>>>(out, 99);
  CHECK_LAUNCH();
  EXPECT(out.at(0), 7 * 99);
  EXPECT(unit1() + unit2() + unit3() + unit4() + unit5(), 5);
  return pass();
}
