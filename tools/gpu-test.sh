#!/usr/bin/env bash
# Builds the GPU test programs of test-inputs/gpu with warplink into one folder, with a runner for a
# machine that has a GPU but no compiler. Each program checks its own result and prints PASS or FAIL.
#
#   tools/gpu-test.sh [FOLDER]     default folder: target/gpu-test
#   FOLDER/run.sh [NAME...]        there: runs all programs (or those named), each from its cubin and,
#                                  where it holds PTX, once more compiled by the driver
#
# Before it ends it asks `warplink inspect --gpu` which programs an H100 or H200 (sm_90) can run: those
# that are built for sm_80 only must be recognised without a GPU. On a machine with a GPU it runs the runner.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
settings=$("$root/tools/setup.sh" --env)
eval "$settings"
export PATH="$LLVM:$PATH"
export WARPLINK_NO_CACHE=1
sources=$root/test-inputs/gpu
target=${CARGO_TARGET_DIR:-$root/target}
out=${1:-$target/gpu-test}
objects=$target/gpu-test-objects
rm -rf "$out" "$objects"
mkdir -p "$out" "$objects"
out=$(cd "$out" && pwd)
warplink=$(dirname "$(readlink -f "$WARPLINK_BIN_DIR/clang-linker-wrapper")")/warplink

clang=(clang++ "-B$WARPLINK_BIN_DIR" "--cuda-path=$CUDA_PATH" -Wno-unknown-cuda-version)
runtime=("-L$CUDA_PATH/lib" "-L$CUDA_PATH/lib64" -lcudart_static -ldl -lpthread -lrt)

# What a program is built with; `NAME=value program ...` changes it for one.
ARCHS=sm_90           # --offload-arch
PTX=all               # --warplink-ptx
COMPILE='-O2'         # options of each compilation
LINK=''               # options of the link
JIT=yes               # is the program run from PTX as well
RDC='-fgpu-rdc -foffload-lto'

split() { read -r -a words <<<"$*"; }

# compile DIRECTORY SOURCE[:OPTION...] -> DIRECTORY/NAME.o
compile() {
  local directory=$1 spec=$2 source=${2%%:*} extra=() words
  [ "$source" = "$spec" ] || IFS=: read -r -a extra <<<"${spec#*:}"
  split "$COMPILE $RDC"
  "${clang[@]}" -c -isystem "$CUDA_PATH/include/cccl" "${words[@]}" "--offload-arch=$ARCHS" "${extra[@]}" "$sources/$source.cu" \
    -o "$directory/$(tr -c 'A-Za-z0-9_\n' _ <<<"$spec").o"
}

# nvcc DIRECTORY SOURCE[:OPTION...] -> DIRECTORY/NAME.nvcc.o, relocatable; options replace -arch
nvcc() {
  local directory=$1 spec=$2 source=${2%%:*} extra=()
  [ "$source" = "$spec" ] || IFS=: read -r -a extra <<<"${spec#*:}"
  [ ${#extra[@]} != 0 ] || extra=("-arch=$ARCHS")
  "$CUDA_PATH/bin/nvcc" -O2 -rdc=true -c "${extra[@]}" "$sources/$source.cu" \
    -o "$directory/$(tr -c 'A-Za-z0-9_\n' _ <<<"$spec").nvcc.o"
}

link() { # link OUTPUT INPUT...
  local output=$1 words
  shift
  split "$LINK"
  "${clang[@]}" --offload-link -Wl,-s "-Wl,--warplink-ptx=$PTX" "$@" "${words[@]}" "${runtime[@]}" -o "$output"
}

build() { # build NAME SOURCE...: one program from its sources
  local name=$1 directory=$objects/$1 source
  shift
  mkdir -p "$directory"
  for source in "$@"; do compile "$directory" "$source"; done
  link "$out/$name" "$directory"/*.o
}

# Programs are built side by side; the list keeps the order of the calls.
jobs=$(nproc)
names=()
start() { # start COMMAND NAME ARGUMENTS...
  local name=$2 jit=$JIT
  [ "$PTX" != none ] || jit=no
  names+=("$name")
  echo "$name $jit" >>"$out/programs.txt"
  while [ "$(jobs -rp | wc -l)" -ge "$jobs" ]; do wait -n || true; done
  (
    set -euo pipefail
    if "$@" >"$objects/$name.log" 2>&1; then echo ok >"$objects/$name.status"; fi
  ) &
}
program() { start build "$@"; }

cross=(cross_main cross_code cross_data)
constants=(constants_main)
for unit in 1 2 3 4 5; do constants+=("constants_unit:-DUNIT=$unit"); done
many_constants=(constants_main)
for unit in 1 2 3 4 5; do many_constants+=("constants_unit:-DUNIT=$unit:-DDIFFERENT"); done

echo "gpu-test: building into ${out#"$root"/}"
program cross-unit "${cross[@]}"
COMPILE=-O0 program cross-unit-O0 "${cross[@]}"
COMPILE='-O0 -g' LINK=-g program cross-unit-O0-g "${cross[@]}"
COMPILE='-O2 -gline-tables-only' program cross-unit-lines "${cross[@]}"
COMPILE='-O3 -ffast-math' LINK='-Wl,--device-compiler=-O3' program cross-unit-O3 "${cross[@]}"
LINK='-Wl,--warplink-ptxas-mode=relocatable' program cross-unit-relocatable "${cross[@]}"
LINK='-Wl,--warplink-ptxas-mode=whole' program cross-unit-whole "${cross[@]}"
LINK='-Wl,--warplink-ptxas=--maxrregcount=32' program cross-unit-registers "${cross[@]}"
COMPILE='-O2 -flto' LINK='-flto -fuse-ld=lld' program cross-unit-host-lto "${cross[@]}"
ARCHS=sm_80 JIT=no program cross-unit-ptx-of-sm80 "${cross[@]}"
ARCHS=sm_90a PTX=none program cross-unit-sm90a "${cross[@]}"
for mode in none lz4 zstd size; do
  LINK="-Wl,--warplink-compress=$mode" program "compressed-$mode" "${cross[@]}"
done
program hidden hidden_main hidden_other
COMPILE='-O2 -fvisibility=hidden' program hidden-all hidden_main hidden_other
program indirect indirect_main indirect_code
LINK='-Wl,--warplink-ptxas-mode=whole' program indirect-whole indirect_main indirect_code
COMPILE='-O0' program indirect-O0 indirect_main indirect_code
program recursion recursion_main recursion_other
program printf printf_main
program statics statics_main statics_other
program constants "${constants[@]}"
program constants-beyond-64K "${many_constants[@]}"
program reduce reduce_main reduce_warp
program atomics atomics_main
program launch-bounds bounds_main
program math math_main math_other
program heap heap_main
program many-kernels many_main
COMPILE="-O2 -w" program thrust thrust_main
ARCHS=sm_80,sm_86,sm_90,sm_100 PTX=none program image-choice image_main
ARCHS=sm_75,sm_80 JIT=no program image-from-ptx image_main:-DEXPECTED_ARCH=80
PTX=none ARCHS=sm_80 program wrong-image wrong_image_main
PTX=none ARCHS=sm_80 program guard guard_main
PTX=sm_80 ARCHS=sm_80 JIT=no program guard-jit guard_main:-DJIT
JIT=no program guard-rate guard_rate_main

recorded() { # the PTX choice is recorded at compile time and nothing is said at link time
  local name=$1 directory=$objects/$1 source
  mkdir -p "$directory"
  export WARPLINK_PTX=sm_90
  for source in "${cross[@]}"; do compile "$directory" "$source"; done
  unset WARPLINK_PTX
  "${clang[@]}" --offload-link -Wl,-s "$directory"/*.o "${runtime[@]}" -o "$out/$name"
}
ARCHS=sm_80,sm_90 start recorded ptx-recorded

library() {
  local name=$1 directory=$objects/$1 source
  mkdir -p "$directory"
  for source in library_main library_kernel library_device library_host library_unused; do
    compile "$directory" "$source"
  done
  (cd "$directory" && llvm-ar rcs "$2" library_unused.o library_device.o library_host.o library_kernel.o)
  link "$out/$name" "$directory/library_main.o" "$directory/$2"
}
start library library libkernels.a
library_thin() {
  local name=$1 directory=$objects/$1 source
  mkdir -p "$directory"
  for source in library_main library_kernel library_device library_host; do compile "$directory" "$source"; done
  (cd "$directory" && llvm-ar rcsT libkernels.a library_device.o library_host.o library_kernel.o)
  link "$out/$name" -fuse-ld=lld -Wl,--gc-sections "$directory/library_main.o" "-L$directory" -lkernels
}
start library_thin library-thin

shared() {
  local name=$1 directory=$objects/$1 unit
  mkdir -p "$directory"
  COMPILE="$COMPILE -fPIC"
  compile "$directory" shared_main
  for unit in 1 2 3; do
    compile "$directory" "shared_lib:-DUNIT=$unit"
    link "$out/libshared$unit.so" -shared "-Wl,-soname,libshared$unit.so" "$directory/shared_lib__DUNIT_$unit.o"
  done
  link "$out/$name" "$directory/shared_main.o" "$out/libshared1.so" "$out/libshared2.so" '-Wl,-rpath,$ORIGIN'
}
start shared shared-objects

relocatable() {
  local name=$1 directory=$objects/$1 unit words
  mkdir -p "$directory"
  compile "$directory" relocatable_main
  for unit in 1 2; do
    compile "$directory" "relocatable_part:-DUNIT=$unit"
    "${clang[@]}" --offload-link -r -nostdlib "-Wl,--warplink-ptx=$PTX" \
      "$directory/relocatable_part__DUNIT_$unit.o" -o "$directory/part$unit.o"
  done
  link "$out/$name" -Wl,--gc-sections "$directory/relocatable_main.o" "$directory/part1.o" "$directory/part2.o"
}
start relocatable relocatable

whole() {
  local name=$1 directory=$objects/$1
  mkdir -p "$directory"
  compile "$directory" whole_main
  RDC='' compile "$directory" whole_part
  link "$out/$name" "$directory"/*.o
}
JIT=no start whole beside-whole-program-objects

releases() {
  local name=$1 directory=$objects/$1 release compiler
  mkdir -p "$directory"
  compile "$directory" releases_main
  for release in 16 19 22; do
    compiler=clang++-$release
    [ $release != 22 ] || compiler=clang++
    "$compiler" -c -O2 -fgpu-rdc -foffload-lto --offload-new-driver -nocudainc -nocudalib --cuda-feature=+ptx78 \
      -Xclang -target-sdk-version=11.8 -include "$root/lit-tests/Inputs/cuda_mini.h" "--offload-arch=$ARCHS" -DN=$release \
      "$sources/releases_part.cu" -o "$directory/$release.o"
  done
  link "$out/$name" "$directory"/*.o
}
if command -v clang++-16 >/dev/null && command -v clang++-19 >/dev/null; then
  start releases releases-16-19-22
else
  echo "gpu-test: releases-16-19-22 is left out: clang++-16 or clang++-19 not found (tools/setup.sh --tests installs them)"
fi

containers() { # objects with the containers of later releases
  local name=$1 directory=$objects/$1
  mkdir -p "$directory"
  compile "$directory" cross_main
  WARPLINK_CONTAINER=2 compile "$directory" cross_code
  WARPLINK_CONTAINER=3-compressed compile "$directory" cross_data
  link "$out/$name" "$directory"/*.o
}
ARCHS=sm_80,sm_90 start containers containers

rust_host() {
  local name=$1 directory=$objects/$1
  cp -r "$root/test-inputs/rust-host" "$directory"
  (cd "$directory" && env CLANG=clang++ "CLANGFLAGS=--cuda-path=$CUDA_PATH --offload-arch=$ARCHS" "WARPLINK=$warplink" "WARPLINK_PTX=$PTX" \
    CARGO_TARGET_DIR=target cargo build --offline --locked --quiet --release)
  cp "$directory/target/release/rust-host" "$out/$name"
}
if command -v cargo >/dev/null; then start rust_host rust-host; fi
JIT=no program launch launch_main launch_other
RDC='-fgpu-rdc -fno-offload-lto --offload-new-driver' PTX=none program without-lto indirect_main indirect_code
RDC='-fgpu-rdc --no-offload-new-driver' PTX=none program old-driver indirect_main indirect_code
both_kinds() { # one unit is bitcode, the other a cubin
  local name=$1 directory=$objects/$1
  mkdir -p "$directory"
  compile "$directory" recursion_main
  RDC='-fgpu-rdc -fno-offload-lto --offload-new-driver' compile "$directory" recursion_other
  link "$out/$name" "$directory"/*.o
}
PTX=none start both_kinds lto-beside-cubins

mixed() { # mixed NAME [NVCC-OPTION...]: clang's and nvcc's objects
  local name=$1 directory=$objects/$1
  mkdir -p "$directory"
  compile "$directory" mixed_main
  shift
  nvcc "$directory" "mixed_nvcc$([ $# = 0 ] || printf ':%s' "$@")"
  link "$out/$name" "$directory"/*.o
}
PTX=none start mixed nvcc-mixed
PTX=none COMPILE='-O0' start mixed nvcc-mixed-O0
PTX=none LINK='-fuse-ld=lld -Wl,--gc-sections' start mixed nvcc-mixed-lld
PTX=none start mixed nvcc-mixed-ptx -gencode=arch=compute_80,code=compute_80
if [ -e "$CUDA_PATH/nvvm/lib64" ] || compgen -G "$CUDA_PATH/lib64/libnvvm.so*" >/dev/null; then
  PTX=none start mixed nvcc-mixed-dlto -gencode=arch=compute_90,code=lto_90
fi
mixed_library() { # nvcc's half in an archive; clang's host code needs it, and beside it one that only device code needs
  local name=$1 directory=$objects/$1
  mkdir -p "$directory"
  compile "$directory" mixed_main
  nvcc "$directory" mixed_nvcc
  llvm-ar rcs "$directory/libmixed.a" "$directory"/*.nvcc.o
  link "$out/$name" "$directory/mixed_main.o" "$directory/libmixed.a"
}
PTX=none start mixed_library nvcc-mixed-library
launches() { # launches NAME SOURCE-BY-CLANG SOURCE-BY-NVCC[:OPTION...]: device code of each launches kernels of the other
  local name=$1 directory=$objects/$1
  mkdir -p "$directory"
  compile "$directory" "$2"
  nvcc "$directory" "$3"
  link "$out/$name" "$directory"/*.o
}
PTX=none start launches launches-clang-nvcc launches_main launches_other
PTX=none start launches launches-nvcc-clang launches_other launches_main
PTX=none COMPILE='-O0' start launches launches-clang-nvcc-O0 launches_main launches_other
RDC='-fgpu-rdc -fno-offload-lto --offload-new-driver' PTX=none start launches launches-without-lto launches_main launches_other
RDC='-fgpu-rdc --no-offload-new-driver' PTX=none start launches launches-old-driver launches_main launches_other
if [ -e "$CUDA_PATH/nvvm/lib64" ] || compgen -G "$CUDA_PATH/lib64/libnvvm.so*" >/dev/null; then
  PTX=none start launches launches-dlto launches_main launches_other:-gencode=arch=compute_90,code=lto_90
fi
# Four parts in four forms beside the program's own bitcode. part DIRECTORY N FORM [OPTION...] makes one: as an object with host code
# (bitcode, cubin, ptx, old-driver, nvcc, nvcc-ptx), or as a file for the device linker alone (FORM.cubin, .ptx, .fatbin, .bitcode).
part() {
  local directory=$1 n=$2 form=$3 host=(-DHOST) device=() words
  shift 3
  case $form in
    nvcc) nvcc "$directory" "pieces_part:-DPART=$n:-DHOST:-arch=$ARCHS$([ $# = 0 ] || printf ':%s' "$@")" ;;
    nvcc-ptx)
      nvcc "$directory" "pieces_part:-DPART=$n:-DHOST:-gencode=arch=compute_${ARCHS#sm_},code=compute_${ARCHS#sm_}$([ $# = 0 ] || printf ':%s' "$@")"
      ;;
    bitcode) compile "$directory" "pieces_part:-DPART=$n:-DHOST$([ $# = 0 ] || printf ':%s' "$@")" ;;
    cubin) RDC='-fgpu-rdc -fno-offload-lto --offload-new-driver' part "$directory" "$n" bitcode "$@" ;;
    old-driver) RDC='-fgpu-rdc --no-offload-new-driver' part "$directory" "$n" bitcode "$@" ;;
    ptx)
      RDC='-fgpu-rdc -fno-offload-lto' device_only "$directory/$n.ptx" -S -DHOST "-DPART=$n" "$@"
      "$LLVM/llvm-offload-binary" -o "$directory/$n.images" \
        "--image=file=$directory/$n.ptx,triple=nvptx64-nvidia-cuda,arch=$ARCHS,kind=cuda"
      split "$COMPILE -fgpu-rdc"
      "${clang[@]}" -c --offload-new-driver --cuda-host-only "${words[@]}" "--offload-arch=$ARCHS" -DHOST "-DPART=$n" "$@" \
        -Xclang "-fembed-offload-object=$directory/$n.images" "$sources/pieces_part.cu" -o "$directory/$n.ptx.o"
      ;;
    file.cubin) RDC='-fgpu-rdc -fno-offload-lto' device_only "$directory/$n.cubin" "-DPART=$n" "$@" ;;
    file.ptx) RDC='-fgpu-rdc -fno-offload-lto' device_only "$directory/$n.ptx" -S "-DPART=$n" "$@" ;;
    file.fatbin)
      part "$directory" "$n" file.cubin "$@"
      part "$directory" "$n" file.ptx "$@"
      "$CUDA_PATH/bin/fatbinary" -64 "--create=$directory/$n.fatbin" "--image3=kind=elf,sm=${ARCHS#sm_},file=$directory/$n.cubin" \
        "--image3=kind=ptx,sm=${ARCHS#sm_},file=$directory/$n.ptx"
      rm "$directory/$n.cubin" "$directory/$n.ptx"
      ;;
    file.bitcode)
      compile "$directory" "pieces_part:-DPART=$n"
      mv "$directory/pieces_part__DPART_$n.o" "$directory/$n.device"
      ;;
  esac
}
device_only() { # device_only OUTPUT OPTION...
  local output=$1 words
  shift
  split "$COMPILE $RDC"
  "${clang[@]}" --cuda-device-only "${words[@]}" "--offload-arch=$ARCHS" "$@" "$sources/pieces_part.cu" -o "$output"
}
# pieces NAME FORM-OF-1 ... FORM-OF-4; PARTS: options of their compilation, PARTS_ARCH: their architecture, ARCHIVE: where they lie
pieces() {
  local name=$1 directory=$objects/$1 main=pieces_main n=0 form words files=()
  mkdir -p "$directory"
  shift
  split "${PARTS-}"
  case $1 in file.*) ;; *) main=pieces_main:-DHOST ;; esac
  compile "$directory" "$main"
  for form; do
    n=$((n + 1))
    ARCHS=${PARTS_ARCH-$ARCHS} part "$directory" "$n" "$form" ${words[@]+"${words[@]}"}
  done
  for form in "$directory"/[1-4].{cubin,ptx,fatbin,device}; do
    [ ! -e "$form" ] || [ -e "$form.o" ] || files+=(-Xoffload-linker "$form")
  done
  if [ -n "${ARCHIVE-}" ]; then
    (cd "$directory" && shopt -s nullglob && set -- [1-4].*.o pieces_part*.o && llvm-ar rcs "$ARCHIVE" "$@" && rm "$@")
    files=("$directory/$ARCHIVE")
  fi
  link "$out/$name" "$directory"/*.o ${files[@]+"${files[@]}"}
}
PTX=none start pieces pieces-files file.cubin file.ptx file.fatbin file.bitcode
PTX=none LINK='-Wl,--warplink-partition=always' start pieces pieces-files-partitioned file.cubin file.ptx file.fatbin file.bitcode
PTX=none start pieces pieces-every-form nvcc cubin ptx bitcode
PTX=none COMPILE='-O0' start pieces pieces-every-form-O0 nvcc cubin ptx bitcode
PTX=none LINK='-Wl,--warplink-partition=always' start pieces pieces-partitioned nvcc cubin bitcode old-driver
PTX=none start pieces pieces-nvcc nvcc nvcc nvcc nvcc
# Code for an older architecture in the image of a newer one, with calls both ways.
ARCHS=sm_80,sm_90 PARTS_ARCH=sm_80 start pieces pieces-older bitcode bitcode bitcode bitcode
ARCHIVE=libpieces.a PARTS_ARCH=sm_80 start pieces pieces-older-archive bitcode bitcode bitcode bitcode
PTX=none ARCHIVE=libpieces.a PARTS_ARCH=sm_80 start pieces pieces-older-mixed bitcode nvcc-ptx bitcode ptx
PTX=none PARTS_ARCH=sm_80 start pieces pieces-older-files file.ptx file.bitcode file.ptx file.bitcode
pieces_within() { # pieces_within NAME OPTION...: nvcc's and clang's objects linked by themselves with -shared or -r, then into a program
  local name=$1 directory=$objects/$1 inner=$objects/$1/inner output=$objects/$1/inner.o n
  shift
  mkdir -p "$inner"
  compile "$directory" inner_main
  compile "$inner" pieces_main:-DHOST:-fPIC:-Dmain=run_pieces
  for n in 1 3; do part "$inner" "$n" nvcc -Xcompiler -fPIC; done
  for n in 2 4; do part "$inner" "$n" bitcode -fPIC; done
  [ "$1" != -shared ] || output=$out/libpieces.so
  [ "$1" = -r ] || set -- "$@" "${runtime[@]}"
  "${clang[@]}" --offload-link "$inner"/*.o "$@" -o "$output"
  link "$out/$name" "$directory/inner_main.o" "$output" '-Wl,-rpath,$ORIGIN'
}
PTX=none start pieces_within pieces-in-shared-object -shared -Wl,-Bsymbolic,-soname,libpieces.so
PTX=none start pieces_within pieces-in-relocatable -r -nostdlib
linked_already() { # one object that nvcc -dlink has linked is left alone, another of nvcc's is linked
  local name=$1 directory=$objects/$1
  mkdir -p "$directory"
  compile "$directory" relocatable_main
  nvcc "$directory" "relocatable_part:-DUNIT=1:-arch=$ARCHS"
  nvcc "$directory" "relocatable_part:-DUNIT=2:-arch=$ARCHS"
  "$CUDA_PATH/bin/nvcc" -dlink "-arch=$ARCHS" "$directory"/relocatable_part__DUNIT_1_*.nvcc.o -o "$directory/linked.o"
  link "$out/$name" "$directory"/*.o
}
PTX=none start linked_already nvcc-linked-already
both() { # both NAME NVCC-OPTION...: what both compilers' objects define
  local name=$1 directory=$objects/$1
  shift
  mkdir -p "$directory"
  COMPILE="$COMPILE -std=c++20"
  compile "$directory" both_main
  compile "$directory" both_other
  nvcc "$directory" "both_nvcc:-arch=$ARCHS:--extended-lambda$(printf ':%s' "$@")"
  link "$out/$name" "$directory"/*.o
}
PTX=none start both in-both-compilers -std=c++20
PTX=none COMPILE='-O0' start both in-both-compilers-O0 -std=c++20 -G
PTX=none LINK='-Wl,--warplink-partition=always' start both in-both-compilers-partitioned -std=c++17
nvcc_alone() {
  local name=$1 directory=$objects/$1
  mkdir -p "$directory"
  nvcc "$directory" nvcc_main
  nvcc "$directory" nvcc_other
  link "$out/$name" "$directory"/*.o
}
start nvcc_alone nvcc-alone
nvcc_drawn() { # a member that only device code needs registers its variable all the same
  local name=$1 directory=$objects/$1
  mkdir -p "$directory"
  compile "$directory" nvcc_main
  nvcc "$directory" nvcc_other
  llvm-ar rcs "$directory/libother.a" "$directory"/*.nvcc.o
  link "$out/$name" "$directory/nvcc_main.o" "$directory/libother.a"
}
PTX=none start nvcc_drawn nvcc-drawn-in

# early NAME FORM...: what early_main.cu and its units are made of, in the order of the link line: `main`, and for each unit `clang`, `nvcc`,
# `managed` (nvcc's, with a managed variable) or `old-driver`. EARLY: options of main. WITHIN: they go into a shared object.
early() {
  local name=$1 directory=$objects/$1 units=0 unit=0 form files=() pic=() words=()
  shift
  mkdir -p "$directory"
  split "${EARLY-}"
  [ -z "${WITHIN-}" ] || pic=(-fPIC)
  for form; do [ "$form" = main ] || units=$((units + 1)); done
  for form; do
    if [ "$form" = main ]; then
      COMPILE="$COMPILE ${words[*]-} ${pic[*]-}" compile "$directory" "early_main:-DUNITS=$units${WITHIN:+:-Dmain=run_early}"
      files+=("$directory"/early_main_*.o)
      continue
    fi
    mkdir "$directory/$unit"
    case $form in
      clang) compile "$directory/$unit" "early_unit:-DUNIT=$unit${WITHIN:+:-fPIC}" ;;
      old-driver) RDC='-fgpu-rdc --no-offload-new-driver' compile "$directory/$unit" "early_unit:-DUNIT=$unit" ;;
      nvcc) nvcc "$directory/$unit" "early_unit:-DUNIT=$unit:-arch=$ARCHS${WITHIN:+:-Xcompiler:-fPIC}" ;;
      managed) nvcc "$directory/$unit" "early_unit:-DUNIT=$unit:-arch=$ARCHS:-DMANAGED${WITHIN:+:-Xcompiler:-fPIC}" ;;
    esac
    files+=("$directory/$unit"/*.o)
    unit=$((unit + 1))
  done
  if [ -n "${WITHIN-}" ]; then
    link "$out/libearly.so" -shared "${files[@]}"
    compile "$directory" early_loader
    link "$out/$name" "$directory/early_loader.o"
  else
    link "$out/$name" "${files[@]}"
  fi
}
PTX=none start early early-clang-nvcc main clang nvcc clang nvcc
PTX=none start early early-nvcc-clang nvcc clang nvcc main clang
PTX=none LINK=-fuse-ld=lld start early early-nvcc-clang-lld nvcc clang nvcc main clang
PTX=none COMPILE='-O0' start early early-clang-nvcc-O0 main clang nvcc clang nvcc
start early early-clang main clang clang
PTX=none EARLY=-DTOO_EARLY=4 start early early-old-driver clang nvcc old-driver main
# Nothing is registered before the last module with managed variables.
PTX=none start early early-managed-first managed clang main nvcc
PTX=none EARLY=-DTOO_EARLY=1 start early early-managed clang managed main nvcc clang
PTX=none WITHIN=yes start early early-in-shared-object managed clang nvcc main
early_nvcc() { # nvcc's objects alone
  local name=$1 directory=$objects/$1 unit
  mkdir -p "$directory"
  for unit in 0 1 2; do nvcc "$directory" "early_unit:-DUNIT=$unit:-arch=$ARCHS"; done
  nvcc "$directory" "early_main:-DUNITS=3:-arch=$ARCHS"
  link "$out/$name" "$directory"/*.o
}
start early_nvcc early-nvcc-alone

for linker in bfd gold lld mold; do
  icf=--icf=all
  [ $linker != bfd ] || icf=--gc-sections
  COMPILE='-O2 -ffunction-sections -fdata-sections' LINK="-fuse-ld=$linker -Wl,--gc-sections -Wl,$icf" \
    program "folded-$linker" folded_main folded_other
done

demo() {
  local name=$1 directory=$objects/$1 sources=$root/test-inputs/demo unit
  mkdir -p "$directory/reduce"
  for unit in main operator solver source; do compile "$directory" "$unit"; done
  for unit in block dot max_abs mean; do
    sources=$root/test-inputs/demo/reduce compile "$directory/reduce" "$unit"
  done
  llvm-ar rcs "$directory/libreduce.a" "$directory"/reduce/*.o
  link "$out/$name" "$directory"/*.o "$directory/libreduce.a"
}
ARCHS=sm_80,sm_90 start demo heat

wait
failed=()
for name in "${names[@]}"; do
  [ -e "$objects/$name.status" ] || failed+=("$name")
done
for name in ${failed[@]+"${failed[@]}"}; do
  echo "gpu-test: $name was not built:"
  sed 's/^/    /' "$objects/$name.log"
done

cat >"$out/run.sh" <<'RUN'
#!/usr/bin/env bash
# Runs the programs beside it on this machine's GPU. Usage: run.sh [NAME...]
# Each is run as it is, which takes its cubin, and, if it holds PTX for the device, once more with
# CUDA_FORCE_PTX_JIT=1 and without the driver's cache. Logs: results/.
cd "$(dirname "$0")" || exit 2
results=${RESULTS:-results}
mkdir -p "$results"
command -v nvidia-smi >/dev/null && nvidia-smi --query-gpu=name,driver_version,compute_cap --format=csv,noheader
passed=0 failed=0
run() { # run NAME MODE: prints the verdict
  local log="$results/$1.$2.log" verdict status
  chmod +x "./$1" 2>/dev/null
  if [ "$2" = jit ]; then
    CUDA_FORCE_PTX_JIT=1 CUDA_CACHE_DISABLE=1 timeout 120 "./$1" >"$log" 2>&1 </dev/null
  else
    timeout 120 "./$1" >"$log" 2>&1 </dev/null
  fi
  status=$?
  verdict=$(tail -n 1 "$log")
  if [ "$status" = 0 ] && [ "$verdict" = PASS ]; then echo PASS; else echo "FAIL($status)"; fi
}
printf '%-30s %-10s %s\n' program cubin 'PTX, compiled by the driver'
while read -r name jit; do
  [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
  a=$(run "$name" cubin)
  b=-
  [ "$jit" = no ] || b=$(run "$name" jit)
  printf '%-30s %-10s %s\n' "$name" "$a" "$b"
  for verdict in "$a" "$b"; do
    case $verdict in PASS) passed=$((passed + 1)) ;; FAIL*) failed=$((failed + 1)) ;; esac
  done
  case $a$b in *FAIL*) for log in "$results/$name".*.log; do sed "s/^/    ${log##*/}: /" "$log" | tail -n 4; done ;; esac
done <programs.txt
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
RUN
chmod +x "$out/run.sh"

# What can be told of the programs without a GPU.
unrunnable=()
for name in "${names[@]}"; do
  [ -x "$out/$name" ] || continue
  "$warplink" inspect --gpu sm_90 "$out/$name" >"$objects/$name.inspect" 2>&1 || unrunnable+=("$name")
done
echo "gpu-test: an sm_90 GPU cannot run, says warplink inspect --gpu sm_90: ${unrunnable[*]-none}"
if [ "${unrunnable[*]-}" != "wrong-image guard" ]; then
  echo "gpu-test: only wrong-image and guard should be named there" >&2
  failed+=("inspect")
fi

echo "gpu-test: ${#names[@]} programs, $((${#names[@]} - ${#failed[@]})) as they should be, $(du -sm "$out" | cut -f1) MiB in ${out#"$root"/}"
[ ${#failed[@]} = 0 ] || { echo "gpu-test: failed: ${failed[*]}" >&2; exit 1; }
if [ -e /dev/nvidia0 ] || command -v nvidia-smi >/dev/null; then
  exec "$out/run.sh"
fi
echo "gpu-test: no NVIDIA GPU here; copy the folder to a machine with one and run run.sh there"
