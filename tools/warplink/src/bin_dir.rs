//! The directory of links that clang, gcc and build systems are pointed to: `-B$(warplink bin-dir)`.

use std::path::{Path, PathBuf};

/// The names under which the program is looked for. Compilers look for `ld` and its kin in `-B` directories as well as for the wrapper, so
/// that a plain link line comes to us too; each name leads to the real linker of that name.
const NAMES: [&str; 9] = [
    "clang-linker-wrapper",
    "llvm-offload-binary",
    "clang-offload-packager",
    "ld",
    "ld.warplink",
    "ld.bfd",
    "ld.gold",
    "ld.lld",
    "ld.mold",
];

/// Finds the directory, and makes it where it is missing and can be made.
pub(crate) fn bin_dir() -> Result<PathBuf, String> {
    let own = std::env::current_exe().and_then(|path| path.canonicalize()).map_err(|error| format!("cannot find my own file: {error}"))?;
    let dir = own.parent().ok_or("my own file has no directory")?;
    // Installed: PREFIX/bin/warplink and PREFIX/libexec/warplink. In a build tree: beside the program.
    let installed = dir.parent().map(|prefix| prefix.join("libexec/warplink"));
    if let Some(installed) = installed.filter(|_| dir.ends_with("bin"))
        && installed.join("clang-linker-wrapper").exists()
    {
        return Ok(installed);
    }
    let libexec = if dir.ends_with("bin") { dir.parent().unwrap_or(dir).join("libexec/warplink") } else { dir.join("libexec/warplink") };
    let target = if dir.ends_with("bin") { Path::new("../../bin/warplink") } else { Path::new("../../warplink") };
    std::fs::create_dir_all(&libexec).map_err(|error| format!("{}: cannot be made: {error}", libexec.display()))?;
    for name in NAMES {
        let link = libexec.join(name);
        if !link.exists() {
            // Another process may make it at this moment; what counts is that it is there.
            let _ = std::os::unix::fs::symlink(target, &link);
            if !link.exists() {
                return Err(format!("{}: cannot be made", link.display()));
            }
        }
    }
    Ok(libexec)
}
