//! Links the program at a fixed address. LLVM's tables hold 70,000 pointers; relocating them dirties a megabyte and takes longer than all
//! that a link without device code needs of us. The compilers of distributions (gcc's cc1) are linked so for the same reason; libraries,
//! stack and heap keep their random addresses.

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|os| os == "linux") {
        println!("cargo:rustc-link-arg-bins=-no-pie");
    }
}
