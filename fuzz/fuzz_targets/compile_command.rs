//! The recorded compile command and the choices in metadata: words come back from what clang writes of them.
#![no_main]

use device_link::ptx_choice::{command_wants, metadata_wants, split_command};
use fatbin::Arch;
use libfuzzer_sys::fuzz_target;
use warplink_fuzz::bounded;

fuzz_target!(|line: &str| {
    let words = bounded(line.len(), 64, || split_command(line));
    assert!(words.iter().map(String::len).sum::<usize>() <= line.len());
    let written: Vec<String> = words.iter().map(|word| word.replace('\\', "\\\\").replace(' ', "\\ ")).collect();
    assert_eq!(split_command(&written.join(" ")), words);
    for arch in [Arch::new(90), Arch { sm: 100, suffix: Some(fatbin::Suffix::Family) }] {
        let _ = (command_wants(&words, arch), metadata_wants(line, arch));
    }
    for word in &words {
        if let Ok(arch) = word.parse::<Arch>() {
            assert_eq!(arch.to_string().parse(), Ok(arch));
            assert!(
                metadata_wants(word, arch) && metadata_wants(line, arch) || line.contains(['\\', '\t', '\n']) || line.len() != word.len()
            );
        }
    }
});
