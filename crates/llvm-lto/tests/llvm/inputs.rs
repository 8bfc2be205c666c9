//! What is asked of an input before anything is merged.

use llvm_lto::{Binding, ModuleInfo, Session, SymbolKind};

use crate::support::*;

#[test]
fn symbols_have_their_binding_and_kind() {
    use Binding::*;
    use SymbolKind::*;
    let bitcode = input("symbols.ll");
    let (session, ids) = loaded(&[&bitcode]);
    let mut found: Vec<_> = session.symbols(ids[0]).into_iter().map(|s| (s.name, s.binding, s.kind)).collect();
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = [
        ("alias_function", Strong, Function),
        ("common_variable", Common, Variable),
        ("constant_variable", Strong, Variable),
        ("device_function", Strong, Function),
        ("device_variable", Strong, Variable),
        ("extern_function", Undefined, Function),
        ("extern_kernel", Undefined, Kernel),
        ("extern_variable", Undefined, Variable),
        ("header_function", Undefined, Function),
        ("inline_function", Weak, Function),
        ("kernel", Strong, Kernel),
        ("template_kernel", Weak, Kernel),
        ("weak_reference", UndefinedWeak, Variable),
        ("weak_variable", Weak, Variable),
    ];
    assert_eq!(found, expected.map(|(name, binding, kind)| (name.to_owned(), binding, kind)));
}

#[test]
fn what_a_module_says_of_itself() {
    let bitcode = input("symbols.ll");
    let (session, ids) = loaded(&[&bitcode]);
    assert_eq!(
        session.info(ids[0]),
        ModuleInfo {
            triple: "nvptx64-nvidia-cuda".to_owned(),
            cpu: Some("sm_80".to_owned()),
            // Of numbers, not of strings: 78 is more than 9.
            ptx_version: Some(78),
            command_lines: vec!["clang -cc1 -O3 --offload-arch=sm_80 \"a b.cu\"".to_owned()],
            producers: vec!["clang version 22.1.8".to_owned(), "clang version 3.8.0 (tags/RELEASE_380/final)".to_owned()],
            functions: 6,
            optnone_functions: 2,
            has_debug_info: true,
        }
    );
    assert_eq!(session.name(ids[0]), "0.o");
}

#[test]
fn a_module_that_says_nothing() {
    let bitcode = device("@v = addrspace(1) global i32 0\n");
    let (session, ids) = loaded(&[&bitcode]);
    assert_eq!(session.info(ids[0]), ModuleInfo { triple: "nvptx64-nvidia-cuda".to_owned(), ..ModuleInfo::default() });
    let empty = assemble("");
    let (session, ids) = loaded(&[&empty]);
    assert_eq!(session.info(ids[0]), ModuleInfo::default());
    assert_eq!(session.symbols(ids[0]), []);
}

#[test]
fn an_input_is_spent_once_merged() {
    let bitcode = input("symbols.ll");
    let (mut session, ids) = loaded(&[&bitcode]);
    session.link(&ids).unwrap();
    assert_eq!(session.symbols(ids[0]), []);
    assert_eq!(session.info(ids[0]), ModuleInfo::default());
    assert_eq!(session.name(ids[0]), "0.o");
}

#[test]
fn nothing_can_be_done_before_linking() {
    let mut session = Session::new();
    assert!(session.internalize(&names(&[])).is_err());
    assert!(session.bitcode().is_err());
    assert!(session.merge_constants().is_err());
    assert!(session.demote_constants(0, &names(&[])).is_err());
    assert!(session.retarget("sm_90", "").is_err());
    assert!(session.undefined().is_err());
    assert!(session.call_facts().is_err());
    assert!(session.kernels().is_err());
    assert!(session.run_passes(&spec(llvm_lto::OptLevel::O2), "lto<O2>").is_err());
    assert!(session.emit(&spec(llvm_lto::OptLevel::O2)).is_err());
}

/// Bitcode in which a name of eight-bit characters is replaced, wherever its first bit is.
fn renamed(mut bitcode: Vec<u8>, from: &str, to: &str) -> Vec<u8> {
    assert_eq!(from.len(), to.len());
    let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (at % 8) & 1;
    let length = from.len() * 8;
    let at = (0..=bitcode.len() * 8 - length).find(|at| (0..length).all(|i| bit(&bitcode, at + i) == bit(from.as_bytes(), i))).unwrap();
    for i in 0..length {
        let byte = &mut bitcode[(at + i) / 8];
        *byte = *byte & !(1 << ((at + i) % 8)) | bit(to.as_bytes(), i) << ((at + i) % 8);
    }
    bitcode
}

/// LLVM 19 and older mark kernels by metadata. (The assembler would upgrade it, so the name is put in behind its back.)
#[test]
fn kernels_of_older_compilers_are_kernels() {
    let text = device(
        "define void @kernel(ptr %p) { store i32 71, ptr %p ret void }
         define linkonce_odr void @template_kernel(ptr %p) { store i32 72, ptr %p ret void }
         define void @function(ptr %p) { store i32 73, ptr %p ret void }
         !nvvm.annotatXons = !{!0, !1}
         !0 = !{ptr @kernel, !\"kernel\", i32 1}
         !1 = !{ptr @template_kernel, !\"kernel\", i32 1, !\"maxntidx\", i32 128}",
    );
    let bitcode = renamed(text, "nvvm.annotatXons", "nvvm.annotations");
    let (mut session, ids) = loaded(&[&bitcode]);
    let kinds: Vec<_> = session.symbols(ids[0]).into_iter().map(|s| (s.name, s.kind)).collect();
    use SymbolKind::*;
    let expected = [("kernel", Kernel), ("template_kernel", Kernel), ("function", Function)];
    assert_eq!(kinds, expected.map(|(name, kind)| (name.to_owned(), kind)));
    session.link(&ids).unwrap();
    session.internalize(&names(&[])).unwrap();
    session.run_passes(&spec(llvm_lto::OptLevel::O2), "lto<O2>").unwrap();
    let text = ptx(session);
    assert!(text.contains(".visible .entry kernel(") && text.contains(".visible .entry template_kernel("), "{text}");
    assert!(text.contains(".maxntid 128") && !text.contains("function"), "{text}");
}

/// `statics.ll` with a hash of its own and a number by which its definitions are told apart.
fn statics(hash: &str, value: u32) -> Vec<u8> {
    assemble(&text("statics.ll").replace("HASH", hash).replace("VALUE", &value.to_string()))
}

#[test]
fn a_renamed_static_is_bound_to_its_definition() {
    let bitcode = statics("aaa", 71);
    let (mut session, ids) = loaded(&[&bitcode]);
    let mut bound = session.bind_renamed_statics(ids[0]).unwrap();
    bound.sort();
    let expected = [("_ZL1c", "_ZL1c__static__aaa"), ("_ZL1fi", "_ZL1fi__intern__aaa"), ("_ZL1v", "_ZL1v__static__aaa")];
    assert_eq!(bound, expected.map(|(from, to)| (from.to_owned(), to.to_owned())));
    // The references are gone from the input itself; one that has no definition here stays.
    let undefined: Vec<_> = session.symbols(ids[0]).into_iter().filter(|s| s.binding == Binding::Undefined).map(|s| s.name).collect();
    assert_eq!(undefined, ["_ZL5other"]);
    assert_eq!(session.bind_renamed_statics(ids[0]).unwrap(), []);

    session.link(&ids).unwrap();
    session.internalize(&names(&["_ZL1v__static__aaa", "_ZL1c__static__aaa"])).unwrap();
    let text = ptx(session);
    assert!(text.contains(".visible .global .align 4 .u32 _ZL1v__static__aaa = 71;"), "{text}");
    assert!(text.contains(".visible .const .align 4 .b8 _ZL1c__static__aaa[8] = {71, 0, 0, 0, 71};"), "{text}");
    assert!(text.contains("= {_ZL1fi__intern__aaa}"), "the function's address in a table: {text}");
    for gone in ["_ZL1v;", "_ZL1c;", "_ZL1fi;", "_ZL1fi("] {
        assert!(!text.contains(gone), "{gone} is still referred to: {text}");
    }
}

#[test]
fn statics_of_one_name_in_two_objects_stay_apart() {
    let (a, b) = (statics("aaa", 71), statics("bbb", 72));
    let (mut session, ids) = loaded(&[&a, &b]);
    for &id in &ids {
        assert_eq!(session.bind_renamed_statics(id).unwrap().len(), 3);
    }
    session.link(&ids).unwrap();
    session.internalize(&names(&[])).unwrap();
    session.run_passes(&spec(llvm_lto::OptLevel::O2), "lto<O2>").unwrap();
    let text = ptx(session);
    let body = |kernel: &str| {
        let start = text.find(&format!(".entry {kernel}(")).unwrap();
        let end = text[start..].find("\n}").unwrap();
        text[start..start + end].to_owned()
    };
    let (first, second) = (body("kernel_aaa"), body("kernel_bbb"));
    assert!(first.contains("71") && !first.contains("72"), "{first}");
    assert!(second.contains("72") && !second.contains("71"), "{second}");
}

#[test]
fn only_references_are_bound() {
    // The plain name is defined here: two variables, both meant.
    let bitcode = device(
        "@_ZL1v = addrspace(1) global i32 1
         @_ZL1v__static__aaa = addrspace(1) global i32 2
         @_ZL1w__static__aaa = external addrspace(1) global i32
         @_ZL1w = external addrspace(1) global i32",
    );
    let (mut session, ids) = loaded(&[&bitcode]);
    assert_eq!(session.bind_renamed_statics(ids[0]).unwrap(), []);
}
