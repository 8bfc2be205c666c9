#!/usr/bin/env bash
# From nothing to a running program: sets the machine up, builds warplink, compiles the heat solver in
# test-inputs/demo for two GPU architectures, links it with warplink, shows what is in it and runs it.
# Without a GPU it runs under the recording runtime, which logs what the CUDA runtime would be asked.
#
# Everything that is made goes to target/demo/. Usage: tools/demo.sh
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

heading() { printf '\n== %s\n' "$*"; }
# Shows a command as one could type it, with the folders under their variables' names, and runs it.
show() {
  local text="$*"
  text=${text//"$WARPLINK_BIN_DIR"/\$WARPLINK_BIN_DIR}
  text=${text//"$CUDA_PATH"/\$CUDA_PATH}
  printf '$ %s\n' "${text//"$sources"\//}"
  "$@"
}

heading "setup (tools/setup.sh)"
settings=$("$root/tools/setup.sh" --env)
eval "$settings"
PATH=$LLVM:$PATH
sources=$root/test-inputs/demo
out=${CARGO_TARGET_DIR:-$root/target}/demo
rm -rf "$out"
mkdir -p "$out/reduce"
cd "$out"

heading "compile: 4 units and a library of 4, for sm_80 and sm_90, PTX wanted for sm_90 only"
echo "test-inputs/demo solves a heat equation by conjugate gradients. Its units call each other's device functions and"
echo "share device variables and constants; a template kernel is in two units, one kernel is static, one is hidden."
export WARPLINK_PTX=sm_90
echo "\$ export WARPLINK_PTX=sm_90      # recorded in the objects by the bin dir's llvm-offload-binary"
compile=(clang++ "-B$WARPLINK_BIN_DIR" "--cuda-path=$CUDA_PATH" --offload-arch=sm_80,sm_90
  -fgpu-rdc -foffload-lto -O2 -Wno-unknown-cuda-version -c)
started=$SECONDS
for unit in main operator solver source; do
  show "${compile[@]}" "$sources/$unit.cu"
done
for unit in block dot max_abs mean; do
  "${compile[@]}" "$sources/reduce/$unit.cu" -o "reduce/$unit.o"
done
echo "  ... and reduce/{block,dot,max_abs,mean}.cu in the same way ($((SECONDS - started)) s in all)"
show llvm-ar rcs libreduce.a reduce/block.o reduce/dot.o reduce/max_abs.o reduce/mean.o
unset WARPLINK_PTX

heading "link: device LTO, ptxas, fat binary, registration and the host's own linker, by warplink"
link=(clang++ "-B$WARPLINK_BIN_DIR" "--cuda-path=$CUDA_PATH" --offload-link)
objects=(main.o operator.o solver.o source.o -L. -lreduce)
TIMEFORMAT='  linked in %R s (user %U s, system %S s)'
runtime=("-L$CUDA_PATH/lib" -lcudart_static -ldl -lpthread -lrt)
time show "${link[@]}" "${objects[@]}" "${runtime[@]}" -o heat

warplink=$(dirname "$(readlink -f "$WARPLINK_BIN_DIR/clang-linker-wrapper")")/warplink
heading "what is in it: one cubin per architecture, PTX for later GPUs"
echo '$ warplink inspect heat'
"$warplink" inspect heat
echo
echo "the same, as NVIDIA's own cuobjdump sees it:"
"$CUDA_PATH/bin/cuobjdump" -lelf -lptx heat | sed 's/^/  /'

heading "for comparison: the same objects, linked by the clang-linker-wrapper of LLVM itself"
time clang++ "--cuda-path=$CUDA_PATH" --offload-link "-Wl,--device-compiler=--cuda-path=$CUDA_PATH" \
  "-Wl,--device-linker=--cuda-path=$CUDA_PATH" "${objects[@]}" "${runtime[@]}" -o heat-llvm || echo '  it fails'
[ ! -e heat-llvm ] || "$warplink" inspect heat-llvm | sed -n 's/^.* \(MISSING in .*\)/  \1/p'

heading "run"
if [ -e /dev/nvidia0 ] || command -v nvidia-smi >/dev/null; then
  show ./heat | tee result
  echo 'and once more from the PTX, compiled by the driver:'
  CUDA_FORCE_PTX_JIT=1 CUDA_CACHE_DISABLE=1 ./heat | tee -a result
  [ "$(grep -cx PASS result)" = 2 ]
else
  echo "This machine has no NVIDIA GPU, so the solver cannot compute here. The same objects are linked with"
  echo "the recording runtime in libcudart's place, which logs each call and checks it as the driver would:"
  echo "which image an sm_90 device takes, and that every kernel and variable is found in it."
  clang -O1 -fPIC "-I$CUDA_PATH/include" -c "$root/test-inputs/runtime/cudart_record.c" -o cudart_record.o
  "${link[@]}" "${objects[@]}" cudart_record.o -o heat-recorded
  echo '$ WARPLINK_RECORD=calls.log ./heat-recorded --no-check'
  rm -f calls.log
  WARPLINK_RECORD=calls.log ./heat-recorded --no-check
  # Launches that differ in nothing are shown once, with their number.
  grep -E 'register|image|launch|symbol' calls.log | sed 's/__intern__[0-9a-f]*//' | "$LLVM/llvm-cxxfilt" |
    awk '{ sub("void ", "") } !n[$0]++ { line[++lines] = $0 }
         END { for (i = 1; i <= lines; i++) print "  " line[i] (n[line[i]] > 1 ? " (" n[line[i]] " times)" : "") }'
  if grep -qE ' error|-> [1-9]' calls.log; then
    echo "FAIL: the log holds errors" >&2
    exit 1
  fi
  kernels=$(sed -n 's/.* launch \([^ ]*\) .*/\1/p' calls.log | sort -u | wc -l)
  for gpu in sm_86 sm_120 sm_75; do
    rm -f other.log
    WARPLINK_RECORD=other.log WARPLINK_RECORD_DEVICE=$gpu ./heat-recorded --no-check >/dev/null || true
    printf '  on an %s device: %s\n' "$gpu" "$(sed -n 's/.* launch .* image=\(.*\) -> 0$/\1/p' other.log | sort -u | paste -sd ' ' |
      sed 's/^elf \(.*\)/the cubin for \1 runs/; s/^ptx \(.*\)/the driver compiles the PTX for \1/
        s/^$/no image fits: the program ends with error 209 at its first call, as it should/')"
  done
  echo "PASS (recorded): $kernels kernels launched, all found in the image for sm_90; result not computed, no GPU here"
fi
