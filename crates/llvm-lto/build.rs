//! Links the parts of LLVM 22 that the program needs, statically: the whole of it is three times the size, and loading libLLVM.so costs more
//! than a small device link. `llvm-config` of LLVM 22 is looked for in `LLVM_CONFIG`, then in `$LLVM`, then on PATH, then where Debian,
//! Fedora and Homebrew put it.

use std::path::{Path, PathBuf};
use std::process::Command;

/// NVPTX makes device code; no other code generator is needed, since the host's registration code is compiled when we are built.
const COMPONENTS: [&str; 7] = ["nvptx", "passes", "bitreader", "bitwriter", "linker", "irreader", "asmparser"];

/// What LLVM's C API lacks.
const SHIMS: [&str; 3] = ["src/shim.cpp", "src/remarks.cpp", "src/crash.cpp"];

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    for variable in ["LLVM_CONFIG", "LLVM"] {
        println!("cargo:rerun-if-env-changed={variable}");
    }
    let config = find_llvm_config();
    for source in SHIMS {
        println!("cargo:rerun-if-changed={source}");
    }
    // As LLVM itself is built, or the shim's vtables and assertions would not match the libraries'.
    cc::Build::new()
        .cpp(true)
        .std("c++17")
        .include(output(&config, &["--includedir"]))
        .flag_if_supported("-fno-rtti")
        .flag_if_supported("-fno-exceptions")
        .warnings(false)
        .cpp_link_stdlib(None)
        .files(SHIMS)
        .compile("warplink_shim");
    // For build scripts that depend on this one: DEP_WARPLINK_LLVM_BINDIR.
    println!("cargo:bindir={}", output(&config, &["--bindir"]));
    let lib_dir = output(&config, &["--link-static", "--libdir"]);
    println!("cargo:rustc-link-search=native={lib_dir}");
    let mut arguments = vec!["--link-static", "--libs"];
    arguments.extend(COMPONENTS);
    for lib in output(&config, &arguments).split_whitespace() {
        let name = lib.strip_prefix("-l").unwrap_or_else(|| panic!("{}: unexpected word {lib:?} in --libs", config.display()));
        println!("cargo:rustc-link-lib=static:-bundle={name}");
    }
    // LLVM's own system libraries: z3 and xml2 belong to parts that we do not pull in. Compression is static where Debian has the
    // archive, since every shared library costs start-up time.
    for (name, file) in [("z", "libz.a"), ("zstd", "libzstd.a"), ("stdc++", "libstdc++.a")] {
        match archive_dir(file) {
            Some(dir) => {
                println!("cargo:rustc-link-search=native={}", dir.display());
                println!("cargo:rustc-link-lib=static:-bundle={name}");
            }
            None => println!("cargo:rustc-link-lib={name}"),
        }
    }
    for name in ["rt", "dl", "m"] {
        println!("cargo:rustc-link-lib={name}");
    }
}

fn find_llvm_config() -> PathBuf {
    let mut candidates = Vec::new();
    if let Some(path) = std::env::var_os("LLVM_CONFIG") {
        candidates.push(PathBuf::from(path));
    }
    if let Some(dir) = std::env::var_os("LLVM") {
        candidates.push(Path::new(&dir).join("llvm-config"));
    }
    candidates.extend(
        [
            "llvm-config-22",
            "llvm-config",
            "/usr/lib/llvm-22/bin/llvm-config",
            "/usr/lib64/llvm22/bin/llvm-config",
            "/opt/homebrew/opt/llvm@22/bin/llvm-config",
        ]
        .map(PathBuf::from),
    );
    for candidate in &candidates {
        let Ok(found) = Command::new(candidate).arg("--version").output() else { continue };
        if found.status.success() && String::from_utf8_lossy(&found.stdout).starts_with("22.") {
            return candidate.clone();
        }
    }
    panic!("llvm-config of LLVM 22 not found (tried {candidates:?}): install llvm-22-dev or set LLVM_CONFIG");
}

fn output(program: &Path, arguments: &[&str]) -> String {
    let output = Command::new(program).args(arguments).output().unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    assert!(output.status.success(), "{} {arguments:?}: {}", program.display(), String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

/// The directory in which the C++ compiler finds a static library, if it has it.
fn archive_dir(file: &str) -> Option<PathBuf> {
    let compiler = std::env::var_os("CXX").unwrap_or_else(|| "c++".into());
    let found = Command::new(compiler).arg(format!("-print-file-name={file}")).output().ok()?;
    let path = PathBuf::from(String::from_utf8_lossy(&found.stdout).trim());
    if path.is_absolute() { path.parent().map(Path::to_owned) } else { None }
}
