//! `cargo bench -p device-link`: what a JIT waits for. With the toolkit of `$CUDA_PATH`, and the libnvJitLink of `$WARPLINK_NVJITLINK` where
//! one is named.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::Criterion;
use device_link::jit::{Assembler, ContentId, DeviceLinker, DiskCache, LinkConfig, LinkJob};

const EMPTY: &str = "target triple = \"nvptx64-nvidia-cuda\"\ndefine ptx_kernel void @empty() {\n  ret void\n}\n";

/// Images in the table: as many as a long session of a JIT has.
const IMAGES: u64 = 1024;

fn jit(criterion: &mut Criterion) {
    let Some(toolkit) = std::env::var_os("CUDA_PATH") else {
        println!("skipped: no CUDA toolkit ($CUDA_PATH)");
        return;
    };
    let empty = llvm_lto::assemble(EMPTY).expect("the text is right");
    let config = LinkConfig { toolkit: Some(toolkit.into()), ..LinkConfig::new("sm_90".parse().expect("an architecture")) };
    let job = || LinkJob::new().input("empty.bc", &empty[..]);
    let counter = AtomicU64::new(0);
    let next = || ContentId::of(&counter.fetch_add(1, Ordering::Relaxed).to_le_bytes());

    let disk = tempfile::tempdir().expect("a directory");
    let cached = LinkConfig { cache: DiskCache::At(disk.path().join("cache")), ..config.clone() };
    let linker = DeviceLinker::new(&cached).expect("a toolkit");
    let ids: Vec<ContentId> = (0..IMAGES).map(|_| next()).collect();
    for id in &ids {
        linker.link(&job().named(*id)).expect("a link");
    }
    let allocations = allocation_counter::measure(|| {
        black_box(ids.iter().filter(|id| linker.lookup(id).is_some()).count());
    });
    println!("allocations of {IMAGES} hits by id: {}", allocations.count_total);
    // Another image each time, in an order that no processor foresees.
    let mut order = ids.iter().cycle();
    criterion.bench_function("hit by id", |bench| {
        bench.iter(|| linker.lookup(black_box(order.next().unwrap_or(&ids[0]))).map(|image| image.cubin.len()));
    });
    let unknown = ContentId::of(b"unknown");
    criterion.bench_function("miss by id", |bench| bench.iter(|| linker.lookup(black_box(&unknown)).is_some()));
    criterion.bench_function("id of a small job", |bench| bench.iter(|| black_box(job()).id()));

    let mut group = criterion.benchmark_group("empty kernel, bitcode to cubin");
    group.sample_size(10).measurement_time(Duration::from_secs(3));
    group.bench_function("from disk", |bench| bench.iter(|| linker.link(&job().named(next()))));
    let linker = DeviceLinker::new(&config).expect("a toolkit");
    group.bench_function("ptxas, cold", |bench| bench.iter(|| linker.link(&job().named(next()))));
    match std::env::var_os("WARPLINK_NVJITLINK") {
        Some(library) => {
            let linker = DeviceLinker::new(&LinkConfig { assembler: Assembler::InProcess(library.into()), ..config }).expect("a library");
            group.bench_function("in process, cold", |bench| bench.iter(|| linker.link(&job().named(next()))));
        }
        None => println!("skipped: in process ($WARPLINK_NVJITLINK names no libnvJitLink)"),
    }
    group.finish();
}

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    jit(&mut criterion);
    criterion.final_summary();
}
