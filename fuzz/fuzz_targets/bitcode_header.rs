//! What is read of bitcode without LLVM: who made it, and whether two pieces are one code.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offload_object::{bitcode_producer, same_code};
use warplink_fuzz::bounded;

fuzz_target!(|data: &[u8]| {
    if let Some(producer) = bounded(data.len(), 1024, || bitcode_producer(data)) {
        assert!(producer.len() <= 256 && producer.is_ascii());
    }
    let (one, other) = data.split_at(data.len() / 2);
    bounded(data.len(), 1024, || {
        assert_eq!(same_code(one, other), same_code(other, one));
        let _ = same_code(data, data);
    });
});
