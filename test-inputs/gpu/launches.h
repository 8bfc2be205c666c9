// Kernels that device code of the other unit launches.
#pragma once
struct Item {
  char tag;
  double factor;
  int parts[3];
};
__global__ void there(int *out, Item item, short first);
__global__ void here(int *out, Item item, short first);
__global__ void there_launches_here(int *out);
template <class T> __global__ void there_of(T *out, T value);
