"""What tools/torture.sh runs: links under load, with faults, at limits and of hostile bytes, with stand-ins for ptxas and nvlink.

Each part counts what it has tried. Whatever is wrong is printed with what is needed to see it again, and makes the whole fail: an output
that differs from that of an undisturbed link without a cache, an end by a signal or a panic, a failure without a message, a file left in
the temporary directory, a process left running, a link that does not end.
"""

import argparse
import shutil
import sys
import time

from faults import Faults
from hostile import Hostile
from limits import Limits
from load import Load

PARTS = ["load", "loop", "signals", "tools", "changes", "places", "calls", "same", "limits", "hostile"]


class Torture(Load, Faults, Limits, Hostile):
    pass


def main():
    parser = argparse.ArgumentParser(prog="tools/torture.sh", description=__doc__.split("\n")[0])
    parser.add_argument("--short", action="store_true", help="under a minute, as one of the steps of tools/test.sh")
    parser.add_argument("--only", default=",".join(PARTS), help="the parts to run, with commas: " + ", ".join(PARTS))
    parser.add_argument("--seed", type=int, default=1, help="of everything that is random")
    parser.add_argument("--count", action="append", default=[], metavar="PART=N", help="another number of links for signals, loop or hostile")
    arguments = parser.parse_args()
    only = arguments.only.split(",")
    unknown = set(only) - set(PARTS)
    if unknown:
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    torture = Torture(arguments)
    started = time.monotonic()
    try:
        torture.prepare()
        for part in PARTS:
            if part in only:
                before, wrong = time.monotonic(), len(torture.wrong)
                getattr(torture, part)()
                found = f", wrong results: {len(torture.wrong) - wrong}" if len(torture.wrong) > wrong else ""
                print(f"{part}: {getattr(torture, part).__doc__.splitlines()[0]} {time.monotonic() - before:.1f} s{found}", flush=True)
    finally:
        shutil.rmtree(torture.work, ignore_errors=True)
    figures = ", ".join(f"{name}: {count}" for name, count in sorted(torture.counts.items()))
    print(f"torture: {figures}, wrong results: {len(torture.wrong)} ({time.monotonic() - started:.0f} s, seed {torture.seed})")
    sys.exit(1 if torture.wrong else 0)


main()
