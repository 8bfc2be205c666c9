//! The facts by which whole-program and relocatable ptxas are told apart.

use llvm_lto::{CallFacts, OptLevel};

use crate::support::*;

fn facts(ir: &str) -> CallFacts {
    let bitcode = device(ir);
    linked(&[&bitcode]).call_facts().unwrap()
}

#[test]
fn kernels_functions_and_what_they_share() {
    let bitcode = input("calls.ll");
    let found = linked(&[&bitcode]).call_facts().unwrap();
    // `shared` and `below`; `recursive` and `mutual` have one kernel, however often they call each other.
    let expected = CallFacts { kernels: 3, functions: 5, shared_functions: 2, address_taken: 0, function_instructions: 15 };
    assert_eq!(found, expected);
}

#[test]
fn a_function_called_by_a_shared_function_is_shared_once() {
    let found = facts(
        "define i32 @a() { %x = call i32 @b() %y = call i32 @b() ret i32 %x }
         define i32 @b() { ret i32 0 }
         define ptx_kernel void @k(ptr %p) { %x = call i32 @a() %y = call i32 @b() store i32 %x, ptr %p ret void }",
    );
    assert_eq!((found.kernels, found.functions, found.shared_functions, found.address_taken), (1, 2, 0, 0));
}

#[test]
fn ways_of_taking_an_address() {
    let function = "define i32 @f(i32 %x) { ret i32 %x } declare void @use(ptr) ";
    let kernel = |body: &str| format!("{function} define ptx_kernel void @k(ptr %p, i1 %c) {{ {body} ret void }}");
    for (what, ir, taken) in [
        ("only called", kernel("%x = call i32 @f(i32 1)"), 0),
        ("stored", kernel("store ptr @f, ptr %p"), 1),
        ("passed as an argument", kernel("call void @use(ptr @f)"), 1),
        ("called and passed", kernel("%x = call i32 @f(i32 1) call void @use(ptr @f)"), 1),
        ("passed to itself", kernel("%x = call i32 (ptr) @f(ptr @f)"), 1),
        ("selected", kernel("%g = select i1 %c, ptr @f, ptr null %x = call i32 %g(i32 1)"), 1),
        ("compared", kernel("%e = icmp eq ptr @f, %p"), 1),
        ("in a table", format!("{} @t = addrspace(1) global [1 x ptr] [ptr @f]", kernel("")), 1),
        ("by an alias", format!("{} @a = alias i32 (i32), ptr @f", kernel("%x = call i32 @a(i32 1)")), 1),
    ] {
        assert_eq!(facts(&ir).address_taken, taken, "{what}");
    }
}

#[test]
fn a_call_through_a_pointer_to_a_table_of_functions() {
    let found = facts(
        "@t = addrspace(1) global [2 x ptr] [ptr @f, ptr @g]
         define i32 @f() { ret i32 1 }
         define i32 @g() { ret i32 2 }
         define ptx_kernel void @k(ptr %p, i64 %i) {
           %q = getelementptr ptr, ptr addrspacecast (ptr addrspace(1) @t to ptr), i64 %i
           %f = load ptr, ptr %q
           %x = call i32 %f()
           store i32 %x, ptr %p
           ret void
         }",
    );
    assert_eq!((found.shared_functions, found.address_taken), (0, 2));
}

#[test]
fn a_table_that_optimisation_removed_takes_no_address() {
    let bitcode = device(
        "@t = addrspace(1) constant [1 x ptr] [ptr @f]
         define i32 @f(i32 %x) noinline { %y = mul i32 %x, %x ret i32 %y }
         define ptx_kernel void @k(ptr %p, i32 %i) { %x = call i32 @f(i32 %i) store i32 %x, ptr %p ret void }",
    );
    let mut session = linked(&[&bitcode]);
    session.internalize(&names(&[])).unwrap();
    assert_eq!(session.call_facts().unwrap().address_taken, 1);
    session.run_passes(&spec(OptLevel::O2), "lto<O2>").unwrap();
    let found = session.call_facts().unwrap();
    assert_eq!((found.functions, found.address_taken), (1, 0));
}

#[test]
fn kernels_that_only_a_launch_tells_from_functions() {
    let bitcode = device(
        "declare void @child(ptr) declare void @other(i32) declare void @callee() declare void @passed()
         declare i32 @__cudaCDP2LaunchDevice(ptr, ptr, i32) declare void @use(ptr, ptr)
         define internal i32 @_ZL16cudaLaunchDevicePvS_4dim3S0_jP11CUstream_st(ptr %k, ptr %p, i32 %n) {
           %r = call i32 @__cudaCDP2LaunchDevice(ptr %k, ptr %p, i32 %n) ret i32 %r }
         define ptx_kernel void @parent(ptr %p) {
           %a = call i32 @__cudaCDP2LaunchDevice(ptr @child, ptr @passed, i32 0)
           %b = call i32 @_ZL16cudaLaunchDevicePvS_4dim3S0_jP11CUstream_st(ptr @other, ptr null, i32 1)
           %c = call i32 @__cudaCDP2LaunchDevice(ptr @parent, ptr null, i32 0)
           call void @callee() call void @use(ptr @passed, ptr @callee) ret void }",
    );
    assert_eq!(linked(&[&bitcode]).launched().unwrap(), ["child", "other"]);
}
