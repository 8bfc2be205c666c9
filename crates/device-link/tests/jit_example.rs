//! `examples/jit.rs` does what it says, with or without a GPU.

use std::process::Command;

#[test]
fn the_example_links_and_runs_or_says_why_not() {
    let test = std::env::current_exe().unwrap();
    let example = test.parent().and_then(std::path::Path::parent).unwrap().join("examples/jit");
    if std::env::var_os("CUDA_PATH").is_none() || !example.is_file() {
        println!("skipped: no CUDA toolkit ($CUDA_PATH), or the example is not built");
        return;
    }
    let mut lines = vec![Vec::new()];
    lines.extend(std::env::var_os("WARPLINK_NVJITLINK").map(|library| vec!["sm_90".into(), library]));
    for arguments in lines {
        let output = Command::new(&example).args(arguments).output().unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        assert!(text.starts_with("fill for sm_"), "{text}");
        assert!(text.contains("it wrote [0.0, 0.5, 1.0, 1.5]") || text.contains("it was not run: there is no "), "{text}");
    }
}
