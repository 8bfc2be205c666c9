// Part of the fake toolkit: its version, where a real one has it.
#define CUDA_VERSION 13000
