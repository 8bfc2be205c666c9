//! Compiles the registration code (`src/wrap/*.ll`) for every host that we link for. A link then only adds data to it: starting a code
//! generator for a page of code that never changes would take longer than everything else that a small link does in process.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The hosts as `wrap.rs` names them, their triples, and how entries are found there.
const HOSTS: [(&str, &str, &str); 4] = [
    ("x86_64", "x86_64-unknown-linux-gnu", "entries-elf.ll"),
    ("aarch64", "aarch64-unknown-linux-gnu", "entries-elf.ll"),
    ("x86_64.coff", "x86_64-pc-windows-msvc", "entries-coff.ll"),
    ("aarch64.coff", "aarch64-pc-windows-msvc", "entries-coff.ll"),
];

/// The crates whose code decides what a device link makes.
const MAKERS: [&str; 5] = [".", "../llvm-lto", "../nvjitlink", "../fatbin", "../offload-object"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=src/wrap");
    // The cache keeps no code of one build for another. A program's own file would do, but the library may be loaded by any program.
    println!("cargo:rustc-env=WARPLINK_SOURCES={:016x}", hash_of_sources());
    // Given by llvm-lto's build script, which has found LLVM.
    let bin = std::env::var("DEP_WARPLINK_LLVM_BINDIR").expect("llvm-lto tells where LLVM's programs are");
    let out = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let read = |file: &str| std::fs::read_to_string(Path::new("src/wrap").join(file)).unwrap_or_else(|error| panic!("{file}: {error}"));
    for (name, triple, entries) in HOSTS {
        let (text, object) = (out.join(format!("cuda.{name}.ll")), out.join(format!("cuda.{name}.o")));
        let mut code = format!("{}\n{}", read("cuda.ll"), read(entries));
        if name.ends_with("coff") {
            // A name with a dollar ends up in .text, any other in a section of its own.
            code = code.replace("\".text.startup\"", "\".text$startup\"");
        }
        std::fs::write(&text, code).unwrap_or_else(|error| panic!("{}: {error}", text.display()));
        compile(&bin, &text, triple, &object);
        if !name.ends_with("coff") {
            for part in ["guard", "guard-launch", "guard-call"] {
                compile(&bin, &Path::new("src/wrap").join(format!("{part}.ll")), triple, &out.join(format!("{part}.{name}.o")));
            }
        }
    }
}

/// A hash of all sources of [`MAKERS`] and of the versions of what they use.
fn hash_of_sources() -> u64 {
    let mut waiting: Vec<PathBuf> = MAKERS.iter().map(|krate| Path::new(krate).join("src")).collect();
    waiting.push(PathBuf::from("../../Cargo.lock"));
    for path in &waiting {
        println!("cargo:rerun-if-changed={}", path.display());
    }
    let mut files = Vec::new();
    while let Some(path) = waiting.pop() {
        match std::fs::read_dir(&path) {
            Ok(entries) => waiting.extend(entries.flatten().map(|entry| entry.path())),
            Err(_) => files.push(path),
        }
    }
    files.sort();
    let mut hasher = DefaultHasher::new();
    for file in files {
        file.hash(&mut hasher);
        std::fs::read(&file).unwrap_or_default().hash(&mut hasher);
    }
    hasher.finish()
}

/// Starts LLVM's code generator.
fn compile(bin: &str, text: &Path, triple: &str, object: &Path) {
    let output = Command::new(Path::new(bin).join("llc"))
        .args(["-O2", "-filetype=obj", "-relocation-model=pic", "-mtriple", triple])
        .arg(text)
        .arg("-o")
        .arg(object)
        .output()
        .unwrap_or_else(|error| panic!("{bin}/llc: {error}"));
    assert!(output.status.success(), "llc: {}", String::from_utf8_lossy(&output.stderr));
}
