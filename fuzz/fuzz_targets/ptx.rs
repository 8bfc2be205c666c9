//! PTX text: its head, its symbols, modules joined to one.
#![no_main]

use fatbin::ptx::{Header, symbols, with_kernels_declared};
use fatbin::{Compression, Image, Kind};
use libfuzzer_sys::fuzz_target;
use warplink_fuzz::{bounded, is_part};

fuzz_target!(|text: &[u8]| {
    let header = Header::parse(text);
    let found = bounded(text.len(), 64, || symbols(text));
    assert!(found.iter().all(|symbol| is_part(text, symbol.name.as_bytes()) && !symbol.name.is_empty()));
    let is_kernel = |name: &str| name.len() % 2 == 1;
    if let Some(changed) = bounded(text.len(), 64, || with_kernels_declared(text, is_kernel)) {
        // `.func` has become `.entry`, which is one longer.
        assert!(changed.len() > text.len());
        assert_eq!(with_kernels_declared(&changed, is_kernel), None);
        assert_eq!(symbols(&changed).len(), found.len());
        assert_eq!(Header::parse(&changed), header);
    }
    let half = text.len() / 2;
    let _ = bounded(text.len(), 256, || fatbin::ptx_join::join(&[text]));
    let _ = bounded(text.len(), 256, || fatbin::ptx_join::join(&[&text[..half], &text[half..]]));
    let Ok(header) = header else { return };
    let image =
        Image { kind: Kind::Ptx, arch: header.target, data: text, ident: None, options: "", debug: false, compression: Compression::None };
    if let Ok(container) = fatbin::write(&[image]) {
        let entries = fatbin::read(&container).expect("what was written");
        let stripped = entries[0].payload().expect("what was written");
        assert_eq!(Header::parse(&stripped).as_ref(), Ok(&header));
        let names = |text| symbols(text).into_iter().map(|symbol| (symbol.name.to_owned(), symbol.kind)).collect::<Vec<_>>();
        assert_eq!(names(&stripped), names(text));
    }
});
