//! What the tests of link lines share: finding the linkers that are installed.

use std::path::PathBuf;

/// The first of `names` in $LLVM, in the usual place of LLVM 22, or on PATH.
pub(crate) fn find(names: &[&str]) -> Option<PathBuf> {
    let mut dirs: Vec<PathBuf> = std::env::var_os("LLVM").into_iter().map(PathBuf::from).collect();
    dirs.push(PathBuf::from("/usr/lib/llvm-22/bin"));
    dirs.extend(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()));
    names.iter().flat_map(|name| dirs.iter().map(move |dir| dir.join(name))).find(|path| path.exists())
}
