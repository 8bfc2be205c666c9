//! Links in memory, with the toolkit of `$CUDA_PATH` and, where there is one, libnvJitLink.

use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// Two kernels, one of which calls a function of [`HELPER`].
const KERNELS: &str = r#"
target triple = "nvptx64-nvidia-cuda"
declare i32 @helper(i32)
define ptx_kernel void @one(ptr addrspace(1) %p) {
  %v = call i32 @helper(i32 1)
  store i32 %v, ptr addrspace(1) %p
  ret void
}
define ptx_kernel void @two(ptr addrspace(1) %p) {
  store i32 2, ptr addrspace(1) %p
  ret void
}
"#;

const HELPER: &str = r#"
target triple = "nvptx64-nvidia-cuda"
define i32 @helper(i32 %x) {
  %y = mul i32 %x, 21
  ret i32 %y
}
"#;

fn bitcode(text: &str) -> Vec<u8> {
    llvm_lto::assemble(text).unwrap()
}

/// The toolkit's root; None is said.
fn toolkit() -> Option<PathBuf> {
    let root = std::env::var_os("CUDA_PATH").map(PathBuf::from).filter(|root| root.join("bin/ptxas").is_file());
    if root.is_none() {
        println!("skipped: no CUDA toolkit ($CUDA_PATH)");
    }
    root
}

/// The user's libnvJitLink: named, or in the toolkit; None is said.
fn library() -> Option<PathBuf> {
    let named = std::env::var_os("WARPLINK_NVJITLINK").map(PathBuf::from);
    let root = std::env::var_os("CUDA_PATH").map(PathBuf::from).unwrap_or_default();
    let places =
        ["lib64", "lib"].into_iter().flat_map(|dir| ["libnvJitLink.so.13", "libnvJitLink.so.12"].map(|name| root.join(dir).join(name)));
    let found = named.into_iter().chain(places).find(|path| path.is_file());
    if found.is_none() {
        println!("skipped: no libnvJitLink in $CUDA_PATH, and $WARPLINK_NVJITLINK names none");
    }
    found
}

fn config(toolkit: PathBuf) -> LinkConfig {
    LinkConfig { toolkit: Some(toolkit), ..LinkConfig::new(Arch::new(90)) }
}

/// A linker of each kind that there is a toolkit or a library for.
fn linkers(change: impl Fn(&mut LinkConfig)) -> Vec<DeviceLinker> {
    let mut configs = Vec::new();
    configs.extend(toolkit().map(config));
    configs.extend(library().map(|path| LinkConfig { assembler: Assembler::InProcess(path), ..LinkConfig::new(Arch::new(90)) }));
    configs.iter_mut().for_each(change);
    configs.iter().map(|config| DeviceLinker::new(config).unwrap()).collect()
}

#[test]
fn bitcode_becomes_an_image() {
    let (kernels, helper) = (bitcode(KERNELS), bitcode(HELPER));
    for linker in linkers(|_| {}) {
        let job = LinkJob::new().input("kernels.bc", &kernels[..]).library("helper.bc", &helper[..]);
        assert_eq!(linker.lookup(&job.id()), None);
        let image = linker.link(&job).unwrap();
        assert_eq!((image.arch, image.kernels().unwrap(), &image.ptx), (Arch::new(90), vec!["one".to_owned(), "two".to_owned()], &None));
        assert!(image.warnings.is_empty(), "{:?}", image.warnings);
        assert!(!Cubin::parse(&image.cubin).unwrap().is_relocatable());
        // The same image, not another one like it.
        assert!(Arc::ptr_eq(linker.lookup(&job.id()).unwrap(), &image));
        assert!(Arc::ptr_eq(&linker.link(&job).unwrap(), &image));
    }
}

#[test]
fn only_the_roots_stay() {
    let (kernels, helper) = (bitcode(KERNELS), bitcode(HELPER));
    for linker in linkers(|config| config.keep_ptx = true) {
        let job = || LinkJob::new().input("kernels.bc", &kernels[..]).input("helper.bc", &helper[..]);
        let image = linker.link(&job().root("two")).unwrap();
        assert_eq!(image.kernels().unwrap(), ["two"]);
        let text = String::from_utf8(image.ptx.clone().unwrap()).unwrap();
        assert!(text.contains(".entry two") && !text.contains("helper"), "{text}");
        // Nothing calls the library's function then, and nobody misses it.
        let image = linker.link(&LinkJob::new().input("kernels.bc", &kernels[..]).root("two").named(ContentId::of(b"mine"))).unwrap();
        assert!(Arc::ptr_eq(linker.lookup(&ContentId::of(b"mine")).unwrap(), &image));
        let error = linker.link(&job().root("three").root("two").root("three")).unwrap_err();
        assert_eq!(error.to_string(), "kernels.bc, helper.bc (sm_90): no input defines three, which is named as a root");
    }
}

#[test]
fn what_is_wrong_is_said_in_the_callers_terms() {
    let kernels = bitcode(KERNELS);
    let ptx = b".version 8.0\n.target sm_100a\n.address_size 64\n.visible .entry k() { ret; }\n";
    for linker in linkers(|_| {}) {
        for (job, expected) in [
            (LinkJob::new().input("k.bc", &kernels[..]), "k.bc: undefined device symbol: helper"),
            (LinkJob::new().input("x", &b"what is this"[..]), "x: is neither bitcode nor PTX nor a cubin"),
            (LinkJob::new().input("x", &b"BC\xc0\xde\0\0\0\0"[..]), "x: device bitcode cannot be read: "),
            (LinkJob::new().input("x", &b"\x7fELF"[..]), "x: "),
            (LinkJob::new().input("x.ptx", &ptx[..]), "x.ptx: is PTX for sm_100a, which cannot become code for sm_90"),
            (LinkJob::new(), "there is nothing to link for sm_90"),
            (LinkJob::new().library("k.bc", &kernels[..]), "there is nothing to link for sm_90"),
            (LinkJob::new().input("k.bc", &kernels[..]).input("l.bc", &kernels[..]), "l.bc: duplicate kernel: one"),
        ] {
            let error = linker.link(&job).unwrap_err().to_string();
            assert!(error.starts_with(expected), "{error}");
            assert_eq!(linker.lookup(&job.id()), None);
        }
        // What went wrong once is tried again.
        assert!(linker.link(&LinkJob::new().input("k.bc", &kernels[..])).is_err());
    }
}

#[test]
fn ptx_and_cubins_take_part() {
    let kernels = bitcode(KERNELS);
    let helper = b".version 7.8\n.target sm_80\n.address_size 64\n.visible .func (.param .b32 r) helper(.param .b32 x)\n{\n\
        .reg .b32 %a;\n ld.param.b32 %a, [x];\n st.param.b32 [r], %a;\n ret;\n}\n";
    let broken = b".version 7.8\n.target sm_80\n.address_size 64\n.visible .entry broken()\n{\n nonsense;\n}\n";
    for linker in linkers(|config| config.keep_ptx = true) {
        let job = LinkJob::new().input("kernels.bc", &kernels[..]).input("helper.ptx", &helper[..]);
        let image = linker.link(&job).unwrap();
        assert_eq!(image.kernels().unwrap(), ["one", "two"]);
        // It would not be the whole program.
        assert_eq!(image.ptx, None);
        let error = linker.link(&LinkJob::new().input("broken.ptx", &broken[..])).unwrap_err().to_string();
        assert!(error.starts_with("broken.ptx (sm_90): ") || error.starts_with("broken.ptx: "), "{error}");
        assert!(error.contains("nonsense"), "{error}");
    }
    let Some(toolkit) = toolkit() else { return };
    let linker = DeviceLinker::new(&config(toolkit.clone())).unwrap();
    // A cubin of an older GPU of the same generation serves; one of another does not.
    let other = |sm| LinkConfig { arch: Arch::new(sm), ..config(toolkit.clone()) };
    let made = DeviceLinker::new(&other(80)).unwrap().link(&LinkJob::new().input("k.bc", bitcode(HELPER)).root("helper")).unwrap();
    let error = linker.link(&LinkJob::new().input("old.cubin", &made.cubin[..])).unwrap_err();
    assert_eq!(error.to_string(), "old.cubin: is a cubin for sm_80, which does not run on sm_90");
}

#[test]
fn settings_are_part_of_the_identity() {
    let kernels = bitcode(&KERNELS.replace("@helper(i32 1)", "@helper(i32 2)"));
    let helper = bitcode(HELPER);
    let mut identities = std::collections::BTreeSet::new();
    let mut count = 0;
    for limit in [false, true] {
        for linker in linkers(|config| {
            if limit {
                config.kernels = vec![KernelSetting::parse("one:maxntid=64").unwrap()];
                config.ptxas_arguments = vec!["--maxrregcount=32".to_owned()];
            }
        }) {
            let image = linker.link(&LinkJob::new().input("kernels.bc", &kernels[..]).input("helper.bc", &helper[..])).unwrap();
            let cubin = Cubin::parse(&image.cubin).unwrap();
            let found = cubin.kernels().unwrap();
            let one = found.iter().find(|kernel| kernel.name == "one").unwrap();
            assert_eq!(one.max_threads, limit.then_some([64, 1, 1]));
            identities.insert(linker.identity());
            count += 1;
        }
    }
    assert_eq!(identities.len(), count);
    for linker in linkers(|_| {}) {
        assert!(identities.contains(&linker.identity()));
    }
}

#[test]
fn the_cache_on_disk_has_what_another_linker_made() {
    let (kernels, helper) = (bitcode(KERNELS), bitcode(HELPER));
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join("cache");
    let make = || linkers(|config| (config.cache, config.keep_ptx) = (DiskCache::At(place.clone()), true));
    let hits = || {
        let options = crate::options::CacheOptions { dir: Some(place.clone()), ..Default::default() };
        crate::cache::Inspection::open(&options, &|_| None).unwrap().unwrap().stats().kinds[&Kind::Image]
    };
    let job = LinkJob::new().input("kernels.bc", &kernels[..]).input("helper.bc", &helper[..]);
    let first: Vec<_> = make().iter().map(|linker| linker.link(&job).unwrap()).collect();
    if first.is_empty() {
        return;
    }
    assert_eq!((hits().hits, hits().entries), (0, first.len() as u64));
    // Another name for the content is the same content to the disk.
    let job = job.named(ContentId::of(b"another name"));
    let second: Vec<_> = make().iter().map(|linker| linker.link(&job).unwrap()).collect();
    assert_eq!((hits().hits, hits().entries), (first.len() as u64, first.len() as u64));
    assert_eq!(first, second);
    // Neither does it do for other roots.
    let of_roots = make().first().map(|linker| linker.link(&LinkJob::new().input("kernels.bc", &kernels[..]).root("two")).unwrap());
    assert_eq!(of_roots.unwrap().kernels().unwrap(), ["two"]);
}

#[test]
fn one_content_is_linked_once() {
    let (kernels, helper) = (bitcode(KERNELS), bitcode(HELPER));
    for linker in linkers(|_| {}) {
        let job = LinkJob::new().input("kernels.bc", &kernels[..]).input("helper.bc", &helper[..]);
        let images: Vec<_> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(|| linker.link(&job).unwrap())).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        assert!(images.iter().all(|image| Arc::ptr_eq(image, &images[0])));
    }
}

#[test]
fn claims_follow_one_another() {
    let Some(linker) = linkers(|_| {}).into_iter().next() else { return };
    let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let _claim = linker.claim(ContentId::of(b"one"));
                    most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                    inside.fetch_sub(1, Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

#[test]
fn what_is_missing_is_said_at_once() {
    let nowhere = LinkConfig { toolkit: Some("/no/such/toolkit".into()), ..LinkConfig::new(Arch::new(90)) };
    let error = DeviceLinker::new(&nowhere).unwrap_err().to_string();
    assert!(error.starts_with("/no/such/toolkit: no ptxas in this toolkit"), "{error}");
    let Some(toolkit) = toolkit() else { return };
    let no_library = LinkConfig { assembler: Assembler::InProcess("/no/such/libnvJitLink.so".into()), ..config(toolkit) };
    let error = DeviceLinker::new(&no_library).unwrap_err().to_string();
    assert!(error.starts_with("/no/such/libnvJitLink.so: "), "{error}");
}
