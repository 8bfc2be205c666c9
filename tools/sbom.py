#!/usr/bin/env python3
"""sbom.py --version WARPLINK --llvm VERSION [--root DIR]: writes a software bill of materials of warplink, CycloneDX 1.5, to stdout.

It lists all of Cargo.lock: what is linked into the program for this machine as required, the rest (other systems, building, testing) as
excluded. What is linked in besides Rust code stands first: LLVM and the libraries that it uses. Licences are those of
docs/dependencies.md, which a test compares with the crates. Same sources, same bytes: the time is SOURCE_DATE_EPOCH's.
"""

import argparse
import datetime
import json
import os
import re
import subprocess
import uuid
from pathlib import Path

# Linked statically by crates/llvm-lto/build.rs. zstd-sys brings another Zstandard, in source.
NATIVE = [
    ("zlib", "Zlib", "https://zlib.net", "zlib1g-dev"),
    ("zstd", "BSD-3-Clause", "https://github.com/facebook/zstd", "libzstd-dev"),
    ("libstdc++", "GPL-3.0-or-later WITH GCC-exception-3.1", "https://gcc.gnu.org", "libstdc++-12-dev"),
]


def locked(root):
    """The crates of Cargo.lock that are not ours."""
    parts = (root / "Cargo.lock").read_text().split("[[package]]")[1:]
    packages = [dict(re.findall(r'^(\w+) = "(.*)"$', part, re.M)) for part in parts]
    return sorted((package for package in packages if "source" in package), key=lambda package: (package["name"], package["version"]))


def licences(root):
    """What docs/dependencies.md says of each crate."""
    rows = re.findall(r"^\| (\S+) \| ([^|]+) \| [^|]+ \|$", (root / "docs/dependencies.md").read_text(), re.M)
    return {name: licence.strip().replace("/", " OR ") for name, licence in rows if name not in ("crate", "---")}


def resolved(root):
    """The crates that are linked into the program on this machine, and what each depends on, by name and version."""
    answer = subprocess.run(["rustc", "-vV"], capture_output=True, text=True, check=True).stdout
    host = re.search(r"^host: (.*)$", answer, re.M).group(1)
    command = ["cargo", "metadata", "--format-version=1", "--locked", "--offline", f"--filter-platform={host}"]
    metadata = json.loads(subprocess.run([*command, f"--manifest-path={root}/Cargo.toml"], capture_output=True, check=True).stdout)
    packages = {package["id"]: package for package in metadata["packages"]}
    nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
    todo = [package["id"] for package in metadata["packages"] if package["name"] == "warplink"]
    graph = {}
    while todo:
        at = todo.pop()
        if at in graph:
            continue
        graph[at] = [edge["pkg"] for edge in nodes[at]["deps"] if any(kind["kind"] is None for kind in edge["dep_kinds"])]
        todo += graph[at]
    ours = {package for package in graph if packages[package]["source"] is None}

    def name(package):
        return packages[package]["name"], packages[package]["version"]

    def foreign(package, seen=None):
        """What it depends on, through our own crates, which are one with the program."""
        seen = set() if seen is None else seen
        for edge in graph[package]:
            if edge in ours and edge not in seen:
                seen.add(edge)
                yield from foreign(edge, seen)
            elif edge not in ours:
                yield name(edge)

    # Features that only tests turn on are on in cargo's metadata, and not in the program.
    tree = ["cargo", "tree", "--offline", "--locked", "--prefix=none", "--edges=normal", "--format={p}", "--package=warplink"]
    lines = subprocess.run([*tree, f"--manifest-path={root}/Cargo.toml"], capture_output=True, text=True, check=True).stdout.splitlines()
    linked = {(line.split()[0], line.split()[1].removeprefix("v")) for line in lines if line}
    program = next(package for package in ours if packages[package]["name"] == "warplink")
    found = {name(package): package for package in graph if package not in ours and name(package) in linked}
    edges = {key: sorted(set(foreign(package)) & linked) for key, package in found.items()}
    return edges, sorted(set(foreign(program)) & linked)


def native_version(package):
    """The version that this machine links, where it says."""
    try:
        answer = subprocess.run(["dpkg-query", "-W", "-f=${source:Upstream-Version}", package], capture_output=True, text=True)
    except OSError:
        return None
    # Debian adds its own mark to sources that it has cut.
    return re.sub(r"[+.]dfsg.*", "", answer.stdout.strip()) or None if answer.returncode == 0 else None


def reference(name, version):
    return f"pkg:cargo/{name}@{version}"


def bill(root, version, llvm):
    texts = licences(root)
    edges, program_needs = resolved(root)
    natives = [("llvm", "Apache-2.0 WITH LLVM-exception", "https://llvm.org", llvm)]
    natives += [(name, licence, home, native_version(package)) for name, licence, home, package in NATIVE]
    components, dependencies = [], []
    for name, licence, home, found in natives:
        purl = f"pkg:generic/{name.replace('+', '%2B')}" + (f"@{found}" if found else "")
        component = {"type": "library", "bom-ref": purl, "name": name, "scope": "required", "purl": purl}
        component |= {"version": found} if found else {}
        component["licenses"] = [{"expression": licence}]
        component["externalReferences"] = [{"type": "website", "url": home}]
        components.append(component)
        dependencies.append({"ref": purl})
    native_references = [component["bom-ref"] for component in components]
    for package in locked(root):
        key = package["name"], package["version"]
        component = {
            "type": "library",
            "bom-ref": reference(*key),
            "name": key[0],
            "version": key[1],
            "scope": "required" if key in edges else "excluded",
            "purl": reference(*key),
            "licenses": [{"expression": texts[key[0]]}],
        }
        if "checksum" in package:
            component["hashes"] = [{"alg": "SHA-256", "content": package["checksum"]}]
        components.append(component)
        if key in edges:
            dependencies.append({"ref": reference(*key), "dependsOn": [reference(*edge) for edge in edges[key]]})
    own = reference("warplink", version)
    needs = native_references + [reference(*key) for key in program_needs]
    dependencies.insert(0, {"ref": own, "dependsOn": needs})
    # Our own code, and who made this.
    licence = re.search(r'^license = "(.*)"$', (root / "Cargo.toml").read_text(), re.M).group(1)
    program = {"type": "application", "bom-ref": own, "name": "warplink", "version": version, "licenses": [{"expression": licence}]}
    time = datetime.datetime.fromtimestamp(int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc)
    metadata = {"timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ"), "component": program}
    document = {"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": metadata}
    document |= {"components": components, "dependencies": dependencies}
    number = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True))
    return {"$schema": "http://cyclonedx.org/schema/bom-1.5.schema.json", "serialNumber": f"urn:uuid:{number}"} | document


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", required=True)
    parser.add_argument("--llvm", required=True)
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent)
    options = parser.parse_args()
    print(json.dumps(bill(options.root, options.version, options.llvm), indent=2))


main()
