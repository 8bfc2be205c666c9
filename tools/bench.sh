#!/usr/bin/env bash
# Compares links by warplink with links by LLVM's clang-linker-wrapper, pair by pair, in one run:
# wall time, CPU time of all processes, memory; and a link without device code with the bare linker.
# Usage: tools/bench.sh [--rounds N] [--only WORD]   (see tools/bench.py)
#        tools/bench.sh --mixed   what a link of clang's LTO objects alone pays for warplink's knowing all other
#                                 kinds, counted by valgrind (see tools/bench_mixed.py)
#        tools/bench.sh --mixed --against FOLDER [--rounds N]   CPU time of such links by this build and by another
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
script=bench.py
if [ "${1-}" = --mixed ]; then
  shift
  script=bench_mixed.py
fi
settings=$("$root/tools/setup.sh" --env)
eval "$settings"
export CUDA_PATH LLVM WARPLINK_BIN_DIR
# Links are compared, not the memory of them.
export WARPLINK_NO_CACHE=1
exec python3 "$root/tools/$script" "$@"
