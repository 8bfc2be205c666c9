#!/bin/sh
# Writes config.ninja. From the environment: WARPLINK (warplink), CUDA_PATH (/usr/local/cuda), CUDAFLAGS, CUDART.
set -eu
cuda=${CUDA_PATH:-/usr/local/cuda}
cat >config.ninja <<END
bin_dir = $("${WARPLINK:-warplink}" bin-dir)
cuda = $cuda
cudaflags = ${CUDAFLAGS:-}
cudart = ${CUDART:--L$cuda/lib64 -lcudart_static -ldl -lpthread -lrt}
src = ${SRC:-../src}
END
