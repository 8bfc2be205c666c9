#!/usr/bin/env bash
# Compares links by warplink with links by LLVM's clang-linker-wrapper, pair by pair, in one run:
# wall time, CPU time of all processes, memory; and a link without device code with the bare linker.
# Usage: tools/bench.sh [--rounds N] [--only WORD]   (see tools/bench.py)
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
settings=$("$root/tools/setup.sh" --env)
eval "$settings"
export CUDA_PATH LLVM WARPLINK_BIN_DIR
exec python3 "$root/tools/bench.py" "$@"
