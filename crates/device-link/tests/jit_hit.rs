//! A hit by content id allocates nothing. In a file of its own, because counting replaces the allocator of the whole program.

use std::hint::black_box;

use device_link::jit::{ContentId, DeviceLinker, LinkConfig, LinkJob};

#[test]
fn a_hit_allocates_nothing() {
    let Some(toolkit) = std::env::var_os("CUDA_PATH") else {
        println!("skipped: no CUDA toolkit ($CUDA_PATH)");
        return;
    };
    let kernel = llvm_lto::assemble("target triple = \"nvptx64-nvidia-cuda\"\ndefine ptx_kernel void @k() {\n  ret void\n}\n").unwrap();
    let linker = DeviceLinker::new(&LinkConfig { toolkit: Some(toolkit.into()), ..LinkConfig::new("sm_80".parse().unwrap()) }).unwrap();
    let job = LinkJob::new().input("k.bc", &kernel[..]);
    let (mine, unknown) = (ContentId::of(b"mine"), ContentId::of(b"unknown"));
    linker.link(&job).unwrap();
    linker.link(&job.clone().named(mine)).unwrap();

    // The counter counts.
    assert!(allocation_counter::measure(|| drop(black_box(vec![1_u8]))).count_total > 0);
    let id = job.id();
    let mut found = Vec::with_capacity(3);
    let counted = allocation_counter::measure(|| {
        for id in [&id, &mine, &unknown] {
            found.push(linker.lookup(black_box(id)).map(|image| image.cubin.len()));
        }
        // Neither does the id of what lies in memory, nor a reference of one's own.
        black_box(job.id());
        black_box(linker.lookup(&id).cloned());
        black_box(linker.link(&job)).unwrap();
    });
    assert_eq!(counted.count_total, 0, "{counted:?}");
    assert!(found[0].is_some() && found[0] == found[1] && found[2].is_none(), "{found:?}");
}
