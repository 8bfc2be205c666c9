#!/usr/bin/env python3
"""run_docs.py PAGE [--list]: runs the commands of a Markdown page in an empty folder, as one would who reads it from top to bottom.

What is done with a fenced block stands behind its language:

    ```cpp file=a.cu          the block is written to that file
    ```sh run                 the block is run
    ```console run            each line `$ command` is run (a line that ends in a backslash goes on), and what follows must be what it
                              prints: `...` as a line stands for any lines, elsewhere for any text
    ```console run exit=1     the last command is expected to fail so
    ```sh skip=REASON         not run; the reason is one of REASONS
    ```cmake                  other languages are not commands

All blocks share one shell. A page that has no block to run is an error, and so is a block of commands that says neither run nor skip.
From the environment: CUDA_PATH stands in for /usr/local/cuda, as which pages show it.
"""

import os
import re
import subprocess
import sys

REASONS = {
    "gpu": "needs a GPU",
    "install": "changes the machine",
    "network": "fetches from the network",
    "project": "a project of the reader's own",
}
USUAL = "/usr/local/cuda"


def blocks(text):
    """(line, language, words of the info string, content) of each fenced block."""
    found, lines, at = [], text.split("\n"), 0
    while at < len(lines):
        opening = re.match(r"^( *)```(\S.*)$", lines[at])
        at += 1
        if not opening:
            continue
        indent, start, content = len(opening[1]), at, []
        while at < len(lines) and lines[at].strip() != "```":
            content.append(lines[at][indent:])
            at += 1
        at += 1
        language, *words = opening[2].split()
        found.append((start, language, words, "\n".join(content) + "\n"))
    return found


def commands(content):
    """(command, expected output) pairs of a console block."""
    pairs, lines = [], content.rstrip("\n").split("\n")
    while lines:
        line = lines.pop(0)
        if not line.startswith("$ "):
            raise SystemExit(f"output without a command: {line}")
        command = [line[2:]]
        while command[-1].endswith("\\") and lines:
            command.append(lines.pop(0))
        expected = []
        while lines and not lines[0].startswith("$ "):
            expected.append(lines.pop(0))
        pairs.append(("\n".join(command), "\n".join(expected)))
    return pairs


def matches(expected, printed):
    def pattern(line):
        return ".*".join(re.escape(part) for part in line.rstrip().split("..."))

    lines = expected.split("\n") if expected else []
    regex = "".join(r"(?:.*\n)*" if line.strip() == "..." else pattern(line) + r" *\n" for line in lines)
    return re.fullmatch(regex, printed if printed.endswith("\n") or not printed else printed + "\n") is not None


class Shell:
    """One bash in which everything runs. Each command's output and exit status are told apart by a line that nothing else prints."""

    MARK = "--- end of command, status "

    def __init__(self):
        self.process = subprocess.Popen(
            ["bash", "--norc", "--noprofile"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def run(self, command):
        # The command has no input: it would eat those that follow.
        self.process.stdin.write(f"{{ {command}\n}} </dev/null; printf '\\n{self.MARK}%s\\n' $?\n")
        self.process.stdin.flush()
        printed = []
        for line in self.process.stdout:
            if line.startswith(self.MARK):
                return int(line[len(self.MARK) :]), "".join(printed)[:-1]
            printed.append(line)
        return self.process.wait(), "".join(printed)


def main():
    page = sys.argv[1]
    with open(page) as file:
        text = file.read()
    cuda = os.environ.get("CUDA_PATH", USUAL)
    shell, ran, faults = Shell(), 0, 0

    def fault(line, what):
        nonlocal faults
        faults += 1
        print(f"{os.path.basename(page)}:{line}: {what}")

    for line, language, words, content in blocks(text):
        facts = dict(word.split("=", 1) for word in words if "=" in word)
        if "file" in facts:
            os.makedirs(os.path.dirname(facts["file"]) or ".", exist_ok=True)
            with open(facts["file"], "w") as file:
                file.write(content)
            continue
        if language not in ("sh", "console"):
            continue
        if "skip" in facts:
            if facts["skip"] not in REASONS:
                fault(line, f"skip={facts['skip']} is no reason: {', '.join(REASONS)}")
            continue
        if "run" not in words:
            fault(line, "a block of commands that says neither run nor skip=REASON")
            continue
        pairs = commands(content) if language == "console" else [(content, None)]
        for number, (command, expected) in enumerate(pairs):
            status, printed = shell.run(command.replace(USUAL, cuda))
            printed = printed.replace(cuda, USUAL)
            wanted = int(facts.get("exit", 0)) if number + 1 == len(pairs) else 0
            ran += 1
            if status != wanted:
                fault(line, f"exit status {status}, not {wanted}, of: {command}\n{printed}")
            elif expected is not None and not matches(expected, printed):
                fault(line, f"$ {command}\nprints\n{printed}and the page shows\n{expected}")
    if not ran:
        fault(1, "no command to run")
    print(f"{os.path.basename(page)}: {ran} commands run, {faults} faults")
    sys.exit(bool(faults))


main()
