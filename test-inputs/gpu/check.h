// What every GPU test program uses: checked calls, and a verdict as the last line of output.
#pragma once
#include <cstdio>
#include <cstdlib>

inline void check_call(cudaError_t error, const char *what, int line) {
  if (error == cudaSuccess)
    return;
  std::printf("line %d: %s: %s\nFAIL\n", line, what, cudaGetErrorName(error));
  std::exit(1);
}
#define CHECK(call) check_call(call, #call, __LINE__)
// After a launch: the launch itself and the kernel's run.
#define CHECK_LAUNCH() (CHECK(cudaGetLastError()), CHECK(cudaDeviceSynchronize()))

#define EXPECT(got, wanted)                                                                                    \
  do {                                                                                                         \
    auto got_ = (got);                                                                                         \
    decltype(got_) wanted_ = (wanted);                                                                         \
    if (!(got_ == wanted_)) {                                                                                  \
      std::printf("line %d: %s is %g, not %g\nFAIL\n", __LINE__, #got, (double)got_, (double)wanted_);         \
      std::exit(1);                                                                                            \
    }                                                                                                          \
  } while (0)

// An array in device memory, zero at first.
template <class T> struct Array {
  T *data;
  int count;
  explicit Array(int count) : count(count) {
    CHECK(cudaMalloc(&data, count * sizeof(T)));
    CHECK(cudaMemset(data, 0, count * sizeof(T)));
  }
  ~Array() { cudaFree(data); }
  operator T *() const { return data; }
  T at(int i) const {
    T value;
    CHECK(cudaMemcpy(&value, data + i, sizeof(T), cudaMemcpyDeviceToHost));
    return value;
  }
  void fill(const T *from) { CHECK(cudaMemcpy(data, from, count * sizeof(T), cudaMemcpyHostToDevice)); }
};

inline int pass() {
  std::puts("PASS");
  return 0;
}
