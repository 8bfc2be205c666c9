#!/usr/bin/env python3
"""check_links.py ROOT [ABSENT...]: every relative link in README.md and docs/ leads to a file, and every page can be reached from README.md.
ABSENT are pages that may be linked to without being there."""

import os
import re
import sys

root, absent = sys.argv[1], set(sys.argv[2:])
pages = ["README.md"] + sorted(f"docs/{name}" for name in os.listdir(f"{root}/docs") if name.endswith(".md"))
faults, links = [], {}
for page in pages:
    with open(f"{root}/{page}") as file:
        text = re.sub(r"^```.*?^```$", "", file.read(), flags=re.M | re.S)
    targets = re.findall(r"\]\(([^)\s]+)\)", text)
    targets = [os.path.normpath(os.path.join(os.path.dirname(page), t.partition("#")[0])) for t in targets if "://" not in t and not t.startswith("#")]
    faults += [f"{page}: {target} is not there" for target in targets if not os.path.exists(f"{root}/{target}") and target not in absent]
    links[page] = targets
reached, todo = set(), ["README.md"]
while todo:
    page = todo.pop()
    if page not in reached and page in links:
        reached.add(page)
        todo += links[page]
faults += [f"{page}: cannot be reached from README.md" for page in pages if page not in reached]
print("\n".join(faults) if faults else f"{len(pages)} pages, {sum(map(len, links.values()))} links")
sys.exit(bool(faults))
