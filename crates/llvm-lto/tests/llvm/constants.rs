//! The constant bank: tables that are merged, and tables that leave it when it overflows.

use llvm_lto::Demoted;

use crate::support::*;

#[test]
fn identical_tables_become_one() {
    let bitcode = input("constants.ll");
    let mut session = linked(&[&bitcode]);
    assert_eq!(session.merge_constants().unwrap(), 1);
    assert_eq!(session.merge_constants().unwrap(), 0);
    let text = ptx(session);
    assert!(!text.contains("same_second"), "{text}");
    assert_eq!(line(&text, "same_first"), ".const .align 16 .b8 same_first[16] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4};");
    for kept in ["compared", "compared_here", "written_by_host", "other_content", "other_type", "other_space", "not_local", "in_section"] {
        line(&text, kept);
    }
    line(&text, "not_constant");
}

#[test]
fn tables_of_several_objects_become_one() {
    let unit = "@table = internal unnamed_addr addrspace(4) constant [3 x i32] [i32 7, i32 8, i32 9], align 4
        define ptx_kernel void @k_N(ptr %p, i64 %i) {
          %q = getelementptr inbounds i32, ptr addrspacecast (ptr addrspace(4) @table to ptr), i64 %i
          %x = load i32, ptr %q
          store i32 %x, ptr %p
          ret void
        }";
    let inputs: Vec<Vec<u8>> = (0..5).map(|i| device(&unit.replace("_N", &format!("_{i}")))).collect();
    let mut session = linked(&inputs.iter().map(Vec::as_slice).collect::<Vec<_>>());
    assert_eq!(session.merge_constants().unwrap(), 4);
    let text = ptx(session);
    assert_eq!(text.matches(".const .align 4").count(), 1, "{text}");
    assert_eq!(text.matches(".entry k_").count(), 5, "{text}");
}

#[test]
fn alignment_that_is_not_stated_counts_as_what_it_is() {
    // 8 by itself, since it holds i64.
    let bitcode = device(
        "@a = internal unnamed_addr addrspace(4) constant [2 x i64] [i64 1, i64 2]
         @b = internal unnamed_addr addrspace(4) constant [2 x i64] [i64 1, i64 2], align 4
         define ptx_kernel void @k(ptr %p) {
           store ptr addrspacecast (ptr addrspace(4) @a to ptr), ptr %p
           store volatile ptr addrspacecast (ptr addrspace(4) @b to ptr), ptr %p
           ret void
         }",
    );
    let mut session = linked(&[&bitcode]);
    assert_eq!(session.merge_constants().unwrap(), 1);
    let text = ptx(session);
    assert!(line(&text, "a").starts_with(".const .align 8 "), "{text}");
}

/// The bank's content in `bank.ll`.
const BANK: u64 = 1000 + 2000 + 3000 + 4000 + 5000 + 6000 + 7000;

/// Names that left the bank, and the PTX.
fn demote(limit: u64) -> (Vec<(String, u64)>, String) {
    let bitcode = input("bank.ll");
    let mut session = linked(&[&bitcode]);
    let demoted = session.demote_constants(limit, &names(&["by_name"])).unwrap();
    (demoted.into_iter().map(|Demoted { name, size }| (name, size)).collect(), ptx(session))
}

#[test]
fn what_fits_stays() {
    let (demoted, text) = demote(BANK);
    assert_eq!(demoted, []);
    assert_eq!(text.matches(".const .align 4").count(), 7, "{text}");
}

#[test]
fn the_largest_leave_first_until_the_rest_fits() {
    // The host knows those of 6000 and 5000 bytes; those of 7000 and 3000 are used in the constant space itself, so they stay.
    let order = [("by_table", 4000), ("by_instruction", 2000), ("by_cast", 1000)];
    for (limit, count) in [(BANK - 1, 1), (BANK - 4000, 1), (BANK - 4001, 2), (BANK - 6000, 2), (BANK - 6001, 3), (0, 3)] {
        let (demoted, text) = demote(limit);
        assert_eq!(demoted, order[..count].iter().map(|&(name, size)| (name.to_owned(), size)).collect::<Vec<_>>(), "{limit}");
        for (name, _) in &order[..count] {
            assert!(line(&text, name).starts_with(".global .align 4 .b8"), "{limit}: {text}");
        }
        for stays in order[count..].iter().map(|(name, _)| *name).chain(["by_space", "by_host", "by_name", "by_gep"]) {
            assert!(line(&text, stays).contains(".const .align 4 .b8"), "{limit}: {text}");
        }
    }
}

/// The instruction that loads the n-th of the values that `bank.ll`'s kernel reads.
fn load(text: &str, n: usize) -> &str {
    let loads: Vec<&str> = text.lines().map(str::trim).filter(|l| l.starts_with("ld.") && !l.starts_with("ld.param")).collect();
    loads[n].split_whitespace().next().unwrap()
}

#[test]
fn each_load_reads_the_space_that_its_table_is_in() {
    // In order: by_cast, the phi of by_instruction and by_cast, their select, by_space, the table's pointer, by_table, by_host, by_name,
    // by_gep.
    let (_, before) = demote(BANK);
    let (demoted, text) = demote(BANK - 4001);
    assert_eq!(demoted.len(), 2);
    let spaces = |text: &str| (0..9).map(|n| load(text, n).to_owned()).collect::<Vec<_>>();
    assert_eq!(
        spaces(&before),
        [
            "ld.const.b32",
            "ld.const.b32",
            "ld.const.b32",
            "ld.const.b32",
            "ld.global.nc.b64",
            "ld.b32",
            "ld.const.b32",
            "ld.const.b32",
            "ld.const.b32"
        ]
    );
    // by_instruction is in global memory, by_cast is not: what may be either is read by its generic address.
    assert_eq!(
        spaces(&text),
        ["ld.const.b32", "ld.b32", "ld.b32", "ld.const.b32", "ld.global.nc.b64", "ld.b32", "ld.const.b32", "ld.const.b32", "ld.const.b32"]
    );
    for cast in ["cvta.global.u64", "cvta.const.u64"] {
        assert!(!before.contains(cast) && text.contains(cast), "{cast}: {text}");
    }
}

#[test]
fn the_order_among_equals_is_that_of_names() {
    let table = |name: &str| format!("@{name} = internal addrspace(4) constant [100 x i32] zeroinitializer, align 4\n");
    let uses = |name: &str| format!("store volatile ptr addrspacecast (ptr addrspace(4) @{name} to ptr), ptr %p\n");
    for order in [["b", "c", "a"], ["c", "a", "b"]] {
        let tables: String = order.iter().map(|name| table(name)).collect();
        let body: String = order.iter().map(|name| uses(name)).collect();
        let bitcode = device(&format!("{tables} define ptx_kernel void @k(ptr %p) {{ {body} ret void }}"));
        let mut session = linked(&[&bitcode]);
        let left: Vec<String> = session.demote_constants(500, &names(&[])).unwrap().into_iter().map(|d| d.name).collect();
        assert_eq!(left, ["a", "b"]);
    }
}

#[test]
fn padding_counts() {
    // 4 bytes, 12 of padding, 16 bytes.
    let bitcode = device(
        "@a = internal addrspace(4) constant i32 1, align 4
         @b = internal addrspace(4) constant [4 x i32] zeroinitializer, align 16
         define ptx_kernel void @k(ptr %p) {
           store volatile ptr addrspacecast (ptr addrspace(4) @a to ptr), ptr %p
           store volatile ptr addrspacecast (ptr addrspace(4) @b to ptr), ptr %p
           ret void
         }",
    );
    for (limit, count) in [(32, 0), (31, 1)] {
        let mut session = linked(&[&bitcode]);
        assert_eq!(session.demote_constants(limit, &names(&[])).unwrap().len(), count, "{limit}");
    }
}
