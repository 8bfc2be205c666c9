//! Input files as bytes, and names as people read them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use llvm_lto::{MappedFile, demangle};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("files-{}-{name}", std::process::id()))
}

#[test]
fn files_of_every_size_are_read_whole() {
    for size in [0_usize, 1, 4095, 4096, (32 << 10) - 1, 32 << 10, (32 << 10) + 1, 1 << 20] {
        let path = path(&size.to_string());
        let bytes: Vec<u8> = (0..size).map(|i| (i % 251) as u8).collect();
        fs::write(&path, &bytes).unwrap();
        let file = MappedFile::open(&path).unwrap();
        assert!(*file == bytes, "{size} bytes");
        fs::remove_file(&path).unwrap();
        assert!(*file == bytes, "{size} bytes after the file is gone");
    }
    assert_eq!(*MappedFile::from_vec(vec![1, 2, 3]), [1, 2, 3]);
}

#[test]
fn what_is_no_file() {
    assert_eq!(MappedFile::open(&path("missing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    assert_eq!(MappedFile::open(Path::new(env!("CARGO_TARGET_TMPDIR"))).unwrap_err().kind(), io::ErrorKind::IsADirectory);
    assert_eq!(*MappedFile::open(Path::new("/dev/null")).unwrap(), []);
}

#[test]
fn a_pipe_is_read_to_its_end() {
    let path = path("pipe");
    let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
    assert!(made.success());
    let bytes = vec![7_u8; 200_000];
    std::thread::scope(|scope| {
        scope.spawn(|| fs::write(&path, &bytes).unwrap());
        assert!(*MappedFile::open(&path).unwrap() == bytes);
    });
    fs::remove_file(&path).unwrap();
}

#[test]
fn names_as_their_author_wrote_them() {
    for (mangled, plain) in [
        ("_Z6kernelIiEvPT_", "void kernel<int>(int*)"),
        ("_ZL1v", "v"),
        ("_RNvC7mycrate3foo", "mycrate::foo"),
        ("plain_name", "plain_name"),
        ("_Z", "_Z"),
        ("_Znot mangled", "_Znot mangled"),
        ("", ""),
    ] {
        assert_eq!(demangle(mangled), plain);
    }
}
