//! Linker scripts: what is found comes from the text, and is the same when written plainly.
#![no_main]

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use device_link::script::{Command, Named, parse};
use libfuzzer_sys::fuzz_target;
use warplink_fuzz::bounded;

fuzz_target!(|text: &[u8]| {
    let commands = bounded(text.len(), 128, || parse(text));
    let mut plain = Vec::new();
    let mut taken = 0;
    for command in &commands {
        let list = |plain: &mut Vec<u8>, keyword: &str, names: &[Named]| {
            plain.extend(keyword.as_bytes());
            plain.push(b'(');
            for named in names {
                let (open, close) = if named.as_needed { ("AS_NEEDED(", ")") } else { ("", "") };
                plain.extend(open.as_bytes());
                quote(plain, &named.name);
                plain.extend(close.as_bytes());
            }
            plain.extend(b")\n");
            names.iter().map(|named| named.name.len()).sum::<usize>()
        };
        taken += match command {
            Command::Input(names) => list(&mut plain, "INPUT", names),
            Command::Group(names) => list(&mut plain, "GROUP", names),
            Command::SearchDir(dir) => list(&mut plain, "SEARCH_DIR", &[Named { name: dir.clone(), as_needed: false }]),
            Command::Extern(names) => {
                let names: Vec<Named> = names.iter().map(|name| Named { name: name.into(), as_needed: false }).collect();
                list(&mut plain, "EXTERN", &names);
                0
            }
            Command::Entry(name) => {
                list(&mut plain, "ENTRY", &[Named { name: name.into(), as_needed: false }]);
                0
            }
            Command::Include(file) => {
                plain.extend(b"INCLUDE ");
                quote(&mut plain, file);
                plain.push(b'\n');
                file.len()
            }
            Command::Insert => {
                plain.extend(b"INSERT\n");
                0
            }
        };
    }
    assert!(taken <= text.len());
    assert_eq!(parse(&plain), commands);
});

fn quote(plain: &mut Vec<u8>, name: &OsStr) {
    plain.push(b'"');
    plain.extend(name.as_bytes());
    plain.extend(b"\" ");
}
