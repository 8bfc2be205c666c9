#!/usr/bin/env python3
"""check_sbom.py ROOT SBOM: whether a bill of materials (CycloneDX 1.5) is well-formed and names all that is in Cargo.lock, and LLVM."""

import json
import re
import subprocess
import sys

root, path = sys.argv[1:]
with open(path) as file:
    bill = json.load(file)
with open(f"{root}/Cargo.lock") as file:
    packages = [dict(re.findall(r'^(\w+) = "(.*)"$', part, re.M)) for part in file.read().split("[[package]]")[1:]]
faults = []


def check(right, text):
    if not right:
        faults.append(text)


check((bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1), "not of the form")
check(re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"]), "serial number")
check(re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", bill["metadata"]["timestamp"]), "timestamp")
program = bill["metadata"]["component"]
check(program["name"] == "warplink" and program["licenses"] == [{"expression": "MIT OR Apache-2.0"}], "the program and its licence")
components = {(component["name"], component.get("version")): component for component in bill["components"]}
check(len(components) == len(bill["components"]), "a component that comes twice")
for component in bill["components"]:
    name = component["name"]
    check(component["type"] == "library" and component["scope"] in ("required", "excluded"), f"{name}: type or scope")
    check(component["licenses"][0]["expression"], f"{name}: no licence")
    check(component["purl"] == component["bom-ref"], f"{name}: reference")

# Complete, and nothing besides.
wanted = {(package["name"], package["version"]): package for package in packages if "source" in package}
native = {key for key in components if key not in wanted}
for key, package in sorted(wanted.items()):
    check(key in components, f"{key[0]} {key[1]}: in Cargo.lock, not in the bill")
    if key in components and "checksum" in package:
        check(components[key]["hashes"] == [{"alg": "SHA-256", "content": package["checksum"]}], f"{key[0]}: checksum")
check({name for name, _ in native} == {"llvm", "zlib", "zstd", "libstdc++"}, f"besides crates there are {sorted(native)}")
llvm = next((component for key, component in components.items() if key[0] == "llvm"), {})
check(llvm.get("version", "").startswith("22.") and llvm.get("scope") == "required", "LLVM's version")
check(llvm.get("licenses") == [{"expression": "Apache-2.0 WITH LLVM-exception"}], "LLVM's licence")

# What cargo says is linked in is required, nothing else is.
tree = ["cargo", "tree", "--offline", "--locked", "--prefix=none", "--edges=normal", "--format={p}", f"--manifest-path={root}/Cargo.toml"]
lines = subprocess.run([*tree, "--package=warplink"], capture_output=True, text=True, check=True).stdout.splitlines()
linked = {(line.split()[0], line.split()[1].removeprefix("v")) for line in lines if line and "(/" not in line.replace("(proc-macro)", "")}
required = {key for key, component in components.items() if component["scope"] == "required"} - native
check(linked == required, f"linked in and required differ: {sorted(linked ^ required)}")

# The graph holds no loose ends, and all that is required can be reached.
edges = {node["ref"]: node.get("dependsOn", []) for node in bill["dependencies"]}
references = {component["bom-ref"] for component in bill["components"]} | {program["bom-ref"]}
check(set(edges) | {edge for node in edges.values() for edge in node} <= references, "the graph names what is not there")
todo, reached = [program["bom-ref"]], set()
while todo:
    at = todo.pop()
    if at not in reached:
        reached.add(at)
        todo += edges.get(at, [])
check(reached - {program["bom-ref"]} == {component["bom-ref"] for component in bill["components"] if component["scope"] == "required"}, "what is required and what is reached differ")
print("\n".join(faults) if faults else f"{len(components)} components, {len(required) + len(native)} of them in the program")
sys.exit(bool(faults))
