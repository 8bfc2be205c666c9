#!/usr/bin/env python3
"""What a link of clang's LTO objects pays for the other kinds of object: see tools/bench.sh --mixed.

warplink cannot be told to forget nvcc's objects, device objects or COFF, so there is no program to pair it with. Instead valgrind counts
the instructions of a link of the demo, and those that are executed in, or on behalf of, the code for other kinds: the modules below and
every function with `nvcc` in its name, with all that they call. The ratio is the whole to the whole without these. Child processes
(ptxas, the host linker) are left out of the whole, which makes the ratio larger than that of the link; functions that the compiler has
inlined into others are not seen, which makes it smaller.

With --against FOLDER the program is paired all the same: with another build of it, by the folder that its `warplink bin-dir` prints, for
example one of the commit before a change. Both make the same links in turn, round by round, in changing order; compared is the CPU time,
user and system, of all processes of a link.
"""

import argparse
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile

import bench

MODULES = re.compile(
    r"nvcc|device_link::(device_files|device_object|assemble::nvlink|wrap::coff|inputs::default_libraries)|host_coff::|::kernel_references::"
)
LIMIT = 1.01


class Profile:
    """A callgrind profile, of which only sums are kept."""

    def __init__(self, path):
        self.total = self.share = 0
        self.by_place = {}
        self.names = {}
        with open(path) as file:
            self.read(file)

    def name(self, kind, text):
        """Undoes callgrind's compression: `(3) name` the first time, `(3)` later."""
        number, _, name = text.partition(" ")
        if not number.startswith("("):
            return text
        key = (kind, number)
        if name:
            self.names[key] = name
        return self.names.get(key, "")

    def read(self, file):
        function = callee = ""
        is_call = False
        for text in file:
            text = text.rstrip("\n")
            key, _, value = text.partition("=")
            if key == "fn":
                function = self.name("function", value)
            elif key == "cfn":
                callee = self.name("function", value)
            elif key == "calls":
                is_call = True
            elif text and (text[0].isdigit() or text[0] in "+-*"):
                numbers = text.split()
                cost = int(numbers[1]) if len(numbers) > 1 else 0
                if not is_call:
                    self.total += cost
                elif MODULES.search(callee) and not MODULES.search(function):
                    # With all that it calls; what it calls of the same modules is in this.
                    self.share += cost
                    self.by_place[callee] = self.by_place.get(callee, 0) + cost
                is_call = False


def paired(title, links, work, rounds):
    """CPU time of this build's link and of the other's. Returns the median of the rounds' ratios."""
    for link in links:
        bench.run(link, work)
    times = []
    for index in range(rounds):
        order = (0, 1) if index % 2 else (1, 0)
        seconds = {which: bench.run(links[which], work)[1] for which in order}
        times.append((seconds[0], seconds[1]))
    ratios = [ours / other for ours, other in times]
    low, middle, high = statistics.quantiles(ratios, n=4)
    ours, other = (statistics.median(column) * 1e3 for column in zip(*times))
    print(f"the demo from {title}: {ours:.1f} ms of CPU time, the other build {other:.1f} ms, {rounds} rounds: ratio {middle:.4f} "
          f"(half of the rounds from {low:.3f} to {high:.3f}; at most {LIMIT})")
    return middle


def counted(title, link, work):
    """Instructions of a link, and those for other kinds of object. Returns the ratio."""
    profile = os.path.join(work, "profile")
    bench.run(["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}", *link], work)
    seen = Profile(profile)
    ratio = seen.total / (seen.total - seen.share)
    print(f"the demo from {title}: {seen.total / 1e6:.1f} million instructions, {seen.share / 1e6:.3f} million for other kinds of "
          f"object: ratio {ratio:.5f} (at most {LIMIT})")
    for place, cost in sorted(seen.by_place.items(), key=lambda item: -item[1])[:8]:
        print(f"  {cost:>12,}  {place}")
    if not seen.share:
        sys.exit("bench: not one instruction was attributed: has the program a symbol table?")
    return ratio


def main():
    parser = argparse.ArgumentParser(prog="tools/bench.sh --mixed")
    parser.add_argument("--against", metavar="FOLDER", help="compare CPU time with another build, whose `warplink bin-dir` this is")
    parser.add_argument("--rounds", type=int, default=50, help="rounds of that comparison (50)")
    asked = parser.parse_args()
    if asked.against and not os.access(os.path.join(asked.against, "clang-linker-wrapper"), os.X_OK):
        sys.exit(f"bench: {asked.against} holds no clang-linker-wrapper")
    if not asked.against and not shutil.which("valgrind"):
        sys.exit("bench: valgrind not found (apt-get install valgrind)")
    work = tempfile.mkdtemp(prefix="warplink-bench-")
    try:
        objects = []
        for unit in ("main", "operator", "solver", "source", "reduce/block", "reduce/dot", "reduce/max_abs", "reduce/mean"):
            objects.append(unit.replace("/", "_") + ".o")
            bench.compile_unit(os.path.join(bench.DEMO, f"{unit}.cu"), objects[-1], "sm_80,sm_90", work)
        subprocess.check_call([os.path.join(bench.LLVM, "llvm-ar"), "rcs", "libreduce.a", *objects[4:]], cwd=work)
        ratios = []
        for title, inputs in (("objects", objects), ("objects and an archive", [*objects[:4], "libreduce.a"])):
            _, ours = bench.links(inputs, "bfd", work)
            if asked.against:
                other = [os.path.join(os.path.abspath(asked.against), os.path.basename(ours[0])), *ours[1:]]
                ratios.append(paired(title, (ours, other), work, asked.rounds))
            else:
                ratios.append(counted(title, ours, work))
        if max(ratios) > LIMIT:
            sys.exit(1)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
