#!/usr/bin/env python3
"""check_dependencies.py ROOT: compares docs/dependencies.md with Cargo.lock, with the licences that the crates name and with deny.toml; and
what was looked at in the crates that are used directly with those that `cargo metadata` knows, their versions and build scripts."""

import json
import re
import subprocess
import sys

root = sys.argv[1]
with open(f"{root}/Cargo.lock") as file:
    packages = [dict(re.findall(r'^(\w+) = "(.*)"$', part, re.M)) for part in file.read().split("[[package]]")[1:]]
locked = {package["name"] for package in packages if "source" in package}
with open(f"{root}/docs/dependencies.md") as file:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in file if line.startswith("| ")]
rows = [row for row in rows if row[0] not in ("crate", "---")]
# The table of what was looked at has four columns, those of licences and reasons three.
reviews = [row for row in rows if len(row) == 4]
rows = [row for row in rows if len(row) != 4]
listed = [row[0] for row in rows]
faults = [f"{name}: in Cargo.lock, not in docs/dependencies.md: say what it is for" for name in sorted(locked - set(listed))]
faults += [f"{name}: in docs/dependencies.md, not in Cargo.lock" for name in sorted(set(listed) - locked)]
faults += [f"{name}: listed twice" for name in sorted(set(listed)) if listed.count(name) > 1]
faults += [f"{row[0]}: no reason" for row in rows if len(row) != 3 or not row[2]]

# cargo deny's rule, for expressions without parentheses other than around a whole alternative.
with open(f"{root}/deny.toml") as file:
    allowed = set(re.findall(r'"([^"]+)"', re.search(r"^allow = \[(.*?)\]", file.read(), re.M | re.S).group(1)))
for row in rows:
    expression = row[1].replace("/", " OR ")
    both = re.fullmatch(r"\((.*)\) AND (.*)", expression)
    alternatives = [f"{part} AND {both[2]}" for part in both[1].split(" OR ")] if both else expression.split(" OR ")
    if not any(all(part in allowed for part in alternative.split(" AND ")) for alternative in alternatives):
        faults.append(f"{row[0]}: deny.toml does not allow {row[1]}")

# Crates that are not needed on this machine may not be here: cargo is asked, offline, about those that are.
version = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
host = re.search(r"^host: (.*)$", version, re.M).group(1)
command = ["cargo", "metadata", "--format-version=1", "--locked", "--offline", f"--filter-platform={host}", f"--manifest-path={root}/Cargo.toml"]
answer = subprocess.run(command, capture_output=True, text=True)
if answer.returncode == 0:
    licences = {package["name"]: package["license"] for package in json.loads(answer.stdout)["packages"]}
    for row in rows:
        if row[0] in licences and len(row) == 3 and row[1] != licences[row[0]]:
            faults.append(f"{row[0]}: is under {licences[row[0]]}, not {row[1]}")
    checked = sum(row[0] in licences for row in rows)
    metadata = json.loads(answer.stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    ours = set(metadata["workspace_members"])
    edges = [edge["pkg"] for node in metadata["resolve"]["nodes"] if node["id"] in ours for edge in node["deps"]]
    direct = {packages[edge]["name"]: packages[edge] for edge in edges if edge not in ours}
    looked_at = {row[0]: row for row in reviews}
    faults += [f"{name}: looked at twice" for name in looked_at if [row[0] for row in reviews].count(name) > 1]
    faults += [f"{name}: used directly, but nobody has looked at it" for name in sorted(set(direct) - set(looked_at))]
    faults += [f"{name}: looked at, but not used directly" for name in sorted(set(looked_at) - set(direct))]
    for name, package in sorted(direct.items()):
        _, version, unsafe, script = looked_at.get(name, (name, package["version"], "-", "-"))
        if version != package["version"]:
            faults.append(f"{name}: {version} was looked at, {package['version']} is used")
        if not unsafe or not script:
            faults.append(f"{name}: what was looked at is not said")
        has_script = any("custom-build" in target["kind"] for target in package["targets"])
        if name in looked_at and script.startswith("none") == has_script:
            faults.append(f"{name}: {'has a' if has_script else 'has no'} build script, unlike what is said")
    checked = f"{checked} compared, {len(direct)} looked at"
else:
    checked = "0 compared"
    faults.append(f"cargo metadata: {answer.stderr.strip()}")
print("\n".join(faults) if faults else f"{len(rows)} crates, the licences of {checked}")
sys.exit(bool(faults))
