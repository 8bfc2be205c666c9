#!/usr/bin/env python3
"""Paired link benchmark: see tools/bench.sh, which sets the environment.

Every comparison runs its contestants in turn, round by round, in changing order, so that a change of
the machine's load meets all of them. Reported are medians, the spread (half the distance between the quartiles)
of the wall time, and the median of the rounds' ratios to the first contestant. CPU time is user + system of the
whole process tree. Memory is measured in rounds of its own: the largest process (as the kernel counts it) and
the largest sum over the tree (sampled PSS). `--svg FILE` draws what was measured.
"""

import argparse
import concurrent.futures
import math
import os
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

import bench_svg

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
CUDA = os.environ["CUDA_PATH"]
LLVM = os.environ["LLVM"]
BIN_DIR = os.environ["WARPLINK_BIN_DIR"]
CLANG = os.path.join(LLVM, "clang++")
RUNTIME = [f"-L{CUDA}/lib", f"-L{CUDA}/lib64", "-lcudart_static", "-ldl", "-lpthread", "-lrt"]
DEMO = os.path.join(ROOT, "test-inputs", "demo")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("WARPLINK_", "CUDA_"))}
ENVIRONMENT["WARPLINK_NO_CACHE"] = "1"
CHARTS = []
"""What `--svg` draws: a `bench_svg.Chart` for each table."""


def run(command, cwd, environment=None):
    """Runs a command and gives its wall time, CPU time (s) and the RSS of its largest process (MiB)."""
    start = time.perf_counter()
    child = subprocess.Popen(command, cwd=cwd, env=environment or ENVIRONMENT, stdin=subprocess.DEVNULL,
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


def spread(values):
    """Half the distance between the quartiles."""
    if len(values) < 3:
        return (max(values) - min(values)) / 2
    low, _, high = statistics.quantiles(values, n=4)
    return (high - low) / 2


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
    widths = [max(map(len, names)), 9, 6, 9, 13, 15, 11, 10]
    print(row(["", "wall ms", "+-", "CPU ms", "max RSS MiB", "tree PSS MiB", "wall ratio", "CPU ratio"], widths))
    base = measured[names[0]]
    bars = []
    for name in names:
        wall, cpu, rss = (statistics.median(m[i] for m in measured[name]) for i in range(3))
        around = spread([m[0] for m in measured[name]])
        wall_ratio, cpu_ratio = (statistics.median(m[i] / b[i] for m, b in zip(measured[name], base)) for i in range(2))
        print(row([name, f"{wall * 1000:.0f}", f"{around * 1000:.0f}", f"{cpu * 1000:.0f}", f"{rss:.0f}", f"{totals[name]:.0f}",
                   f"{wall_ratio:.2f}", f"{cpu_ratio:.2f}"], widths))
        bars.append(bench_svg.Bar(name, wall * 1000, around * 1000, f"{wall_ratio:.2f}"))
    if target:
        print(f"  wanted: {target}")
    CHARTS.append(bench_svg.Chart(title, "ms", bars))


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


def nvcc_program(work):
    """nvcc in a toolkit whose nvlink finds libnvvm, which -dlto needs; none where nvcc or g++ is missing.

    NVIDIA's Python packages have the library where nvlink does not look: then a folder of links has it where it should be, with nvcc
    itself, which looks beside itself, copied.
    """
    nvcc = os.path.join(CUDA, "bin", "nvcc")
    if not os.path.exists(nvcc) or not shutil.which("g++"):
        return None
    libraries = [os.path.join(CUDA, folder, name) for folder in ("nvvm/lib64", "lib64", "lib")
                 for name in ("libnvvm.so", "libnvvm.so.4") if os.path.exists(os.path.join(CUDA, folder, name))]
    if not libraries or libraries[0].endswith("nvvm/lib64/libnvvm.so"):
        return nvcc
    toolkit = os.path.join(work, "toolkit")
    if not os.path.exists(toolkit):
        os.makedirs(os.path.join(toolkit, "bin"))
        os.makedirs(os.path.join(toolkit, "nvvm", "lib64"))
        for name in os.listdir(os.path.join(CUDA, "bin")):
            place = shutil.copy if name.startswith("nvcc") else os.symlink
            place(os.path.join(CUDA, "bin", name), os.path.join(toolkit, "bin", name))
        for name in ("include", "lib", "lib64", "nvvm/bin", "nvvm/libdevice"):
            os.symlink(os.path.join(CUDA, name), os.path.join(toolkit, name))
        os.symlink(libraries[0], os.path.join(toolkit, "nvvm", "lib64", "libnvvm.so"))
    return os.path.join(toolkit, "bin", "nvcc")


def nvcc_links(sources, archs, cwd, prefix, linker="bfd"):
    """nvcc's command lines for the same program, without and with its own device LTO; compiles the objects first.

    nvcc has run ptxas when it compiled, unless -dlto leaves that to the link. What its driver adds to a link is in its account: nobody
    can link without it.
    """
    nvcc = nvcc_program(cwd)
    commands = {}
    if not nvcc:
        print("  (no nvcc or no g++ here: its rows are left out)")
        return commands

    def targets(kind):
        return [f"-gencode=arch=compute_{arch[3:]},code={kind}_{arch[3:]}" for arch in archs.split(",")]

    def compile_one(source, kind):
        output = os.path.join(f"{prefix}-{kind}", os.path.splitext(os.path.basename(source))[0] + ".o")
        subprocess.check_call([nvcc, "-rdc=true", "-O2", "-w", *targets(kind), f"-I{DEMO}", "-c", source, "-o", output],
                              cwd=cwd, env=ENVIRONMENT)
        return output

    for name, kind, options in (("nvcc -rdc, no LTO", "sm", []), ("nvcc -rdc -dlto", "lto", ["-dlto"])):
        os.makedirs(os.path.join(cwd, f"{prefix}-{kind}"), exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            objects = list(pool.map(compile_one, sources, [kind] * len(sources)))
        threads = ["--threads", "0"] if "," in archs else []
        commands[name] = [nvcc, "-w", *options, *targets("sm"), *threads, *objects, f"-L{CUDA}/lib", "-Xcompiler", f"-fuse-ld={linker}",
                          "-o", f"{prefix}-{kind}.out"]
    return commands


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
                {"clang-linker-wrapper": peer, "warplink": ours,
                 **nvcc_links(["one.cu", "two.cu"], "sm_80,sm_90", work, f"{linker}2", linker)}, work, rounds,
                "wall at most 0.50, CPU at most 0.50, memory not above the peer's; never slower than nvcc -dlto")
    peer, ours = links(["one4.o", "two4.o"], "bfd", work)
    compare(f"(b) the same for four architectures, {os.cpu_count()} cores",
            {"clang-linker-wrapper": peer, "... --wrapper-jobs=2": peer + ["--wrapper-jobs=2"], "warplink": ours,
             **nvcc_links(["one.cu", "two.cu"], "sm_80,sm_86,sm_90,sm_100", work, "bfd4")}, work, rounds,
            "wall at most 0.55 of the first line's")


def generated_links(work, rounds, units, kernels):
    """A large generated program (generate.py): cold links for one and four architectures, and what a relink costs."""
    source = os.path.join(work, "generated")
    generate = [sys.executable, os.path.join(ROOT, "tools", "generate.py"), str(units), str(kernels), source]
    subprocess.check_call(generate)
    names = ["main", *(f"u{unit}" for unit in range(units))]

    def compile_all(archs, directory, which, *options):
        os.makedirs(os.path.join(source, directory), exist_ok=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda name: compile_unit(f"{name}.cu", f"{directory}/{name}.o", archs, source, *options), which))

    compile_all("sm_90", "one", names)
    compile_all("sm_80,sm_86,sm_90,sm_100", "four", names)
    size = f"{units} units x {kernels} kernels"
    peer, ours = links([f"one/{name}.o" for name in names], "bfd", source)
    sources = [f"{name}.cu" for name in names]
    compare(f"(d) {size}, one architecture, cold, {os.cpu_count()} cores", {
        "clang-linker-wrapper": peer, "warplink": ours, **nvcc_links(sources, "sm_90", source, "nvcc1"),
    }, source, rounds, "wall at most 0.60; never slower than nvcc -dlto")
    four_peer, four_ours = links([f"four/{name}.o" for name in names], "bfd", source)
    compare(f"(e) {size}, four architectures, cold", {
        "clang-linker-wrapper": four_peer, "... --wrapper-jobs=2": four_peer + ["--wrapper-jobs=2"], "warplink": four_ours,
        **nvcc_links(sources, "sm_80,sm_86,sm_90,sm_100", source, "nvcc4"),
    }, source, rounds, "wall at most 0.45 of the first line's and 0.80 of the second's")
    relinks(source, ours, names, rounds, size)


def relinks(source, cold, names, rounds, size):
    """The same link again, one host object changed, one device function changed; against the bare host link and the cold link."""
    objects = [f"one/{name}.o" for name in names]
    host = driver_command([CLANG, *objects, *RUNTIME, "-fuse-ld=bfd", "-o", "host"], source)
    cached = {k: v for k, v in ENVIRONMENT.items() if k != "WARPLINK_NO_CACHE"}
    times = {name: [] for name in ("bare host link", "cold, no cache", "cold, empty cache", "the same again", "a host object changed",
                                   "a device function changed")}
    with open(os.path.join(source, "other.c"), "w") as file:
        file.write("int other;\n")
    for turn in range(rounds):
        cache = os.path.join(source, f"cache{turn}")
        cached["WARPLINK_CACHE_DIR"] = cache
        times["bare host link"].append(run(host, source)[0])
        times["cold, no cache"].append(run(cold, source)[0])
        times["cold, empty cache"].append(run(cold, source, cached)[0])
        times["the same again"].append(run(cold, source, cached)[0])
        subprocess.check_call([os.path.join(LLVM, "clang"), "-c", f"-DVALUE={turn}", "other.c", "-o", "other.o"], cwd=source)
        changed = cold[:1] + ["other.o"] + cold[1:]
        times["a host object changed"].append(run(changed, source, cached)[0])
        # Another unit in each turn, or the part would be in the cache.
        unit = names[1 + turn % (len(names) - 1)]
        copy = os.path.join(source, "changed")
        subprocess.check_call([sys.executable, os.path.join(ROOT, "tools", "generate.py"), str(len(names) - 1),
                               size.split()[3], copy, "--change", unit[1:]])
        compile_unit(f"{unit}.cu", f"{unit}.o", "sm_90", copy)
        line = [f"changed/{unit}.o" if word == f"one/{unit}.o" else word for word in cold]
        times["a device function changed"].append(run(line, source, cached)[0])
        shutil.rmtree(cache)
    print(f"\n(f) {size}, one architecture: relinks, ms (median of {rounds})")
    medians = {name: statistics.median(values) * 1000 for name, values in times.items()}
    device = medians["cold, no cache"] - medians["bare host link"]
    widths = [max(map(len, medians)), 9, 16, 22]
    print(row(["", "wall ms", "above host link", "of cold device part"], widths))
    for name, median in medians.items():
        above = median - medians["bare host link"]
        print(row([name, f"{median:.0f}", f"{above:+.0f}", f"{above / device:.3f}"], widths))
    CHARTS.append(bench_svg.Chart(f"(f) {size}, one architecture: relinks", "ms", [
        bench_svg.Bar(name, median, spread(times[name]) * 1000, "") for name, median in medians.items()]))
    print("  wanted: the same again and a host change at most 10 ms + 3 ms per MB of device code, a device change at most 0.100")


def growth(work, rounds, kernels):
    """How time and memory grow with the number of units: the exponent of a power law through 20 to 200 units."""
    counts = (20, 40, 80, 200)
    figures = {"clang-linker-wrapper": [], "warplink": [], "warplink, one part": []}
    for units in counts:
        source = os.path.join(work, f"growth{units}")
        subprocess.check_call([sys.executable, os.path.join(ROOT, "tools", "generate.py"), str(units), str(kernels), source])
        names = ["main", *(f"u{unit}" for unit in range(units))]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            list(pool.map(lambda name: compile_unit(f"{name}.cu", f"{name}.o", "sm_90", source), names))
        peer, ours = links([f"{name}.o" for name in names], "bfd", source)
        for name, command in zip(figures, (peer, ours, [*ours, "--warplink-partition=never"])):
            run(command, source)
            wall = statistics.median(run(command, source)[0] for _ in range(rounds))
            figures[name].append((wall, peak_of_tree(command, source)))
        shutil.rmtree(source)
    print(f"\n(g) growth: units of {kernels} kernels, one architecture, cold (median of {rounds})")
    widths = [max(map(len, figures)), *(16 for _ in counts), 15, 15]
    print(row(["", *(f"{units} units" for units in counts), "time exponent", "PSS exponent"], widths))
    for name, values in figures.items():
        cells = [f"{wall:.2f} s {pss:.0f} MiB" for wall, pss in values]
        print(row([name, *cells, *(f"{exponent(counts, [v[i] for v in values]):.2f}" for i in range(2))], widths))
    print("  wanted: time exponent at most 1.05, memory at most 1.2 times the peer's")
    CHARTS.append(bench_svg.Chart(f"(g) units of {kernels} kernels, one architecture, cold", "s", [
        bench_svg.Bar(f"{name}, {units} units", value[0], 0, f"{value[1]:.0f} MiB")
        for index, units in enumerate(counts) for name, value in ((name, values[index]) for name, values in figures.items())]))


def exponent(sizes, values):
    """Of the power law that fits best: the slope of a line through the logarithms."""
    return statistics.linear_regression([math.log(s) for s in sizes], [math.log(v) for v in values]).slope


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
    CHARTS.append(bench_svg.Chart(title, "ms", [
        bench_svg.Bar(name, statistics.median(values), spread(values), "") for name, values in measured.items()]))
    print("  wanted: at most +3 ms")


def machine():
    """What the numbers were measured on and with, in one line."""
    model = "unknown processor"
    try:
        with open("/proc/cpuinfo") as file:
            model = next((line.split(":", 1)[1].strip() for line in file if line.startswith("model name")), model)
    except OSError:
        pass

    def version(*command):
        text = subprocess.run(command, capture_output=True, text=True, check=False).stdout
        return next((line.strip() for line in text.splitlines() if any(word in line for word in ("release", "version", "GNU ld"))), "?")

    return "; ".join([f"{os.cpu_count()} x {model}, load {os.getloadavg()[0]:.1f}", version(os.path.join(LLVM, "clang-linker-wrapper"), "--version"),
                      "ptxas " + version(os.path.join(CUDA, "bin", "ptxas"), "--version"), version("ld.bfd", "--version")])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11, help="pairs per comparison (default 11)")
    parser.add_argument("--only", choices=("device", "host", "generated", "growth"),
                        help="one part only; the last two, minutes of compiling, are only run when asked for")
    parser.add_argument("--svg", metavar="FILE", help="draw what was measured")
    parser.add_argument("--units", type=int, default=40, help="of the generated program")
    parser.add_argument("--kernels", type=int, default=20, help="of each of its units")
    options = parser.parse_args()
    work = tempfile.mkdtemp(prefix="warplink-bench-")
    try:
        about = f"{options.rounds} rounds, medians; {machine()}"
        print(f"warplink against its peers: {about}")
        if options.only in (None, "device"):
            device_links(work, options.rounds)
        if options.only in (None, "host"):
            host_links(work, options.rounds)
        if options.only == "generated":
            generated_links(work, options.rounds, options.units, options.kernels)
        if options.only == "growth":
            growth(work, options.rounds, options.kernels)
        if options.svg:
            with open(options.svg, "w") as file:
                file.write(bench_svg.draw("warplink's links and those of its peers", about, CHARTS))
    finally:
        shutil.rmtree(work)


if __name__ == "__main__":
    main()
