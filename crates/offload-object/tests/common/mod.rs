//! What the tests of this crate share: finding LLVM's and the host's tools, running them, and the files in test-inputs.
#![allow(dead_code)] // each test file uses a part of this

use std::path::{Path, PathBuf};
use std::process::Command;

/// The folder with this crate's inputs.
pub(crate) fn input(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../test-inputs/offload-object").join(name)
}

/// The tool's path: in `$LLVM`, or on `PATH` with or without the version. `None`, and a line that says so, if it is nowhere.
pub(crate) fn tool(name: &str) -> Option<PathBuf> {
    let mut places = Vec::new();
    places.extend(std::env::var_os("LLVM").map(|dir| PathBuf::from(dir).join(name)));
    for dir in std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()) {
        places.push(dir.join(name));
        places.push(dir.join(format!("{name}-22")));
    }
    let found = places.into_iter().find(|place| place.is_file());
    if found.is_none() {
        eprintln!("skipped: no {name}");
    }
    found
}

/// The CUDA toolkit, or a line that says that there is none.
pub(crate) fn cuda_path() -> Option<PathBuf> {
    let path = std::env::var_os("CUDA_PATH").map(PathBuf::from).filter(|path| path.is_dir());
    if path.is_none() {
        eprintln!("skipped: no CUDA_PATH");
    }
    path
}

/// The host linkers that are there, as `(name, path)`.
pub(crate) fn linkers() -> Vec<(&'static str, PathBuf)> {
    let names = ["ld.bfd", "ld.gold", "ld.lld", "ld.mold"];
    names.into_iter().filter_map(|name| Some((name, tool(name)?))).collect()
}

/// Runs `program`, which must succeed, and gives its standard output.
pub(crate) fn run(dir: &Path, program: impl AsRef<Path>, args: &[&str]) -> String {
    let output = Command::new(program.as_ref()).args(args).current_dir(dir).output().expect("the tool starts");
    assert!(
        output.status.success(),
        "{} {}\n{}{}",
        program.as_ref().display(),
        args.join(" "),
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    String::from_utf8(output.stdout).expect("the tool prints UTF-8")
}

/// A folder for one test.
pub(crate) fn scratch() -> tempfile::TempDir {
    tempfile::tempdir().expect("a temporary folder")
}

pub(crate) fn read(dir: &Path, name: &str) -> Vec<u8> {
    std::fs::read(dir.join(name)).expect("the file is there")
}

pub(crate) fn write(dir: &Path, name: &str, bytes: &[u8]) {
    std::fs::write(dir.join(name), bytes).expect("the file can be written");
}

/// Bytes made from one of the YAML inputs; `None` if there is no `yaml2obj`.
pub(crate) fn yaml(name: &str) -> Option<Vec<u8>> {
    let dir = scratch();
    run(dir.path(), tool("yaml2obj")?, &[input(name).to_str().unwrap(), "-o", "out"]);
    Some(read(dir.path(), "out"))
}
