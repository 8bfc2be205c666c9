//! Response files and link lines: words come back from what is written of them, and a line without options of ours goes to the host linker as
//! it is.
#![no_main]

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

use device_link::link_line;
use device_link::response::{split, to_response_file};
use libfuzzer_sys::fuzz_target;
use warplink_fuzz::bounded;

fuzz_target!(|text: &[u8]| {
    let words = bounded(text.len(), 64, || split(text));
    assert!(words.iter().map(|word| word.len()).sum::<usize>() <= text.len());
    assert_eq!(split(&to_response_file(&words)), words);
    // `WARPLINK_NAME=value` is the environment. Response files in response files would be read from the disk.
    let is_variable = |word: &OsString| word.as_bytes().starts_with(b"WARPLINK_") && word.as_bytes().contains(&b'=');
    let (environment, words): (Vec<OsString>, Vec<OsString>) =
        words.into_iter().filter(|word| !word.as_bytes().starts_with(b"@")).partition(is_variable);
    let env = |name: &str| {
        let value = environment.iter().find_map(|word| word.as_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        value.map(|value| std::ffi::OsStr::from_bytes(value).to_owned())
    };
    for program in ["ld", "clang-linker-wrapper"] {
        let argv: Vec<OsString> = std::iter::once(OsString::from(program)).chain(words.iter().cloned()).collect();
        let Ok(line) = bounded(text.len(), 4096, || link_line::parse(argv, &env)) else { continue };
        assert!(line.host.items.iter().all(|item| item.position < line.host.argv.len()));
        assert!(line.host.output_index.is_none_or(|index| index < line.host.argv.len()));
        let ours = ["-warplink-", "-wrapper-", "-device-", "-cuda-"];
        let is_ours = |word: &OsString| ours.iter().any(|start| word.to_string_lossy().contains(start));
        if program == "ld" && !words.iter().any(is_ours) {
            assert_eq!(line.host.argv, words);
        }
    }
});
