"""questions.py [--seed=N] [--count=10]: picks `?` of the sources at random, out of those where a file or a process is at stake.

For a fault that the tests did not know: each of them is then forced, by tools/torture/faults.c or by construction, and its message read.
"""

import argparse
import os
import random
import re

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TOUCHES = re.compile(
    r"\bfs::|\bFile::|OpenOptions|\.open\(|MappedFile|tempfile|NewFile|\btemps\.|temps::|replace_file|private_file|CommandLine|\.run_\w+\(|run_linker"
    r"|\.spawn\w*\(|io::pipe|current_dir|current_exe|canonicalize|read_to_end|write_all|\.metadata\(|set_permissions|rename\(|persist\(|read_dir|symlink"
)


def questions(path):
    """(line, statement) for each `?` operator whose statement touches a file or a process."""
    with open(path) as file:
        text = re.split(r"\n#\[cfg\(test\)\]\n(?:pub\(crate\) )?mod ", file.read())[0]
    plain = re.sub(r'//[^\n]*|"(?:\\.|[^"\\])*"', lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    for match in re.finditer(r"\?(?=[;.,)\s])", plain):
        start = max(plain.rfind(mark, 0, match.start()) for mark in (";", "{", "}", "=>"))
        statement = plain[start + 1 : match.end()]
        if TOUCHES.search(statement):
            yield text.count("\n", 0, match.start()) + 1, " ".join(text[start + 1 : match.end()].split())


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=6)
    parser.add_argument("--count", type=int, default=10)
    arguments = parser.parse_args()
    found = []
    for top in ("crates/device-link/src", "crates/llvm-lto/src", "tools/warplink/src"):
        for directory, _, names in sorted(os.walk(os.path.join(ROOT, top))):
            for name in sorted(names):
                if name.endswith(".rs") and "tests" not in name:
                    path = os.path.join(directory, name)
                    found += [(os.path.relpath(path, ROOT), line, statement) for line, statement in questions(path)]
    print(f"{len(found)} in all, {arguments.count} of them by seed {arguments.seed}:")
    for path, line, statement in random.Random(arguments.seed).sample(found, arguments.count):
        print(f"{path}:{line}: {statement[-150:]}")


main()
