#!/usr/bin/env python3
"""Paired link benchmark: see tools/bench.sh, which sets the environment.

Every comparison runs its contestants in turn, round by round, in changing order, so that a change of
the machine's load meets all of them. Reported are medians, and the median of the rounds' ratios to the
first contestant. CPU time is user + system of the whole process tree. Memory is measured in rounds of
its own: the largest process (as the kernel counts it) and the largest sum over the tree (sampled PSS).
"""

import argparse
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CUDA = os.environ["CUDA_PATH"]
LLVM = os.environ["LLVM"]
BIN_DIR = os.environ["WARPLINK_BIN_DIR"]
CLANG = os.path.join(LLVM, "clang++")
RUNTIME = [f"-L{CUDA}/lib", f"-L{CUDA}/lib64", "-lcudart_static", "-ldl", "-lpthread", "-lrt"]
DEMO = os.path.join(ROOT, "test-inputs", "demo")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("WARPLINK_", "CUDA_"))}
ENVIRONMENT["WARPLINK_NO_CACHE"] = "1"


def run(command, cwd):
    """Runs a command and gives its wall time, CPU time (s) and the RSS of its largest process (MiB)."""
    start = time.perf_counter()
    child = subprocess.Popen(command, cwd=cwd, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    errors = child.stderr.read()
    _, status, usage = os.wait4(child.pid, 0)
    wall = time.perf_counter() - start
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode:
        sys.exit(f"bench: failed: {shlex.join(command)}\n{errors.decode(errors='replace')}")
    return wall, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024


def tree(pid):
    """The process and its descendants."""
    found, pending = [], [pid]
    while pending:
        pid = pending.pop()
        found.append(pid)
        try:
            for task in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{task}/children") as file:
                    pending += map(int, file.read().split())
        except OSError:
            pass
    return found


def peak_of_tree(command, cwd):
    """The largest sum of the PSS of all processes of a command that was seen, in MiB."""
    child = subprocess.Popen(command, cwd=cwd, env=ENVIRONMENT, stdin=subprocess.DEVNULL,
                             stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    peak = 0
    while child.poll() is None:
        total = 0
        for pid in tree(child.pid):
            try:
                with open(f"/proc/{pid}/smaps_rollup") as file:
                    total += next(int(line.split()[1]) for line in file if line.startswith("Pss:"))
            except (OSError, StopIteration):
                pass
        peak = max(peak, total / 1024)
        time.sleep(0.002)
    return peak


def row(cells, widths):
    return "  ".join(f"{c:<{w}}" if i == 0 else f"{c:>{w}}" for i, (c, w) in enumerate(zip(cells, widths)))


def compare(title, contestants, cwd, rounds, target=None):
    """Prints a table; the first contestant is what the ratios refer to."""
    print(f"\n{title}")
    names = list(contestants)
    for command in contestants.values():  # warms the page cache
        run(command, cwd)
    measured = {name: [] for name in names}
    for i in range(rounds):
        for name in names if i % 2 == 0 else reversed(names):
            measured[name].append(run(contestants[name], cwd))
    totals = {name: statistics.median(peak_of_tree(contestants[name], cwd) for _ in range(3)) for name in names}
    widths = [max(map(len, names)), 9, 9, 13, 15, 11, 10]
    print(row(["", "wall ms", "CPU ms", "max RSS MiB", "tree PSS MiB", "wall ratio", "CPU ratio"], widths))
    base = measured[names[0]]
    ratios = {}
    for name in names:
        wall, cpu, rss = (statistics.median(m[i] for m in measured[name]) for i in range(3))
        ratios[name] = [statistics.median(m[i] / b[i] for m, b in zip(measured[name], base)) for i in range(2)]
        print(row([name, f"{wall * 1000:.0f}", f"{cpu * 1000:.0f}", f"{rss:.0f}", f"{totals[name]:.0f}",
                   f"{ratios[name][0]:.2f}", f"{ratios[name][1]:.2f}"], widths))
    if target:
        print(f"  wanted: {target}")
    return ratios


def compile_unit(source, output, archs, cwd, *options):
    command = [CLANG, "-c", "-O2", f"--cuda-path={CUDA}", f"--offload-arch={archs}", "-fgpu-rdc", "-foffload-lto",
               "-Wno-unknown-cuda-version", f"-I{DEMO}", *options, source, "-o", output]
    subprocess.check_call(command, cwd=cwd, env=ENVIRONMENT)


def links(objects, linker, work):
    """The two tools' command lines for the same link with the same host linker, as clang's driver makes them."""
    common = [f"--cuda-path={CUDA}", "--offload-link", *objects, *RUNTIME]
    peer = [CLANG, *common, f"-Wl,--device-linker=--cuda-path={CUDA}", f"-Wl,--device-compiler=--cuda-path={CUDA}"]
    linker_path = shutil.which(f"ld.{linker}", path=f"{os.environ['PATH']}:{LLVM}")
    ours = [CLANG, f"-B{BIN_DIR}", *common]
    return [driver_command([*command, f"--ld-path={linker_path}", "-o", name], work)
            for command, name in ((peer, "peer"), (ours, "warplink"))]


def driver_command(command, cwd):
    """The last command that clang's driver would run: the wrapper's. The driver's own 25 ms are in neither tool's account."""
    printed = subprocess.run([*command, "-###"], capture_output=True, text=True, check=True, cwd=cwd).stderr.splitlines()[-1]
    return shlex.split(printed)


def device_links(work, rounds):
    with open(os.path.join(work, "one.cu"), "w") as file:
        file.write('#include "main.cu"\n#include "solver.cu"\n')
    with open(os.path.join(work, "two.cu"), "w") as file:
        file.write("".join(f'#include "{name}.cu"\n' for name in
                           ("operator", "source", "reduce/block", "reduce/dot", "reduce/max_abs")))
    for archs in ("sm_80,sm_90", "sm_80,sm_86,sm_90,sm_100"):
        count = archs.count(",") + 1
        for unit in ("one", "two"):
            compile_unit(f"{unit}.cu", f"{unit}{count}.o", archs, work)
    for linker in ("bfd", "lld"):
        peer, ours = links(["one2.o", "two2.o"], linker, work)
        compare(f"(a) the demo's program as two files, two architectures, cold, host linker {linker}",
                {"clang-linker-wrapper": peer, "warplink": ours}, work, rounds,
                "wall at most 0.50, CPU at most 0.50, memory not above the peer's")
    peer, ours = links(["one4.o", "two4.o"], "bfd", work)
    compare(f"(b) the same for four architectures, {os.cpu_count()} cores",
            {"clang-linker-wrapper": peer, "... --wrapper-jobs=2": peer + ["--wrapper-jobs=2"],
             "warplink": ours}, work, rounds, "wall at most 0.55 of the first line's")


def host_links(work, rounds):
    """Links without device code: the linker alone, warplink as ld, and as clang-linker-wrapper."""
    with open(os.path.join(work, "unit.c"), "w") as file:
        file.write('#include <stdio.h>\nint UNIT(int x) { printf("%d", x); return x; }\n'
                   "#ifdef MAIN\nint main(void) { return UNIT(0); }\n#endif\n")
    objects = []
    for i in range(300):
        objects.append(f"unit{i}.o")
        if i < 2:
            subprocess.check_call([os.path.join(LLVM, "clang"), "-c", f"-DUNIT=unit{i}", *(["-DMAIN"] if i == 0 else []),
                                   "unit.c", "-o", objects[-1]], cwd=work)
        else:
            subprocess.check_call([os.path.join(LLVM, "llvm-objcopy"), f"--redefine-sym=unit1=unit{i}", "unit1.o",
                                   objects[-1]], cwd=work)
    for count in (2, 300):
        line = subprocess.run([os.path.join(LLVM, "clang"), "-###", "-fuse-ld=bfd", *objects[:count], "-o", "program"],
                              cwd=work, capture_output=True, text=True, check=True).stderr.splitlines()[-1]
        words = shlex.split(line)
        linker, arguments = words[0], words[1:]
        ours = os.path.join(BIN_DIR, "clang-linker-wrapper")
        compare_milliseconds(f"(c) a link without device code, {count} objects", {
            "the host linker": [linker, *arguments],
            "warplink as ld": [os.path.join(BIN_DIR, "ld.warplink"), f"--warplink-linker={linker}", *arguments],
            "warplink as wrapper": [ours, "--host-triple=x86_64-pc-linux-gnu", f"--linker-path={linker}", *arguments],
            "clang-linker-wrapper": [os.path.join(LLVM, "clang-linker-wrapper"), "--host-triple=x86_64-pc-linux-gnu",
                                     f"--linker-path={linker}", *arguments],
        }, work, rounds * 5)


def compare_milliseconds(title, contestants, cwd, rounds):
    print(f"\n{title}")
    names = list(contestants)
    for command in contestants.values():
        run(command, cwd)
    measured = {name: [] for name in names}
    for i in range(rounds):
        for name in names if i % 2 == 0 else reversed(names):
            measured[name].append(run(contestants[name], cwd)[0] * 1000)
    widths = [max(map(len, names)), 9, 14]
    print(row(["", "wall ms", "overhead ms"], widths))
    for name in names:
        extra = statistics.median(m - b for m, b in zip(measured[name], measured[names[0]]))
        print(row([name, f"{statistics.median(measured[name]):.1f}", f"{extra:+.1f}"], widths))
    print("  wanted: at most +3 ms")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11, help="pairs per comparison (default 11)")
    parser.add_argument("--only", choices=("device", "host"), help="one part only")
    options = parser.parse_args()
    work = tempfile.mkdtemp(prefix="warplink-bench-")
    try:
        version = subprocess.run([os.path.join(LLVM, "clang-linker-wrapper"), "--version"], capture_output=True, text=True)
        print(f"warplink against {version.stdout.splitlines()[0]}; {options.rounds} rounds, medians; load "
              f"{os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
        if options.only != "host":
            device_links(work, options.rounds)
        if options.only != "device":
            host_links(work, options.rounds)
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
