#!/usr/bin/env bash
# Runs every check: rustfmt, clippy, the unit and property tests of all crates, and the lit suite (by
# phase with fake tools, end to end with clang 22, ptxas and the recording runtime).
#
# The last line counts tests: `N passed, N failed`. Logs go to target/test-logs/. Usage: tools/test.sh
set -euo pipefail
exec </dev/null
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"

settings=$("$root/tools/setup.sh" --env --tests)
eval "$settings"
export CUDA_PATH LLVM WARPLINK_BIN_DIR
export PATH="$PATH:$HOME/.cargo/bin"
# The library that a JIT links with in process; those tests are skipped without one.
: "${WARPLINK_NVJITLINK=$root/.deps/nvjitlink/libnvJitLink.so.13}"
if [ -f "$WARPLINK_NVJITLINK" ]; then export WARPLINK_NVJITLINK; else unset WARPLINK_NVJITLINK; fi
target=${CARGO_TARGET_DIR:-$root/target}
logs=$target/test-logs
mkdir -p "$logs"
# No test may meet what the user's own links have left, or leave anything there.
XDG_CACHE_HOME=$(mktemp -d)
export XDG_CACHE_HOME
trap 'rm -rf "$XDG_CACHE_HOME"' EXIT
passed=0
failed=0

count() {
  passed=$((passed + $1))
  failed=$((failed + $2))
}

# Runs a step and keeps its output: shown whole when it fails, by its result lines when it does not.
run() {
  local name=$1 shown=$2
  shift 2
  local started=$SECONDS
  printf '\n== %s: %s\n' "$name" "$*"
  if "$@" >"$logs/$name.log" 2>&1; then
    { grep -E "$shown" "$logs/$name.log" || true; } | sed 's/^/   /'
    printf '   ok (%d s)\n' $((SECONDS - started))
  else
    cat "$logs/$name.log"
    printf '   FAILED (%d s)\n' $((SECONDS - started))
    return 1
  fi
}

have_component() { cargo "$1" --version >/dev/null 2>&1 || rustup component add "$2" >/dev/null 2>&1; }

step() { if run "$@"; then count 1 0; else count 0 1; fi; }
have_component fmt rustfmt || true
have_component clippy clippy || true
step fmt '^$' cargo fmt --all --check
# Release, so that clippy and the tests share dependencies with the program that setup.sh has built.
step clippy '^warning' cargo clippy --quiet --release --workspace --all-targets -- -D warnings

# cargo test counts by itself: add up its `test result:` lines. Without one, it is the build that failed.
cargo_status=0
run cargo-test '^test result:|Running|Doc-tests' cargo test --release --workspace --no-fail-fast || cargo_status=$?
read -r cargo_passed cargo_failed < <(
  awk '/^test result:/ { for (i = 2; i <= NF; i++) { if ($i ~ /^passed/) p += $(i - 1); if ($i ~ /^failed/) f += $(i - 1) } }
       END { print p + 0, f + 0 }' "$logs/cargo-test.log"
)
[ "$cargo_status" = 0 ] || [ "$cargo_failed" -gt 0 ] || cargo_failed=1
count "$cargo_passed" "$cargo_failed"

lit_status=0
rm -f "$logs/lit.json"
run lit "^(  |Total|Unsupported)|: note: " timeout 2400 "$LLVM/lit" -v -o "$logs/lit.json" lit-tests || lit_status=$?
read -r lit_passed lit_failed < <(
  python3 - "$logs/lit.json" <<'PYTHON' || echo 0 1
import collections, json, sys
codes = collections.Counter(test["code"] for test in json.load(open(sys.argv[1]))["tests"])
good = sum(codes[c] for c in ("PASS", "XFAIL", "FLAKYPASS"))
print(good, sum(codes.values()) - good - codes["UNSUPPORTED"] - codes["SKIPPED"] - codes["EXCLUDED"])
PYTHON
)
[ "$lit_status" = 0 ] || [ "$lit_failed" -gt 0 ] || lit_failed=1
count "$lit_passed" "$lit_failed"

step torture '^(torture|full disks)' timeout 300 "$root/tools/torture.sh" --short

printf '\nfmt, clippy, %d unit and property tests, %d lit tests in %d s\n' $((cargo_passed + cargo_failed)) \
  $((lit_passed + lit_failed)) "$SECONDS"
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
