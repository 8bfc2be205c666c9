//! `warplink doctor`: what a link would use here, and what is missing.

use std::ffi::OsString;

use device_link::link_line;
use device_link::options::Invocation;
use device_link::toolchain::cuda::Toolkit;
use device_link::toolchain::host_linker;

/// Prints the toolkit and the host linkers.
pub(crate) fn run() -> Result<(), String> {
    let env = |name: &str| std::env::var_os(name);
    let mut options = link_line::parse(vec![OsString::from("ld")], &env).map_err(|error| error.to_string())?.options;
    let toolkit = Toolkit::find(&options, &env).map_err(|error| error.to_string())?;
    match &toolkit.root {
        Some(root) => {
            let version = toolkit.version().map_or_else(String::new, |(major, minor)| format!(" (CUDA {major}.{minor})"));
            println!("toolkit      {}{version}", root.display());
        }
        None => println!("toolkit      not found; name it with --cuda-path=DIR or CUDA_PATH"),
    }
    for (name, path) in [("ptxas", &toolkit.ptxas), ("nvlink", &toolkit.nvlink)] {
        println!("{name:<12} {}", path.as_ref().map_or_else(|| "not found".to_owned(), |path| path.display().to_string()));
    }
    if toolkit.root.is_none() {
        for place in &toolkit.searched {
            println!("  looked in {place}");
        }
    }
    let own = std::env::current_exe().ok();
    for name in ["ld", "ld.bfd", "ld.gold", "ld.lld", "ld.mold"] {
        options.invoked_as = Invocation::Linker(name.to_owned());
        match host_linker(&options, own.as_deref(), &env) {
            Ok(linker) => println!("{name:<12} {} ({:?})", linker.path.display(), linker.kind),
            Err(_) => println!("{name:<12} not found"),
        }
    }
    match crate::bin_dir::bin_dir() {
        Ok(dir) => println!("bin-dir      {}", dir.display()),
        Err(error) => println!("bin-dir      {error}"),
    }
    Ok(())
}
