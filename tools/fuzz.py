#!/usr/bin/env python3
"""Fuzzes the parsers: docs/fuzzing.md says what for.

    tools/fuzz.py seeds             makes fuzz/corpus/TARGET out of the inputs of the tests
    tools/fuzz.py build             builds the targets (nightly Rust, cargo-fuzz)
    tools/fuzz.py run [TARGET ...]  runs them in turn, until each has had its CPU minutes
    tools/fuzz.py table             what has been run so far

Options of run: --minutes N of CPU time for each target (30), --until HH:MM, --slice SECONDS (120), --at-once N (2). What was run is
added up in target/fuzz-campaign/, across calls; findings lie there as well, and a finding ends a target's turn, not the campaign.
"""

import argparse
import datetime
import json
import os
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import threading
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FUZZ = ROOT / "fuzz"
CORPUS = FUZZ / "corpus"
CAMPAIGN = ROOT / "target" / "fuzz-campaign"
INPUTS = ROOT / "test-inputs"
TARGETS = sorted(path.stem for path in (FUZZ / "fuzz_targets").glob("*.rs"))
# Inputs are cut here: what goes wrong in a large file goes wrong in a small one, and small ones are fast.
MAX_LEN = 16384


def tool(name):
    """A program of LLVM or the toolkit; None if it is nowhere."""
    places = [os.environ.get("LLVM", "/usr/lib/llvm-22/bin")]
    if "CUDA_PATH" in os.environ:
        places.append(os.path.join(os.environ["CUDA_PATH"], "bin"))
    return shutil.which(name, path=os.pathsep.join(places + [os.environ.get("PATH", "")]))


class Seeds:
    """Writes seeds. What cannot be made, for want of a tool, is left out and said."""

    def __init__(self, scratch):
        self.scratch = Path(scratch)
        self.counts = {}
        self.missing = set()

    def add(self, targets, name, data):
        if len(data) > MAX_LEN:
            return
        for target in targets.split():
            folder = CORPUS / target
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"seed-{name}").write_bytes(data)
            self.counts[target] = self.counts.get(target, 0) + 1

    def make(self, program, *arguments, output=None):
        """Runs a tool in the scratch folder; the bytes of `output`, None if it did not work."""
        path = tool(program)
        if path is None:
            self.missing.add(program)
            return None
        done = subprocess.run([path, *map(str, arguments)], cwd=self.scratch, capture_output=True)
        if done.returncode != 0:
            return None
        return (self.scratch / output).read_bytes() if output else done.stdout

    def text(self, targets, name, text):
        self.add(targets, name, text.encode())

    def all(self):
        self.offload_binaries()
        self.objects()
        self.archives()
        self.device_files()
        self.texts()
        self.cache()

    def offload_binaries(self):
        image = self.scratch / "image.bc"
        image.write_bytes(b"BC\xc0\xde" + bytes(40))
        for count in (1, 2):
            images = [f"--image=file=image.bc,triple=nvptx64-nvidia-cuda,arch=sm_{90 + 10 * n},kind=cuda" for n in range(count)]
            packed = self.make("llvm-offload-binary", "-o", "packed", *images, output="packed")
            if packed:
                self.add("offload_binary metadata extract", f"v1-{count}", packed)
        strings = {"triple": "nvptx64-nvidia-cuda", "arch": "sm_90", "ptx": "all"}
        for version in (2, 3):
            for count in (1, 3):
                plain = offload_binary(version, [(strings, b"BC\xc0\xde\0image")] * count)
                self.add("offload_binary metadata extract", f"v{version}-{count}", plain)
        stored = offload_binary(3, [(strings, b"BC\xc0\xde\0image" * 9)] * 2)
        self.add("offload_binary metadata extract", "v3-zlib", compressed(stored, zlib.compress(stored[40:])))
        zstd = tool("zstd")
        if zstd:
            packed = subprocess.run([zstd, "-q", "-c"], input=stored[40:], capture_output=True, check=True).stdout
            self.add("offload_binary metadata extract", "v3-zstd", compressed(stored, packed))
        else:
            self.missing.add("zstd")
        for level in (0, 1, 9):
            text = bytes(n * n // 7 % 13 for n in range(800))
            self.add("offload_binary", f"inflate-{level}", bytes([100]) + zlib.compress(text, level))

    def objects(self):
        """Host objects of the tests of offload-object, as clang, llvm-mc and yaml2obj make them."""
        folder = INPUTS / "offload-object"
        for path in sorted(folder.glob("*.yaml")):
            data = self.make("yaml2obj", path, "-o", "object", output="object")
            if data:
                kind = "coff_object" if "coff" in path.stem else "elf_object"
                self.add(f"{kind} metadata extract", f"yaml-{path.stem}", data)
        triples = ["x86_64-linux-gnu", "aarch64-linux-gnu", "i686-linux-gnu", "powerpc64-linux-gnu", "s390x-linux-gnu"]
        triples += ["x86_64-windows-msvc", "i686-windows-msvc", "aarch64-windows-msvc"]
        for path in sorted(folder.glob("*.c")):
            for triple in triples:
                data = self.make("clang", "-c", "-O1", f"--target={triple}", "-ffreestanding", path, "-o", "object", output="object")
                if data:
                    kind = "coff_object" if "windows" in triple else "elf_object"
                    self.add(f"{kind} metadata extract", f"{path.stem}-{triple.split('-')[0]}", data)
        # Something embedded, and linked with -r and as programs.
        (self.scratch / "one.c").write_text("int f(void) { return 1; }\n")
        for triple in ("x86_64-linux-gnu", "x86_64-windows-msvc"):
            image = f"-fembed-offload-object={self.scratch / 'packed'}"
            data = self.make("clang", "-cc1", "-triple", triple, "-emit-obj", "one.c", "-o", "one.o", image, output="one.o")
            if data:
                self.add("coff_object metadata extract" if "windows" in triple else "elf_object metadata extract", f"embedded-{triple}", data)
        for linker in ("ld.lld", "ld"):
            self.make("clang", "-c", "-O1", "-fPIC", folder / "entries.c", "-o", "entries.o")
            for flags in (["-r"], ["-shared"], ["-shared", "--emit-relocs"], ["-shared", "-z", "pack-relative-relocs"]):
                data = self.make(linker, *flags, "entries.o", "-o", "linked", output="linked")
                if data:
                    self.add("elf_object", f"{linker}{''.join(flags)}", data)
        cuda = os.environ.get("CUDA_PATH")
        if cuda:
            flags = [f"--cuda-path={cuda}", "-fgpu-rdc", "-foffload-lto", "--offload-arch=sm_90", "-Wno-unknown-cuda-version", "-w"]
            data = self.make("clang++", "-c", "-O1", *flags, folder / "kernels.cu", "-o", "kernels.o", output="kernels.o")
            if data:
                self.add("elf_object metadata extract", "clang-cuda", data)

    def archives(self):
        for name, text in (("a.o", b"one"), ("a_member_with_a_long_name.o", b"more"), ("b.o", b"")):
            (self.scratch / name).write_bytes(text)
        members = ["a.o", "a_member_with_a_long_name.o", "b.o"]
        if (self.scratch / "one.o").exists():
            members.append("one.o")
        for form in ("gnu", "bsd", "darwin", "coff"):
            data = self.make("llvm-ar", "rcS" if form == "coff" else "rc", f"--format={form}", f"{form}.a", *members, output=f"{form}.a")
            if data:
                self.add("archive metadata", form, data)
        thin = self.make("llvm-ar", "rc", "--thin", "thin.a", *members, output="thin.a")
        if thin:
            self.add("archive", "thin", thin)
        header = b"%-16s%-12d%-6d%-6d%-8s%-10d`\n"
        inner = b"!<arch>\n" + header % (b"a.o/", 0, 0, 0, b"644", 4) + b"data"
        outer = b"!<thin>\n" + header % (b"//", 0, 0, 0, b"", 10) + b"inner.a/\n\n" + header % (b"/0:8", 0, 0, 0, b"644", 4)
        self.add("archive", "nested", outer + inner)

    def device_files(self):
        folder = INPUTS / "fatbin"
        for path in sorted(folder.glob("*.ptx")):
            self.add("ptx extract", path.stem, path.read_bytes())
            for arch in ("sm_75", "sm_90", "sm_100"):
                for flags in ([], ["-c"], ["-g", "-O0"]):
                    data = self.make("ptxas", *flags, f"-arch={arch}", path, "-o", "cubin", output="cubin")
                    if data:
                        self.add("cubin extract", f"{path.stem}-{arch}{''.join(flags)}", data)
        (self.scratch / "small.ptx").write_text(SMALL_PTX)
        self.text("ptx extract", "small", SMALL_PTX)
        self.text("ptx", "declared", DECLARED_PTX)
        for arch in ("75", "90"):
            data = self.make("ptxas", f"-arch=sm_{arch}", "small.ptx", "-o", f"small{arch}.cubin", output=f"small{arch}.cubin")
            if data:
                self.add("cubin extract", f"small-{arch}", data)
        self.add("cubin", "hand", hand_made_cubin())
        hand = hand_made_fatbin()
        self.add("fatbin extract", "hand", hand)
        for mode in ("none", "size", "speed", "balance"):
            images = ["--image3=kind=elf,sm=90,file=small90.cubin", "--image3=kind=ptx,sm=75,file=small.ptx"]
            data = self.make("fatbinary", "-64", f"--compress-mode={mode}", "--create=fatbin", *images, output="fatbin")
            if data:
                self.add("fatbin extract", f"tool-{mode}", data)
        for path in sorted((INPUTS / "llvm-lto").glob("*.ll")):
            data = self.make("llvm-as", path, "-o", "module.bc", output="module.bc")
            if data:
                self.add("bitcode_header", path.stem, data)
                self.add("bitcode_header", f"{path.stem}-twice", data * 2)

    def texts(self):
        for path in sorted(ROOT.glob("crates/device-link/src/script.rs")):
            for number, text in enumerate(re.findall(r'\("((?:[^"\\]|\\.)*)",', path.read_text())):
                self.text("linker_script", f"test-{number}", text.encode().decode("unicode_escape"))
        self.text("linker_script", "libc", "/* GNU ld script\n*/\nOUTPUT_FORMAT(elf64-x86-64)\nGROUP ( /lib/libc.so.6 AS_NEEDED ( a.so ) )\n")
        options = (ROOT / "crates/device-link/src/link_line/own.rs").read_text()
        table = (ROOT / "crates/device-link/src/link_line/table.rs").read_text()
        for number, name in enumerate(re.findall(r'row\("([^"]+)"', table)):
            self.text("link_line", f"row-{number}", f"a.o --{name} -{name} value --{name}=value b.o")
        for number, name in enumerate(sorted(set(re.findall(r'"([a-z][a-z-]+)"', options)))):
            self.text("link_line", f"own-{number}", f"--warplink-{name} 1 --warplink-{name}=all,sm_90 WARPLINK_{name.upper().replace('-', '_')}=2")
        self.text("link_line", "line", "-o 'a b' -L/usr/lib -lfoo -l:x.a --start-group a.o --end-group --whole-archive l.a --no-whole-archive")
        self.text("link_line", "wrapper", "--host-triple=x86_64-windows-msvc --linker-path=lld-link --should-extract=sm_90 -- /out:a.exe /libpath:x a.obj")
        self.text("link_line", "device", "--device-linker=nvptx64-nvidia-cuda=-O3 --device-compiler=--cuda-path=/x -mllvm -x --opt-level=O2")
        command = "/usr/bin/clang++ -c -O2 -fgpu-rdc --cuda-include-ptx=sm_90 -Xcuda-ptxas -v dir\\ with\\ blanks/a.cu --no-cuda-include-ptx=all"
        for number, text in enumerate([command, "all", "sm_90,sm_100f", "9.0a 90", "\\", "a\\\\b \\ "]):
            self.text("compile_command", str(number), text)

    def cache(self):
        parts = [b"cubin", b"", b"8.7", b"ptxas", b"a warning"]
        lengths = b"".join(struct.pack("<Q", len(part)) for part in parts)
        self.add("cache_entry", "body", struct.pack("<II", 3, 1) + lengths + b"".join(parts))
        self.add("cache_entry", "none", bytes(8))
        image = {"arch": "sm_90", "cubin": True, "ptx": "8.7", "names": ["_Z1kv"]}
        facts = {"names": "00", "runtime": None, "modules": ["m"], "only-modules": False, "images": [image]}
        self.text("cache_entry", "facts", json.dumps(facts))
        record = {"output": "/a", "time": 1, "outcome": "miss", "reasons": ["x"], "key": "00", "fields": [["a.o", "input", "00", "t"]]}
        self.text("cache_entry", "record", json.dumps(record))
        self.text("cache_entry", "history", json.dumps({"schema": 1, "output": "a", "inputs": [{"name": "a.o"}], "stamp": None}))


def offload_binary(version, images):
    """Version 2 or 3, stored."""
    head = 32 if version == 2 else 40
    count = sum(len(strings) for strings, _ in images)
    table = head + 40 * len(images) + 24 * count
    text, places = b"\0", {}
    for strings, _ in images:
        for part in [part for pair in strings.items() for part in pair]:
            if part not in places:
                places[part] = table + len(text)
                text += part.encode() + b"\0"
    text += bytes(-(table + len(text)) % 8)
    at, first, entries, pairs, body = table + len(text), head + 40 * len(images), b"", b"", b""
    for strings, image in images:
        entries += struct.pack("<HHIQQQQ", 2, 2, 0, first + len(pairs), len(strings), at + len(body), len(image))
        for key, value in strings.items():
            pairs += struct.pack("<QQQ", places[key], places[value], len(value))
        body += image
    body += bytes(-(at + len(body)) % 8)
    header = struct.pack("<IIQQQ", 0xAD10FF10, version, at + len(body), head, len(images))
    return header + (struct.pack("<Q", 0) if version == 3 else b"") + entries + pairs + text + body


def compressed(stored, packed):
    header = bytearray(stored[:40])
    struct.pack_into("<Q", header, 8, 40 + len(packed))
    struct.pack_into("<Q", header, 32, len(stored))
    data = bytes(header) + packed
    return data + bytes(-len(data) % 8)


def hand_made_fatbin():
    """Stored PTX with an identifier and options, and a cubin."""
    text = SMALL_PTX.encode() + b"\0"
    text += bytes(-len(text) % 8)
    extension = b"a.cu\0\0\0\0" + struct.pack("<II", 80, 2) + b"-v\0\0\0\0\0\0"
    ptx = struct.pack("<HHIQIIHHIIIQQQ", 1, 0x101, 64 + len(extension), len(text), 0, 72, 7, 8, 90, 64, 4, 0x11, 0, 0)
    cubin = hand_made_cubin()
    elf = struct.pack("<HHIQIIHHIIIQQQ", 2, 0x101, 64, len(cubin), 0, 0, 7, 1, 90, 0, 0, 0x11, 0, 0)
    entries = ptx + extension + text + elf + cubin
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(entries)) + entries


def hand_made_cubin():
    """A relocatable cubin with a kernel, what it needs, and a reference to another."""
    strings = b"\0_Z1kv\0_Z1gv\0"
    symbols = bytes(24) + struct.pack("<IBBHQQ", 1, 0x12, 0x10, 4, 0, 16) + struct.pack("<IBBHQQ", 7, 0x10, 0, 0, 0, 0)
    info = b"\x04\x2f\x08\x00" + struct.pack("<II", 1, 24) + b"\x04\x11\x08\x00" + struct.pack("<II", 1, 0)
    graph = struct.pack("<IIII", 0, 0xFFFFFFFE, 2, 1)
    sections = [
        ("", 0, b"", 0, 0),
        (".strtab", 3, strings, 0, 0),
        (".symtab", 2, symbols, 1, 1),
        (".nv.info", 0x70000000, info, 2, 0),
        (".text._Z1kv", 1, bytes(16), 2, 1),
        (".rel.text._Z1kv", 9, struct.pack("<QII", 0, 0x39, 2), 2, 4),
        (".nv.callgraph", 0x70000001, graph, 2, 0),
        (".nv.shared._Z1kv", 8, b"", 0, 0),
    ]
    names = b"".join(name.encode() + b"\0" for name, *_ in sections) + b".shstrtab\0"
    sections.append((".shstrtab", 3, names, 0, 0))
    body, headers, at = b"", b"", 0
    for name, kind, data, link, info in sections:
        headers += struct.pack("<IIQQQQIIQQ", at, kind, 0, 0, 64 + len(body), len(data), link, info, 1, 0)
        at += len(name) + 1
        body += data + bytes(-len(data) % 8)
    ident = b"\x7fELF\x02\x01\x01\x41\x08" + bytes(7)
    header = struct.pack("<HHIQQQIHHHHHH", 1, 190, 1, 0, 0, 64 + len(body), 0x06005A04, 64, 0, 0, 64, len(sections), len(sections) - 1)
    return ident + header + body + headers


SMALL_PTX = """// one kernel
.version 7.0
.target sm_75
.address_size 64
.global .align 4 .u32 counter = 1;
.visible .entry _Z1kv(.param .u64 p)
.maxntid 128, 1, 1
{
	.reg .b64 %rd<2>; /* registers */
	ld.param.u64 %rd1, [p];
	ret;
}
"""

DECLARED_PTX = """.version 8.7
.target sm_90a, debug
.address_size 64
.extern .func kernel1
(
.param .b64 kernel1_param_0
)
;
.weak .func (.param .b32 r) helper (.param .b32 a) { ret; }
.extern .shared .align 16 .b8 buffer[];
.file 1 "a \\" b.cu"
.visible .const .align 8 .b8 table[4] = {1, 2, 3, 4};
"""


def seeds():
    with tempfile.TemporaryDirectory() as scratch:
        made = Seeds(scratch)
        made.all()
    for target in TARGETS:
        print(f"{target}: {made.counts.get(target, 0)} seeds")
    if made.missing:
        print(f"not there, so that seeds are missing: {', '.join(sorted(made.missing))}", file=sys.stderr)
    empty = [target for target in TARGETS if not made.counts.get(target)]
    if empty:
        sys.exit(f"no seeds for {', '.join(empty)}")


def host():
    answer = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    return re.search(r"^host: (.*)$", answer, re.M).group(1)


def build():
    # Without a sanitizer: the parsers are safe Rust, and what is sought are panics, broken promises, time and memory.
    subprocess.run(["cargo", "+nightly", "fuzz", "build", "-s", "none", "-O", "-a"], cwd=FUZZ, check=True)


class Campaign:
    """What has been run, added up over calls."""

    def __init__(self):
        CAMPAIGN.mkdir(parents=True, exist_ok=True)
        self.file = CAMPAIGN / "totals.json"
        self.totals = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.lock = threading.Lock()

    def of(self, target):
        return self.totals.setdefault(target, {"executions": 0, "cpu": 0.0, "slices": 0, "findings": []})

    def note(self, target, executions, cpu, finding):
        with self.lock:
            total = self.of(target)
            total["executions"] += executions
            total["cpu"] += cpu
            if finding and finding not in total["findings"]:
                total["findings"].append(finding)
            total["slices"] += 1
            partial = self.file.with_suffix(".new")
            partial.write_text(json.dumps(self.totals, indent=1))
            partial.replace(self.file)
            table = self.table()
        (CAMPAIGN / "table.txt").write_text(table)
        if "FUZZ_TABLE" in os.environ:
            Path(os.environ["FUZZ_TABLE"]).write_text(table)

    def table(self):
        lines = [f"{'target':<16} {'executions':>13} {'CPU minutes':>12} {'findings':>9}"]
        rows = [(target, self.of(target)) for target in TARGETS]
        for target, total in rows:
            lines.append(f"{target:<16} {total['executions']:>13,} {total['cpu'] / 60:>12.1f} {len(total['findings']):>9}")
        executions, cpu = sum(total["executions"] for _, total in rows), sum(total["cpu"] for _, total in rows)
        lines.append(f"{'all':<16} {executions:>13,} {cpu / 60:>12.1f} {sum(len(total['findings']) for _, total in rows):>9}")
        return "\n".join(lines) + "\n"

    def slice(self, target, seconds):
        """Runs a target for this long by the clock and adds up what it did. Whether it could be run."""
        program = FUZZ / "target" / host() / "release" / target
        corpus, found = CAMPAIGN / "corpus" / target, CAMPAIGN / "findings" / target
        for folder in (corpus, found):
            folder.mkdir(parents=True, exist_ok=True)
        before = set(found.iterdir())
        command = [program, corpus, CORPUS / target, f"-max_total_time={seconds}", "-timeout=10", "-rss_limit_mb=2048"]
        command += [f"-max_len={MAX_LEN}", f"-artifact_prefix={found}/", "-print_final_stats=1", "-reload=0", "-verbosity=1"]
        log = CAMPAIGN / f"{target}.log"
        idle = ["chrt", "-i", "0", "nice", "-n", "19"] if shutil.which("chrt") else ["nice", "-n", "19"]
        with log.open("wb") as output:
            try:
                child = subprocess.Popen([*idle, *map(str, command)], stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=CAMPAIGN)
            except OSError as error:
                print(f"{target}: {error}", file=sys.stderr)
                return False
            _, _, usage = os.wait4(child.pid, 0)
            child.returncode = 0
        text = log.read_text(errors="replace")
        counts = re.findall(r"stat::number_of_executed_units:\s*(\d+)", text) or re.findall(r"^#(\d+)\s", text, re.M)
        executions = int(counts[-1]) if counts else 0
        # Slow units are noted by libFuzzer, and are no findings. One that is known, by its place in the source, is none again.
        finding = None
        for path in sorted(set(found.iterdir()) - before):
            if path.name.startswith("slow-unit-"):
                continue
            place = re.search(r"panicked at (\S+?):\d+: *\n(.{0,40})", text)
            finding = " ".join(place.groups()) if place else path.name.split("-")[0]
            shutil.copy(log, path.with_name(path.name + ".txt"))
        self.note(target, executions, usage.ru_utime + usage.ru_stime, finding)
        return executions > 0


def run(options):
    campaign = Campaign()
    end = None
    if options.until:
        hour, minute = map(int, options.until.split(":"))
        end = datetime.datetime.now().replace(hour=hour, minute=minute, second=0)
    busy, failed, lock = set(), {}, threading.Lock()

    def next_target():
        """The target that has had least, of those that nobody runs now."""
        with lock:
            waiting = [target for target in options.targets if target not in busy and failed.get(target, 0) < 3]
            waiting = [target for target in waiting if campaign.of(target)["cpu"] < options.minutes * 60]
            if not waiting or (end and datetime.datetime.now() >= end):
                return None
            target = min(waiting, key=lambda target: campaign.of(target)["cpu"])
            busy.add(target)
            return target

    def work():
        while (target := next_target()) is not None:
            seconds = options.slice
            if end:
                seconds = max(1, min(seconds, int((end - datetime.datetime.now()).total_seconds())))
            done = campaign.slice(target, seconds)
            with lock:
                busy.discard(target)
                failed[target] = 0 if done else failed.get(target, 0) + 1

    workers = [threading.Thread(target=work) for _ in range(options.at_once)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print(campaign.table(), end="")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["seeds", "build", "run", "table"])
    parser.add_argument("targets", nargs="*", metavar="TARGET")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--until")
    parser.add_argument("--slice", type=int, default=120)
    parser.add_argument("--at-once", type=int, default=2)
    options = parser.parse_intermixed_args()
    unknown = [target for target in options.targets if target not in TARGETS]
    if unknown:
        parser.error(f"there is no target {unknown[0]}; there are {', '.join(TARGETS)}")
    options.targets = options.targets or TARGETS
    if options.what == "seeds":
        seeds()
    elif options.what == "build":
        build()
    elif options.what == "run":
        run(options)
    else:
        print(Campaign().table(), end="")


main()
