//! Compiles the CUDA sources with clang and has the program linked through warplink. From the environment: `CLANG` (clang++ if not set),
//! `CLANGFLAGS` (its flags beside those of relocatable device code), `WARPLINK` (the program, or a name on PATH), `CUDART` (a directory and
//! a library's name in it, `DIR:NAME`; the toolkit's static runtime if not set).

use std::env::{self, var};
use std::path::PathBuf;
use std::process::Command;

const SOURCES: [&str; 2] = ["cuda/vector.cu", "cuda/scale.cu"];

fn main() {
    for name in ["CLANG", "CLANGFLAGS", "WARPLINK", "CUDART", "CUDA_PATH"] {
        println!("cargo:rerun-if-env-changed={name}");
    }
    println!("cargo:rerun-if-changed=cuda");
    let out = PathBuf::from(env::var_os("OUT_DIR").expect("cargo sets OUT_DIR"));
    let clang = var("CLANG").unwrap_or_else(|_| "clang++".into());
    let mut objects = Vec::new();
    for source in SOURCES {
        let object = out.join(source.replace(['/', '.'], "_")).with_extension("o");
        let mut command = Command::new(&clang);
        command.args(["-c", "-O2", "-fPIC", "-fgpu-rdc", "-foffload-lto", "-Wno-unknown-cuda-version", source, "-o"]).arg(&object);
        command.args(var("CLANGFLAGS").unwrap_or_else(|_| "--offload-arch=sm_90".into()).split_whitespace());
        let status = command.status().unwrap_or_else(|error| panic!("{clang}: {error}"));
        assert!(status.success(), "{command:?}: {status}");
        objects.push(object);
    }
    // An archive, as a library crate would bring one: its members are linked for the functions that Rust calls.
    let archive = out.join("libvector.a");
    let _ = std::fs::remove_file(&archive);
    let status = Command::new("ar").arg("rcs").arg(&archive).args(&objects).status().expect("ar");
    assert!(status.success(), "ar: {status}");
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=vector");

    match var("CUDART").ok().as_deref().and_then(|place| place.rsplit_once(':')) {
        Some((dir, name)) => {
            println!("cargo:rustc-link-search=native={dir}");
            println!("cargo:rustc-link-lib=static={name}");
        }
        None => {
            let cuda = var("CUDA_PATH").unwrap_or_else(|_| "/usr/local/cuda".into());
            println!("cargo:rustc-link-search=native={cuda}/lib64");
            println!("cargo:rustc-link-lib=static=cudart_static");
            for name in ["dl", "pthread", "rt"] {
                println!("cargo:rustc-link-lib={name}");
            }
        }
    }
    // `.cargo/config.toml` makes clang the driver, which takes this option.
    println!("cargo:rustc-link-arg-bins=--ld-path={}", var("WARPLINK").unwrap_or_else(|_| "warplink".into()));
}
