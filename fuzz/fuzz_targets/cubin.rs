//! Cubins: sections, symbols, what kernels need; and references to kernels, which change nothing but themselves.
#![no_main]

use fatbin::cubin::Cubin;
use libfuzzer_sys::fuzz_target;
use warplink_fuzz::{bounded, is_part};

fuzz_target!(|data: &[u8]| {
    let Ok(cubin) = bounded(data.len(), 64, || Cubin::parse(data)) else { return };
    assert!(cubin.sections().iter().all(|section| is_part(data, section.data) && is_part(data, section.name.as_bytes())));
    assert!(cubin.symbols().iter().all(|symbol| is_part(data, symbol.name.as_bytes())));
    assert!(cubin.symbols().iter().flat_map(|symbol| symbol.section).all(|section| section < cubin.sections().len()));
    let _ = (cubin.variables().count(), cubin.size_of_sections(".text"), cubin.arch().to_string());
    if let Ok(kernels) = bounded(data.len(), 256, || cubin.kernels()) {
        assert!(kernels.len() <= cubin.symbols().len());
    }
    let is_kernel = |name: &str| name.len() % 2 == 1;
    if let Ok(Some(marked)) = bounded(data.len(), 64, || Cubin::with_kernels_marked(data, is_kernel)) {
        assert_eq!(marked.len(), data.len());
    }
});
