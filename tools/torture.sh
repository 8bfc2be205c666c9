#!/usr/bin/env bash
# Links under load, with faults, ended by signals, at limits and of hostile bytes; prints figures and fails if one result is wrong.
#
#   tools/torture.sh                 all of it, an hour or more
#   tools/torture.sh --short         under a minute, one of the steps of tools/test.sh
#   tools/torture.sh --only=PART,... load, loop, signals, tools, changes, places, calls, same, limits, hostile
#   tools/torture.sh --count=PART=N  another number for signals (500), loop (10000) or hostile (4000); may be given more than once
#   tools/torture.sh --seed=N        of everything that is random
#
# tools/torture/questions.py picks places in the sources at which a fault is to be forced by hand.
set -euo pipefail
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
settings=$("$root/tools/setup.sh" --env)
eval "$settings"
export LLVM WARPLINK_BIN_DIR
exec python3 -B "$root/tools/torture/torture.py" "$@"
