#!/usr/bin/env bash
# Packs warplink: a Debian package, and a tarball that works wherever it is unpacked. Both hold the
# program, the folder for clang's -B, the CMake package, the manual page, shell completions, the
# documentation, all licences and a bill of materials.
#
#   tools/package.sh [--out DIR] [--program FILE] [--deb | --tar]
#
#   --out DIR       where the packages go (target/package)
#   --program FILE  pack this program; otherwise one is built, with no path of this machine in it
#   --deb, --tar    only the one
#
# Same sources, same bytes: times are SOURCE_DATE_EPOCH's, or the last commit's. From the environment
# also: DEBFULLNAME, DEBEMAIL (the maintainer), CARGO_TARGET_DIR, LLVM.
set -euo pipefail
export LC_ALL=C TZ=UTC
umask 022
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
target=${CARGO_TARGET_DIR:-$root/target}

die() { printf 'package: error: %s\n' "$*" >&2; exit 1; }

out=$target/package
program=
kinds="deb tar"
while [ $# -gt 0 ]; do
  case $1 in
    --out) out=${2:?--out needs a folder}; shift ;;
    --program) program=${2:?--program needs a file}; shift ;;
    --deb) kinds=deb ;;
    --tar) kinds=tar ;;
    -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"; exit 0 ;;
    *) die "unknown argument: $1 (try --help)" ;;
  esac
  shift
done

SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -C "$root" log -1 --format=%ct 2>/dev/null || true)}
[ -n "$SOURCE_DATE_EPOCH" ] || die "SOURCE_DATE_EPOCH is not set, and there is no commit to take a time from"
export SOURCE_DATE_EPOCH
# How the work is cut for several threads shows in the bytes.
export DPKG_DEB_THREADS_MAX=1

if [ -z "$program" ]; then
  cargo_home=${CARGO_HOME:-$HOME/.cargo}
  # Panics and assertions name source files: by names that hold on every machine.
  export RUSTFLAGS="${RUSTFLAGS:-} --remap-path-prefix=$cargo_home=/cargo --remap-path-prefix=$root=/warplink"
  export LLVM=${LLVM:-/usr/lib/llvm-22/bin}
  (cd "$root" && cargo build --quiet --locked --release -p warplink --target-dir "$target/package-build")
  program=$target/package-build/release/warplink
fi
[ -x "$program" ] || die "$program is no program"
program=$(realpath "$program")
# By any other name it is a linker.
warplink() { (exec -a warplink "$program" "$@"); }
version=$(warplink --version | sed -n 's/^warplink \([0-9][^ ]*\).*/\1/p')
[ -n "$version" ] || die "$program --version names no version"
grep -qF "PACKAGE_VERSION \"$version\"" "$root/tools/cmake/warplinkConfigVersion.cmake" ||
  die "tools/cmake/warplinkConfigVersion.cmake is not that of version $version"
# What it says of itself; that it may find no toolkit here does not matter.
llvm_version=$( (warplink doctor 2>/dev/null || true) | sed -n 's/^warplink .*(LLVM \([0-9.]*\)).*/\1/p')
[ -n "$llvm_version" ] || die "$program doctor names no version of LLVM"
machine=$(uname -m)
name=warplink-$version-linux-$machine

mkdir -p "$out"
work=$(mktemp -d "$out/.package.XXXXXX")
trap 'rm -rf "$work"' EXIT

# --- What both packages hold -------------------------------------------------------------------

# lay PREFIX DOC: the tree under a prefix, with the documentation in DOC.
lay() {
  local prefix=$1 doc=$2 link
  mkdir -p "$prefix"/{bin,libexec/warplink,lib/cmake/warplink,share/man/man1,share/bash-completion/completions} "$doc"
  cp "$program" "$prefix/bin/warplink"
  strip "$prefix/bin/warplink"
  chmod 755 "$prefix/bin/warplink"
  for link in clang-linker-wrapper llvm-offload-binary clang-offload-packager ld ld.warplink ld.bfd ld.gold ld.lld ld.mold; do
    ln -s ../../bin/warplink "$prefix/libexec/warplink/$link"
  done
  cp "$root"/tools/cmake/*.cmake "$prefix/lib/cmake/warplink/"
  warplink man | gzip -9n >"$prefix/share/man/man1/warplink.1.gz"
  warplink completions bash >"$prefix/share/bash-completion/completions/warplink"
  cp "$root"/{README,SECURITY}.md "$doc/"
  [ ! -d "$root/docs" ] || cp -r "$root/docs" "$doc/"
  third_party | gzip -9n >"$doc/third-party-licenses.txt.gz"
  "$root/tools/sbom.py" --version "$version" --llvm "$llvm_version" >"$doc/sbom.cdx.json"
}

# The licences of all that is linked into the program: of LLVM, and of each crate in its dependency tree.
third_party() {
  python3 - "$root" <<'PYTHON'
import glob, json, os, subprocess, sys
root = sys.argv[1]
host = next(line.split()[1] for line in subprocess.check_output(["rustc", "-vV"], text=True).splitlines() if line.startswith("host:"))
command = ["cargo", "metadata", "--format-version=1", "--locked", "--offline", f"--filter-platform={host}", "--manifest-path", f"{root}/Cargo.toml"]
metadata = json.loads(subprocess.check_output(command))
packages = {package["id"]: package for package in metadata["packages"]}
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
todo = [id for id, package in packages.items() if package["name"] == "warplink"]
linked = set()
while todo:
    id = todo.pop()
    if id in linked:
        continue
    linked.add(id)
    for dependency in nodes[id]["deps"]:
        if any(kind["kind"] is None for kind in dependency["dep_kinds"]):
            todo.append(dependency["pkg"])
print("warplink contains these works of others.\n")
llvm = "/usr/share/doc/llvm-22-dev/copyright"
texts = [("LLVM 22: Apache-2.0 WITH LLVM-exception", [llvm] if os.path.exists(llvm) else [])]
for package in sorted((packages[id] for id in linked), key=lambda package: (package["name"], package["version"])):
    if package["source"] is None:
        continue
    folder = os.path.dirname(package["manifest_path"])
    files = sorted(f for pattern in ("LICEN[CS]E*", "COPYING*", "NOTICE*", "COPYRIGHT*") for f in glob.glob(f"{folder}/{pattern}") if os.path.isfile(f))
    texts.append((f"{package['name']} {package['version']}: {package['license']}", files))
for title, files in texts:
    print("=" * 78 + f"\n{title}\n")
    for file in files:
        print(f"--- {os.path.basename(file)}\n{open(file, errors='replace').read().rstrip()}\n")
PYTHON
}

# Everything with the one time, nothing writable for others.
settle() {
  find "$1" -type d -exec chmod 755 {} +
  find "$1" -type f ! -path '*/bin/warplink' -exec chmod 644 {} +
  find "$1" -exec touch -h -d "@$SOURCE_DATE_EPOCH" {} +
}

# --- The tarball -------------------------------------------------------------------------------

pack_tar() {
  local tree=$work/$name
  lay "$tree" "$tree/share/doc/warplink"
  mkdir -p "$tree"/share/{zsh/site-functions,fish/vendor_completions.d}
  warplink completions zsh >"$tree/share/zsh/site-functions/_warplink"
  warplink completions fish >"$tree/share/fish/vendor_completions.d/warplink.fish"
  cp "$root"/LICENSE-* "$tree/"
  settle "$tree"
  tar --create --format=gnu --sort=name --owner=0 --group=0 --numeric-owner --mtime="@$SOURCE_DATE_EPOCH" \
    --directory "$work" "$name" | gzip -9n >"$work/tar.gz"
  mv "$work/tar.gz" "$out/$name.tar.gz"
  printf 'package: %s\n' "$out/$name.tar.gz"
}

# --- The Debian package ------------------------------------------------------------------------

pack_deb() {
  local tree=$work/deb doc=$work/deb/usr/share/doc/warplink architecture glibc maintainer date
  command -v dpkg-deb >/dev/null || die "no dpkg-deb to make a Debian package with"
  architecture=$(dpkg --print-architecture)
  lay "$tree/usr" "$doc"
  mkdir -p "$tree"/usr/share/{zsh/vendor-completions,fish/vendor_completions.d,lintian/overrides} "$tree/DEBIAN"
  warplink completions zsh >"$tree/usr/share/zsh/vendor-completions/_warplink"
  warplink completions fish >"$tree/usr/share/fish/vendor_completions.d/warplink.fish"
  # The oldest C library that has every symbol version which the program asks for.
  glibc=$(objdump -T "$tree/usr/bin/warplink" | sed -n 's/.*[( ]GLIBC_\([0-9.]*\).*/\1/p' | sort -uV | tail -n 1)
  maintainer="${DEBFULLNAME:-The warplink authors} <${DEBEMAIL:-noreply@warplink.invalid}>"
  date=$(date -Ru -d "@$SOURCE_DATE_EPOCH")
  cat >"$doc/copyright" <<END
Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/
Upstream-Name: warplink
Comment: The licences of the works that are linked in are in third-party-licenses.txt.gz.

Files: *
Copyright: 2026 The warplink authors
License: Expat or Apache-2.0

License: Expat
$(sed -n '/^Permission/,$p' "$root/LICENSE-MIT" | sed 's/^$/./; s/^/ /')

License: Apache-2.0
 On Debian systems, the full text of the Apache License, Version 2.0, can be
 found in the file /usr/share/common-licenses/Apache-2.0.
END
  gzip -9n >"$doc/changelog.gz" <<END
warplink ($version) unstable; urgency=medium

  * Version $version.

 -- $maintainer  $date
END
  cat >"$tree/usr/share/lintian/overrides/warplink" <<END
# LLVM's tables of pointers would be relocated at each start, which takes longer than most links.
warplink: hardening-no-pie [usr/bin/warplink]
# LLVM comes as static libraries, and what it uses with it, so that the program needs the C library alone.
warplink: embedded-library zlib [usr/bin/warplink]
END
  cat >"$tree/DEBIAN/control" <<END
Package: warplink
Version: $version
Section: devel
Priority: optional
Architecture: $architecture
Maintainer: $maintainer
Installed-Size: $(du -sk --apparent-size "$tree/usr" | cut -f1)
Depends: libc6 (>= $glibc), libgcc-s1 (>= 3.0)
Recommends: binutils | lld, clang-22
Suggests: cmake, nvidia-cuda-toolkit
Description: device link-time optimisation for CUDA programs built by clang
 warplink takes the place of clang-linker-wrapper in the link step of CUDA
 programs that clang compiles with relocatable device code. It links and
 optimises the device code of all objects as one program, makes a cubin for
 each architecture and PTX where it is asked for, and hands the host link to
 the host linker.
 .
 It also shows what device code is in objects, libraries and programs, and on
 which GPUs they run.
END
  (cd "$tree" && find usr -type f -print0 | sort -z | xargs -0 md5sum >DEBIAN/md5sums)
  settle "$tree"
  dpkg-deb --root-owner-group -Zxz --build "$tree" "$work/package.deb" >/dev/null
  mv "$work/package.deb" "$out/warplink_${version}_$architecture.deb"
  printf 'package: %s\n' "$out/warplink_${version}_$architecture.deb"
}

for kind in $kinds; do
  "pack_$kind"
done
