//! Host objects that are bitcode.

use llvm_lto::{Binding, HostBitcode, HostBitcodeEntry, HostSymbol, read_host_bitcode};

use crate::support::*;

#[test]
fn symbols_entries_and_sections() {
    let mut host = read_host_bitcode(&input("host.ll")).unwrap();
    host.symbols.sort_by(|a, b| a.name.cmp(&b.name));
    let symbol = |name: &str, binding| HostSymbol { name: name.to_owned(), binding };
    let entry = |kind, flags, name: &str, size, symbol: &str, address: &str| HostBitcodeEntry {
        kind,
        flags,
        name: name.to_owned(),
        size,
        symbol: symbol.to_owned(),
        address: address.to_owned(),
    };
    use Binding::*;
    assert_eq!(
        host,
        HostBitcode {
            triple: "x86_64-pc-linux-gnu".to_owned(),
            symbols: vec![
                symbol(".offloading.entry._Z1kIiEvPT_", Weak),
                symbol(".offloading.entry.variable", Weak),
                symbol("alias", Strong),
                symbol("common_variable", Common),
                symbol("entry_reference", Undefined),
                symbol("extern_function", Undefined),
                symbol("extern_name", Undefined),
                symbol("extern_variable", Undefined),
                symbol("header_function", Undefined),
                symbol("inline_function", Weak),
                symbol("main_part", Strong),
                symbol("renamed", Strong),
                symbol("stub", Strong),
                symbol("unused_reference", Undefined),
                symbol("variable", Strong),
                symbol("weak_reference", UndefinedWeak),
                symbol("weak_variable", Weak),
            ],
            offload_sections: vec![b"\x10\xff\x10\xad\0\x01\x02\x03".to_vec(), b"abcd".to_vec()],
            entries: vec![
                entry(2, 0, "_Z1kIiEvPT_", 0, ".offloading.entry._Z1kIiEvPT_", "stub"),
                entry(2, 16, "variable", 16, ".offloading.entry.variable", "variable"),
                entry(4, 1, "static_variable__1234", 4, ".offloading.entry.static", "static_variable"),
            ],
        }
    );
}

#[test]
fn a_host_object_without_device_code() {
    let bitcode = assemble("target triple = \"aarch64-linux-gnu\"\ndefine i32 @main() { ret i32 0 }");
    let main = HostSymbol { name: "main".to_owned(), binding: Binding::Strong };
    assert_eq!(
        read_host_bitcode(&bitcode).unwrap(),
        HostBitcode { triple: "aarch64-linux-gnu".to_owned(), symbols: vec![main], ..HostBitcode::default() }
    );
}

#[test]
fn an_offload_section_that_holds_no_bytes() {
    // Zeros are no offload binary, a number is no array, and a declaration is in another object.
    for definition in ["private constant [8 x i8] zeroinitializer", "private constant i64 5", "external constant [8 x i8]"] {
        let bitcode = assemble(&format!("@s = {definition}, section \".llvm.offloading\""));
        assert_eq!(read_host_bitcode(&bitcode).unwrap().offload_sections, Vec::<Vec<u8>>::new(), "{definition}");
    }
}
