//! Undefined symbols: what counts as one, who refers to it, and the bodies that the runtime's placeholders get.

use llvm_lto::{OptLevel, Undefined};

use crate::support::*;

const UNIT: &str = "
    @missing_variable = external addrspace(1) global i32, align 4
    @weak_variable = extern_weak addrspace(1) global i32, align 4
    @unused_variable = external addrspace(1) global i32, align 4
    @table = addrspace(1) global [1 x ptr] [ptr @missing_in_table]
    declare i32 @missing(i32)
    declare i32 @missing_in_table(i32)
    declare i32 @unused(i32)
    declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
    define i32 @caller(i32 %x) {
      %y = call i32 @missing(i32 %x)
      ret i32 %y
    }
    define ptx_kernel void @kernel(ptr %p) {
      %t = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
      %x = load i32, ptr getelementptr (i8, ptr addrspacecast (ptr addrspace(1) @missing_variable to ptr), i64 4)
      %w = load i32, ptr addrspacecast (ptr addrspace(1) @weak_variable to ptr)
      %y = call i32 @missing(i32 %x)
      %z = call i32 @caller(i32 %y)
      %s = add i32 %t, %z
      %r = add i32 %s, %w
      store i32 %r, ptr %p
      ret void
    }";

fn undefined(name: &str, referenced_by: &[&str]) -> Undefined {
    Undefined { name: name.to_owned(), referenced_by: referenced_by.iter().map(|s| (*s).to_owned()).collect() }
}

#[test]
fn undefined_symbols_and_who_refers_to_them() {
    let bitcode = device(UNIT);
    let session = linked(&[&bitcode]);
    assert_eq!(
        session.undefined().unwrap(),
        [
            undefined("missing", &["caller", "kernel"]),
            undefined("missing_in_table", &["table"]),
            undefined("missing_variable", &["kernel"]),
        ]
    );
}

#[test]
fn the_references_of_an_input_are_found_after_the_merge() {
    let (first, second) =
        (device(UNIT), device("declare i32 @missing(i32) define i32 @other(i32 %x) { %y = call i32 @missing(i32 %x) ret i32 %y }"));
    let (mut session, ids) = loaded(&[&first, &second]);
    session.link(&ids).unwrap();
    assert_eq!(session.references(ids[0], "missing").unwrap(), ["caller", "kernel"]);
    assert_eq!(session.references(ids[1], "missing").unwrap(), ["other"]);
    assert_eq!(session.references(ids[0], "missing_variable").unwrap(), ["kernel"]);
    assert_eq!(session.references(ids[1], "missing_variable").unwrap(), Vec::<String>::new());
    assert_eq!(session.references(ids[0], "unused").unwrap(), Vec::<String>::new());
}

#[test]
fn keeping_an_other_objects_kernel_alive_is_no_reference() {
    let bitcode = input("used.ll");
    let (session, ids) = loaded(&[&bitcode]);
    assert_eq!(session.references(ids[0], "kernel_of_another_object").unwrap(), Vec::<String>::new());
}

#[test]
fn what_optimisation_removes_is_not_missing() {
    let bitcode = device(
        "declare i32 @missing(i32)
         @table = addrspace(1) constant [1 x ptr] [ptr @in_table]
         declare i32 @in_table()
         define i32 @unused(i32 %x) { %y = call i32 @missing(i32 %x) ret i32 %y }
         define ptx_kernel void @kernel(ptr %p) { store i32 1, ptr %p ret void }",
    );
    let mut session = linked(&[&bitcode]);
    session.internalize(&names(&[])).unwrap();
    assert_eq!(session.undefined().unwrap().len(), 2);
    session.run_passes(&spec(OptLevel::O2), "lto<O2>").unwrap();
    assert_eq!(session.undefined().unwrap(), []);
}

#[test]
fn placeholders_of_the_runtime_get_a_body_that_traps() {
    let bitcode = device(
        "@vtable = addrspace(1) global [2 x ptr] [ptr @__cxa_pure_virtual, ptr @mine]
         @deleted = external addrspace(1) global i32
         declare void @__cxa_pure_virtual()
         declare void @__cxa_deleted_virtual()
         define void @mine() { ret void }
         declare i32 @missing()
         define ptx_kernel void @kernel(ptr %p) {
           %x = call i32 @missing()
           %f = load ptr, ptr addrspacecast (ptr addrspace(1) @vtable to ptr)
           call void %f()
           ret void
         }",
    );
    let mut session = linked(&[&bitcode]);
    // `deleted` is no function, `mine` has a body, `__cxa_deleted_virtual` is not used, the last does not exist.
    let wanted = ["__cxa_pure_virtual", "__cxa_deleted_virtual", "deleted", "mine", "nowhere"];
    assert_eq!(session.define_traps(&wanted).unwrap(), ["__cxa_pure_virtual"]);
    assert_eq!(session.define_traps(&wanted).unwrap(), Vec::<String>::new());
    assert_eq!(session.undefined().unwrap(), [undefined("missing", &["kernel"])]);
    let text = ptx(session);
    let body = text.rsplit(".func __cxa_pure_virtual()").next().unwrap().split('}').next().unwrap();
    assert!(body.contains("trap;"), "{body}\n{text}");
    assert!(!text.contains(".visible .func __cxa_pure_virtual"), "{text}");
}
