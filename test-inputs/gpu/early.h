// What early_main.cu and its units share. A unit uses the device in the constructor of a static variable and says how that went.
#pragma once
#include <cuda_runtime.h>

struct Early {
  int turn;                // its place among the units, from 1
  int error;               // 0, or the step that failed
  int seen;                // the unit's variable, as host code read it then
  int (*again)(int *seen); // the same once more; returns the step that failed
};
const int EARLY_UNITS = 6;
extern Early early[EARLY_UNITS];
extern int early_turns;
extern __device__ int early_total; // how many kernels have run
