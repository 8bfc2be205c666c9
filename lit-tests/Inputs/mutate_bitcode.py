#!/usr/bin/env python3
"""mutate_bitcode.py OBJECT NUMBERS COMMAND...: damages the device bitcode in an object, for each number (`1-150,616`) in another way, and
links it.

COMMAND is the link line, in which {} stands for the damaged object. Each link must end: with 0, with 1 and an error that names the object,
or, where LLVM has crashed, by a signal and with such an error. No link leaves a file in TMPDIR or a trace of its insides on the terminal,
and one that fails leaves no output (-o). Damage is made from the number alone, so that every run does the same; WARPLINK_MUTATIONS=NUMBERS
takes others.
"""

import concurrent.futures
import os
import random
import re
import subprocess
import sys
import tempfile

LIMIT = 120
INSIDES = re.compile(r"panicked|Stack dump|PLEASE submit|stack backtrace|RUST_BACKTRACE|Assertion|LLVM ERROR")


def bitcode(data):
    """Where the bitcode of the only offload binary (version 1) lies."""
    binary = data.index(b"\x10\xff\x10\xad")
    entry = binary + int.from_bytes(data[binary + 16 : binary + 24], "little")
    start, size = (int.from_bytes(data[at : at + 8], "little") for at in (entry + 24, entry + 32))
    assert data[binary + start :][:4] == b"BC\xc0\xde"
    return binary + start, size


def damage(data, chance):
    """Changes a few of the bytes behind the magic. The size stays."""
    size = len(data)
    for _ in range(chance.choice([1, 1, 2, 4])):
        # Blocks are made of words of four bytes; module and types come first, names last.
        at = chance.randrange(4, chance.choice([size // 8, size // 2, size]))
        how = chance.randrange(7)
        if how == 0:
            data[at] ^= 1 << chance.randrange(8)
        elif how == 1:
            data[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif how == 2:
            data[at] = chance.randrange(256)
        elif how == 3:
            at &= ~3
            data[at : at + 4] = chance.choice([0, 1, 1 << 31, (1 << 32) - 1, size, size // 4]).to_bytes(4, "little")
        elif how == 4:
            other = chance.randrange(4, size)
            part = data[other : other + chance.choice([1, 4, 16])]
            data[at : at + len(part)] = part
        elif how == 5:
            end = min(size, at + chance.randrange(1, 9))
            data[at:end] = bytes(end - at)
        else:
            # All bits behind it move.
            value = int.from_bytes(data[at:], "little") << chance.choice([1, 3, 8])
            data[at:] = value.to_bytes(size - at + 4, "little")[: size - at]
    del data[size:]


def main():
    source, command = sys.argv[1], sys.argv[3:]
    ranges = [part.split("-") for part in os.environ.get("WARPLINK_MUTATIONS", sys.argv[2]).split(",")]
    numbers = [number for part in ranges for number in range(int(part[0]), int(part[-1]) + 1)]
    with open(source, "rb") as file:
        good = file.read()
    start, size = bitcode(good)
    name = os.path.basename(source)

    def link(number):
        data = bytearray(good)
        part = data[start : start + size]
        if number:
            damage(part, random.Random(number))
        assert len(part) == size
        data[start : start + size] = part
        with tempfile.TemporaryDirectory() as place:
            tmp, damaged, output = (os.path.join(place, part) for part in ("tmp", name, "out"))
            os.mkdir(tmp)
            with open(damaged, "wb") as file:
                file.write(data)
            line = [damaged if word == "{}" else word for word in command] + ["-o", output]
            try:
                done = subprocess.run(line, stdin=subprocess.DEVNULL, capture_output=True, timeout=LIMIT, env=dict(os.environ, TMPDIR=tmp))
            except subprocess.TimeoutExpired:
                return "hung", f"mutation {number}: still there after {LIMIT} s"
            text = done.stderr.decode(errors="replace")
            errors = [line for line in text.splitlines() if line.startswith("warplink: error: ")]
            crashed = any("warplink crashed" in error for error in errors)
            outcome = "linked" if done.returncode == 0 else "LLVM crashed" if crashed else "refused"
            wrong = []
            if done.returncode not in ((0,) if not errors else (-6, -11, -7, -4, -8, 139, 134) if crashed else (1,)):
                wrong.append(f"ended with {done.returncode}")
            if done.returncode != 0 and (not errors or not all(name in error for error in errors)):
                wrong.append("no error, or one that does not name the object")
            if INSIDES.search(text):
                wrong.append("shows insides")
            if os.listdir(tmp):
                wrong.append(f"left {', '.join(os.listdir(tmp))}")
            if done.returncode != 0 and os.path.exists(output):
                wrong.append("left an output")
            return outcome, "\n".join([f"mutation {number}: {'; '.join(wrong)}", text]) if wrong else ""

    # The first one is not damaged, or the others would say nothing.
    outcome, wrong = link(0)
    if outcome != "linked":
        sys.exit(f"the object as it is: {outcome}\n{wrong}")
    with concurrent.futures.ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        results = list(pool.map(link, numbers))
    outcomes = [outcome for outcome, _ in results]
    print(", ".join(f"{what}: {outcomes.count(what)}" for what in ("refused", "linked", "LLVM crashed", "hung")))
    wrongs = [wrong for _, wrong in results if wrong]
    if wrongs:
        sys.exit("\n".join(wrongs))


main()
