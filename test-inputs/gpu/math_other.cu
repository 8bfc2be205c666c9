__device__ double from_other_unit(double x) { return tgamma(x); }
