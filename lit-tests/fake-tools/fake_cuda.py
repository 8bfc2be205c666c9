"""What the fake ptxas and nvlink share: they record their arguments and make cubins that hold the
right symbols and no code, so that everything around them can be tested without a toolkit.

FAKE_LOG   file to which each run appends one line: the program's name and its quoted arguments
FAKE_FAIL  name of the program that shall fail, with a message on stderr and exit status 2
"""

import os
import re
import shlex
import struct
import sys

STT_OBJECT, STT_FUNC = 1, 2
STO_CUDA_ENTRY = 0x10


def start():
    name = os.path.basename(sys.argv[0])
    log = os.environ.get("FAKE_LOG")
    if log:
        with open(log, "a") as file:
            file.write(" ".join([name] + [shlex.quote(a) for a in sys.argv[1:]]) + "\n")
    if "--version" in sys.argv or "-V" in sys.argv:
        print(f"{name}: NVIDIA (R) stand-in for tests")
        print("Cuda compilation tools, release 13.0, V13.0.88")
        sys.exit(0)
    if os.environ.get("FAKE_FAIL") == name:
        sys.stderr.write(f"{name} fatal   : made to fail by the test\n")
        sys.exit(2)
    return name


def option(*names, default=None):
    """The last value given to an option, in the forms `-o V` and `-o=V`."""
    value = default
    arguments = sys.argv[1:]
    for i, argument in enumerate(arguments):
        for name in names:
            if argument == name and i + 1 < len(arguments):
                value = arguments[i + 1]
            elif argument.startswith(name + "="):
                value = argument[len(name) + 1 :]
    return value


def inputs(suffixes):
    output = option("-o", "--output-file")
    return [a for a in sys.argv[1:] if a.endswith(suffixes) and a != output and not a.startswith("-")]


def symbols_of_ptx(text):
    """(name, type, global, bytes) of each kernel, function and variable that the PTX defines."""
    found = []
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.S)
    for match in re.finditer(r"^((?:\.(?:visible|weak|common)\s+)?)\.(entry|func)\s+(?:\([^)]*\)\s*)?([\w$]+)", text, re.M):
        linkage, kind, name = match.groups()
        body = text[match.end() :]
        if kind == "func" and body.find(";") < (body.find("{") + 1 or len(body) + 1) - 1:
            continue  # a declaration
        found.append((name, STT_FUNC, bool(linkage.strip()), STO_CUDA_ENTRY if kind == "entry" else 0, 16))
    for match in re.finditer(
        r"^((?:\.(?:visible|weak|common)\s+)?)\.(?:global|const)\s+(?:\.align\s+\d+\s+)?\.[bsuf](\d+)\s+([\w$]+)(?:\[(\d+)\])?", text, re.M
    ):
        linkage, bits, name, count = match.groups()
        found.append((name, STT_OBJECT, bool(linkage.strip()), 0, int(bits) // 8 * int(count or 1)))
    return found


def write_cubin(path, arch, symbols, relocatable):
    """A little ELF for CUDA with one .text section per function and a symbol table."""
    names, strings = {}, bytearray(b"\0")

    def string(text):
        if text not in names:
            names[text] = len(strings)
            strings.extend(text.encode() + b"\0")
        return names[text]

    data, headers = bytearray(64), [struct.pack("<IIQQQQIIQQ", *[0] * 10)]

    def section(name, kind, flags, content, link=0, info=0, entry=0):
        while len(data) % 16:
            data.append(0)
        headers.append(
            struct.pack("<IIQQQQIIQQ", string(name), kind, flags, 0, len(data), len(content), link, info, 16, entry)
        )
        data.extend(content)
        return len(headers) - 1

    table = [struct.pack("<IBBHQQ", 0, 0, 0, 0, 0, 0)]
    ordered = sorted(symbols, key=lambda s: s[2])  # locals first, as ELF wants it
    local_count = 1 + sum(not s[2] for s in ordered)
    for name, kind, is_global, other, size in ordered:
        if kind == STT_FUNC:
            index = section(".text." + name, 1, 6, bytes(size))
        else:
            index = section(".nv.global." + name, 1, 3, bytes(size))
        table.append(struct.pack("<IBBHQQ", string(name), (1 if is_global else 0) << 4 | kind, other, index, 0, size))
    symtab_link = len(headers) + 1
    section(".symtab", 2, 0, b"".join(table), link=symtab_link, info=local_count, entry=24)
    string(".strtab")
    strtab = section(".strtab", 3, 0, bytes(strings))
    while len(data) % 16:
        data.append(0)
    number = int(re.match(r"sm_(\d+)", arch).group(1))
    data[0:64] = struct.pack(
        "<4sBBBBB7xHHIQQQIHHHHHH", b"\x7fELF", 2, 1, 1, 0x41, 8, 1 if relocatable else 2, 190, 1, 0, 0, len(data),
        number << 8 | 4, 64, 0, 0, 64, len(headers), strtab,
    )
    with open(path, "wb") as file:
        file.write(bytes(data) + b"".join(headers))


def read_cubin(path):
    with open(path, "rb") as file:
        data = file.read()
    if data[:4] != b"\x7fELF" or struct.unpack_from("<H", data, 18)[0] != 190:
        return []
    offset, = struct.unpack_from("<Q", data, 40)
    count, = struct.unpack_from("<H", data, 60)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, offset + 64 * i) for i in range(count)]
    found = []
    for header in sections:
        if header[1] != 2:
            continue
        strings = sections[header[6]][4]
        for i in range(1, header[5] // 24):
            name, info, other, index, _, size = struct.unpack_from("<IBBHQQ", data, header[4] + 24 * i)
            if index:
                text = data[strings + name : data.index(b"\0", strings + name)].decode()
                found.append((text, info & 15, info >> 4 != 0, other, size))
    return found
