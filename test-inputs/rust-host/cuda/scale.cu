// The device function that vector.cu calls, in an object of its own.
__device__ float scale(float value, float factor) { return value * factor; }
