#!/usr/bin/env python3
"""Writes a CUDA program of N translation units with M kernels each, the same for the same seed.

    generate.py N M DIRECTORY [--seed S] [--change UNIT]

Each unit has device functions of its own that its kernels call, one that kernels of the next unit call
(so that every unit needs another one), a device variable that all read, and shares templates from a
header. A kernel does the work of some dozen to some hundred instructions, loops and calls included.
`--change UNIT` alters one constant in one device function of that unit and nothing else. main.cu
launches one kernel of each unit and prints a checksum."""
import argparse
import pathlib
import random

HEADER = """#pragma once
// Written by generate.py.
template <int N> __device__ inline float smooth(const float *p, int n) {
  float sum = 0;
  for (int i = 0; i < N; ++i)
    sum += p[i % n] * (i + 1);
  return sum / N;
}
struct Shape {
  float a, b;
  __device__ float area(float x) const { return a * x * x + b * x + sqrtf(fabsf(x)); }
};
extern __device__ float scale;
"""


def function(rng, unit, index, constant):
    terms = " + ".join(f"v * {rng.uniform(0.1, 2):.4f}f" for _ in range(rng.randint(2, 6)))
    return f"""static __device__ float local{index}(float v, int n) {{
  float r = {constant:.4f}f;
  for (int i = 0; i < n; ++i) {{
    r = r * {rng.uniform(0.5, 1.5):.4f}f + {terms};
    if (r > 1e6f) r = {rng.choice(['sinf(r)', 'r * 1e-6f', 'sqrtf(r)', 'expf(-fabsf(r))'])};
  }}
  return r;
}}
"""


def unit_text(seed, unit, units, kernels, changed):
    rng = random.Random(f"{seed}/{unit}")
    locals_ = max(2, kernels // 4)
    parts = ['#include "shared.h"\n']
    following = (unit + 1) % units
    parts.append(f"__device__ float exported{following}(float v);\n" if units > 1 else "")
    for index in range(locals_):
        constant = rng.uniform(0, 1)
        if changed and index == 0:
            constant += 1
        parts.append(function(rng, unit, index, constant))
    parts.append(f"__device__ float exported{unit}(float v) {{ return local0(v, 3) * scale + {unit}.f; }}\n")
    parts.append(f"__device__ float table{unit}[64];\n")
    for index in range(kernels):
        body = []
        for _ in range(rng.randint(1, 4)):
            kind = rng.randrange(4)
            if kind == 0:
                body.append(f"v += local{rng.randrange(locals_)}(v, n & {rng.choice([3, 7, 15])});")
            elif kind == 1:
                body.append(f"v += smooth<{rng.randint(2, 9)}>(in, n);")
            elif kind == 2:
                body.append(f"v = Shape{{{rng.uniform(0, 1):.3f}f, {rng.uniform(0, 1):.3f}f}}.area(v);")
            else:
                body.append(f"v += table{unit}[(i + {index}) & 63];")
        if units > 1 and rng.randrange(3) == 0:
            body.append(f"v += exported{following}(v);")
        lines = "\n    ".join(body)
        parts.append(f"""__global__ void k{unit}_{index}(float *out, const float *in, int n) {{
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {{
    float v = in[i];
    {lines}
    out[i] = v;
  }}
}}
""")
    parts.append(f"void run{unit}(float *out, const float *in, int n) {{ k{unit}_0<<<1, 32>>>(out, in, n); }}\n")
    return "".join(parts)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("units", type=int)
    parser.add_argument("kernels", type=int)
    parser.add_argument("directory", type=pathlib.Path)
    parser.add_argument("--seed", default="1")
    parser.add_argument("--change", type=int, help="the unit to change")
    options = parser.parse_args()
    options.directory.mkdir(parents=True, exist_ok=True)

    def write(name, text):
        path = options.directory / name
        # What is the same keeps its time, so that build systems leave it alone.
        if not path.exists() or path.read_text() != text:
            path.write_text(text)

    write("shared.h", HEADER)
    for unit in range(options.units):
        write(f"u{unit}.cu", unit_text(options.seed, unit, options.units, options.kernels, unit == options.change))
    declarations = "".join(f"void run{u}(float *, const float *, int);\n" for u in range(options.units))
    calls = "".join(f"  run{u}(out, in, n);\n" for u in range(options.units))
    write("main.cu", f"""#include "shared.h"
#include <cstdio>
__device__ float scale = 2;
{declarations}
int main() {{
  const int n = 256;
  float *in, *out, host[n];
  for (int i = 0; i < n; ++i) host[i] = i * 0.25f;
  cudaMalloc(&in, sizeof host);
  cudaMalloc(&out, sizeof host);
  cudaMemcpy(in, host, sizeof host, cudaMemcpyHostToDevice);
{calls}  if (cudaMemcpy(host, out, sizeof host, cudaMemcpyDeviceToHost) != cudaSuccess) {{
    std::puts(cudaGetErrorString(cudaGetLastError()));
    return 1;
  }}
  double sum = 0;
  for (float v : host) sum += v;
  std::printf("%.6g\\n", sum);
}}
""")


if __name__ == "__main__":
    main()
