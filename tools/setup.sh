#!/usr/bin/env bash
# Brings a bare Debian 12 with a Rust toolchain to the point where warplink is built and usable:
# Debian's clang 22 and LLVM 22 packages, the four host linkers, the CUDA toolkit's parts from PyPI
# (unless CUDA_PATH names a toolkit), warplink in release, and its bin dir.
#
#   tools/setup.sh          do all that, print what is done
#   tools/setup.sh --env    the same, and print `export NAME=value` lines for eval on stdout: CUDA_PATH, LLVM,
#                           WARPLINK_BIN_DIR, and a PATH with clang 22 and warplink
#   tools/setup.sh --tests  the same, and install what only tests need: a cross toolchain and qemu for
#                           AArch64, clang 16 and 19, build systems, shells, a browser, tools that check
#                           packages. Where that fails, those tests are skipped
#
# Idempotent; a second run finds everything in place and takes a fraction of a second.
# From the environment: CUDA_PATH (a toolkit to use), LLVM (clang 22's program directory),
# CARGO_TARGET_DIR, WARPLINK_PROFILE (release).
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
print_env=
for_tests=
for argument; do
  case $argument in
    --env) print_env=1 ;;
    --tests) for_tests=1 ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) echo "setup.sh: unknown argument: $argument (try --help)" >&2; exit 2 ;;
  esac
done

# With --env, stdout belongs to the export lines.
exec 3>&1
[ -z "$print_env" ] || exec 1>&2

say() { printf 'setup: %s\n' "$*"; }
die() { printf 'setup: error: %s\n' "$*" >&2; exit 1; }

# Said before anything is installed: it is the one thing that a person has to bring.
command -v cargo >/dev/null || { [ -x "$HOME/.cargo/bin/cargo" ] && PATH=$HOME/.cargo/bin:$PATH; } ||
  die "no cargo on PATH: warplink is written in Rust, install a toolchain (1.88 or later) first"

# --- Debian packages -------------------------------------------------------------------------

as_root() {
  if [ "$(id -u)" = 0 ]; then "$@"; elif command -v sudo >/dev/null; then sudo "$@"; else
    die "root is needed to run: $*"
  fi
}

llvm_given=${LLVM:-}
# Exported, because the build script of llvm-lto watches it.
export LLVM=${LLVM:-/usr/lib/llvm-22/bin}

# A package is wanted when a file or program of it that we use is not there: that holds for
# toolchains installed in another way too, and costs no dpkg call.
missing_packages() {
  local missing=()
  [ -x "$LLVM/clang++" ] || missing+=(clang-22)
  [ -x "$LLVM/clang-linker-wrapper" ] || missing+=(clang-tools-22)
  [ -x "$LLVM/llvm-objcopy" ] || missing+=(llvm-22)
  [ -e "$LLVM/../lib/libLLVMCore.a" ] || missing+=(llvm-22-dev)
  [ -e "$LLVM/../lib/LLVMgold.so" ] || missing+=(llvm-22-linker-tools)
  { [ -x "$LLVM/FileCheck" ] && [ -x "$LLVM/lit" ]; } || missing+=(llvm-22-tools)
  [ -x "$LLVM/ld.lld" ] || missing+=(lld-22)
  command -v mold >/dev/null || missing+=(mold)
  { command -v ld && command -v ld.bfd && command -v ld.gold; } >/dev/null || missing+=(binutils)
  { command -v gcc && command -v g++; } >/dev/null || missing+=(g++)
  command -v make >/dev/null || missing+=(make)
  [ -e /usr/include/zlib.h ] || missing+=(zlib1g-dev)
  [ -e /usr/include/zstd.h ] || missing+=(libzstd-dev)
  command -v python3 >/dev/null || missing+=(python3)
  command -v zstd >/dev/null || missing+=(zstd)
  # For cargo and pip, which fetch by https.
  { [ -e /etc/ssl/certs/ca-certificates.crt ] || [ -n "${SSL_CERT_FILE:-}" ]; } || missing+=(ca-certificates)
  printf '%s\n' "${missing[@]-}" | sed '/^$/d'
}

install_packages() {
  command -v apt-get >/dev/null || die "not there: $(echo "$@"); apt-get, which would install it, is not there either"
  say "installing Debian packages: $*"
  # The package list may be older than the archive: update once, and only when something is wanted.
  if [ -z "${updated:-}" ]; then apt update; updated=1; fi
  apt install -y --no-install-recommends "$@"
}

# apt-get, which is heard only when it fails.
apt() {
  local output
  output=$(as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq "$@" </dev/null 2>&1) || {
    printf '%s\n' "$output" >&2
    die "apt-get $1 failed; clang-22 and its kin come from Debian 12's security archive (bookworm-security)"
  }
}

mapfile -t wanted < <(missing_packages)
if [ ${#wanted[@]} -gt 0 ]; then
  [ -z "$llvm_given" ] || say "LLVM=$LLVM lacks something; Debian's packages will not appear there"
  install_packages "${wanted[@]}"
  mapfile -t wanted < <(missing_packages)
  [ ${#wanted[@]} -eq 0 ] || die "still not there after the installation: ${wanted[*]}"
else
  say "clang and LLVM 22 in $LLVM; bfd, gold, lld and mold are there"
fi

if [ -n "$for_tests" ]; then
  extra=()
  command -v aarch64-linux-gnu-gcc >/dev/null || extra+=(gcc-aarch64-linux-gnu libc6-dev-arm64-cross)
  command -v aarch64-linux-gnu-ld >/dev/null || extra+=(binutils-aarch64-linux-gnu)
  command -v qemu-aarch64 >/dev/null || extra+=(qemu-user)
  for release in 16 19; do
    command -v "clang++-$release" >/dev/null || extra+=("clang-$release")
  done
  command -v chromium >/dev/null || command -v google-chrome >/dev/null || extra+=(chromium)
  command -v cmake >/dev/null || extra+=(cmake)
  command -v ninja >/dev/null || extra+=(ninja-build)
  command -v meson >/dev/null || extra+=(meson)
  command -v bazel >/dev/null || extra+=(bazel-bootstrap)
  # Stores of remote caches: nginx is in sbin, which may not be on PATH.
  command -v redis-server >/dev/null || extra+=(redis-server)
  [ -x /usr/sbin/nginx ] || command -v nginx >/dev/null || extra+=(nginx-light)
  for program in zsh fish lintian; do
    command -v "$program" >/dev/null || extra+=("$program")
  done
  command -v man >/dev/null || extra+=(man-db)
  command -v groff >/dev/null || extra+=(groff-base)
  if [ ${#extra[@]} -gt 0 ]; then
    # One that cannot be had is no reason to do without the others.
    (install_packages "${extra[@]}") || for package in "${extra[@]}"; do
      (install_packages "$package") || say "not installed: $package; the tests that need it are skipped"
    done
  fi
fi

# CMake knows clang 22 as a CUDA compiler in late releases only, which Debian 12 does not have.
cmake_wheel=cmake==4.4.5
fetch_cmake() {
  local tmp
  python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip
  mkdir -p "$root/.deps"
  tmp=$(mktemp -d "$root/.deps/cmake.XXXXXX")
  say "fetching CMake from PyPI into .deps/cmake"
  if python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --no-cache-dir -d "$tmp" "$cmake_wheel" </dev/null &&
    python3 -m zipfile -e "$tmp"/cmake-*.whl "$tmp/unpacked" && chmod +x "$tmp"/unpacked/cmake/data/bin/*; then
    rm -rf "$tmp/unpacked/cmake/data/doc" "$root/.deps/cmake"
    mv "$tmp/unpacked/cmake/data" "$root/.deps/cmake"
  else
    say "not fetched: $cmake_wheel; tests of CMake's language CUDA are skipped"
  fi
  rm -rf "$tmp"
}
[ -z "$for_tests" ] || [ -x "$root/.deps/cmake/bin/cmake" ] || fetch_cmake

# A JIT may have it assemble; links do not need it.
nvjitlink_wheel=nvidia-nvjitlink==13.0.88
fetch_nvjitlink() {
  local tmp
  python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip
  mkdir -p "$root/.deps"
  tmp=$(mktemp -d "$root/.deps/nvjitlink.XXXXXX")
  say "fetching libnvJitLink from PyPI into .deps/nvjitlink"
  if python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --no-cache-dir -d "$tmp" "$nvjitlink_wheel" </dev/null &&
    python3 -m zipfile -e "$tmp"/nvidia_nvjitlink-*.whl "$tmp/unpacked"; then
    rm -rf "$root/.deps/nvjitlink"
    mv "$tmp/unpacked/nvidia/cu13/lib" "$root/.deps/nvjitlink"
  else
    say "not fetched: $nvjitlink_wheel; tests of links in process are skipped"
  fi
  rm -rf "$tmp"
}
[ -z "$for_tests" ] || [ -n "${WARPLINK_NVJITLINK:-}" ] || [ -f "$root/.deps/nvjitlink/libnvJitLink.so.13" ] || fetch_nvjitlink

# --- CUDA toolkit ----------------------------------------------------------------------------

cuda_wheels=(
  nvidia-cuda-nvcc==13.0.88        # ptxas, nvlink, fatbinary: what a link needs; nvcc for comparison
  nvidia-cuda-runtime==13.0.96     # cuda_runtime.h, libcudart_static.a, libcudadevrt.a
  nvidia-cuda-crt==13.0.88         # crt/ headers
  nvidia-nvvm==13.0.88             # libdevice, and cicc for nvcc
  nvidia-cuda-cccl==13.0.85        # CUB, Thrust
  nvidia-curand==10.4.0.35         # clang's CUDA wrapper includes curand_mtgp32_kernel.h
  nvidia-cuda-cuobjdump==13.5.37   # independent reader of what we write
  nvidia-cuda-nvdisasm==13.5.37
)

is_toolkit() {
  [ -x "$1/bin/ptxas" ] && [ -x "$1/bin/nvlink" ] && [ -e "$1/include/cuda_runtime.h" ] &&
    { [ -e "$1/lib64/libcudart_static.a" ] || [ -e "$1/lib/libcudart_static.a" ]; } &&
    [ -e "$1/nvvm/libdevice/libdevice.10.bc" ]
}

# Wheels unpack into a temporary folder which is renamed at the end: an interrupted run leaves
# nothing that looks like a toolkit.
fetch_cuda() {
  local dest=$1 tmp wheel
  python3 -m pip --version >/dev/null 2>&1 || install_packages python3-pip
  mkdir -p "${dest%/*}"
  tmp=$(mktemp -d "${dest%/*}/cuda.XXXXXX")
  trap 'rm -rf "$tmp"' EXIT
  say "fetching the CUDA 13.0 toolkit's parts from PyPI into ${dest#"$root"/} (about 150 MB)"
  python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --no-cache-dir \
    -d "$tmp/wheels" "${cuda_wheels[@]}" </dev/null
  for wheel in "$tmp"/wheels/*.whl; do
    python3 -m zipfile -e "$wheel" "$tmp/unpacked"
  done
  [ -d "$tmp/unpacked/nvidia/cu13" ] || die "the wheels hold no nvidia/cu13 folder"
  chmod +x "$tmp"/unpacked/nvidia/cu13/bin/* "$tmp"/unpacked/nvidia/cu13/nvvm/bin/*
  ln -s lib "$tmp/unpacked/nvidia/cu13/lib64"
  rm -rf "$dest"
  mv "$tmp/unpacked/nvidia/cu13" "$dest"
  rm -rf "$tmp"
  trap - EXIT
  is_toolkit "$dest" || die "$dest is not complete after unpacking"
}

if [ -n "${CUDA_PATH:-}" ]; then
  [ -x "$CUDA_PATH/bin/ptxas" ] || die "CUDA_PATH=$CUDA_PATH holds no bin/ptxas"
  say "CUDA toolkit: $CUDA_PATH (from CUDA_PATH)"
else
  CUDA_PATH=$root/.deps/cuda
  is_toolkit "$CUDA_PATH" || fetch_cuda "$CUDA_PATH"
  say "CUDA toolkit: $CUDA_PATH"
fi

# --- warplink --------------------------------------------------------------------------------

profile=${WARPLINK_PROFILE:-release}
target=${CARGO_TARGET_DIR:-$root/target}
say "building warplink ($profile)"
(cd "$root" && cargo build --quiet --profile "$profile" -p warplink </dev/null)
warplink=$target/$profile/warplink
[ -x "$warplink" ] || die "cargo built no $warplink"

# In a build tree the program makes the folder beside itself.
WARPLINK_BIN_DIR=$("$warplink" bin-dir) || die "$warplink bin-dir failed"
[ -x "$WARPLINK_BIN_DIR/clang-linker-wrapper" ] || die "$WARPLINK_BIN_DIR, which warplink bin-dir names, is not complete"
say "ready: $warplink, used by clang through -B$WARPLINK_BIN_DIR"

if [ -n "$print_env" ]; then
  printf 'export %s=%q\n' CUDA_PATH "$CUDA_PATH" LLVM "$LLVM" WARPLINK_BIN_DIR "$WARPLINK_BIN_DIR" >&3
  printf 'export PATH=%q:$PATH\n' "$LLVM:${warplink%/*}" >&3
fi
