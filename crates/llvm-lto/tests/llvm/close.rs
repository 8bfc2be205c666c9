//! Closing the program: which definitions stay findable, in which form, and what is dropped.

use llvm_lto::{Binding, OptLevel};

use crate::support::*;

#[test]
fn kernels_and_roots_stay_and_the_rest_becomes_internal() {
    let bitcode = input("used.ll");
    let mut session = linked(&[&bitcode]);
    session.internalize(&names(&["registered_variable", "name_that_is_not_there"])).unwrap();
    let mut found = visible(&session);
    found.retain(|(_, binding)| *binding != Binding::Undefined);
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let expected = ["hidden_kernel", "instantiated_kernel", "plain_kernel", "registered_variable", "retained_variable", "template_kernel"];
    assert_eq!(found, expected.map(|name| (name.to_owned(), Binding::Strong)), "plain external, whatever they were before");

    let text = ptx(session);
    for kernel in ["hidden_kernel", "instantiated_kernel", "plain_kernel", "template_kernel"] {
        assert!(text.contains(&format!(".visible .entry {kernel}(")), "{text}");
    }
    for variable in ["registered_variable", "retained_variable"] {
        assert!(line(&text, variable).starts_with(".visible .global"), "{text}");
    }
    for internal in ["hidden_variable", "local_variable"] {
        assert!(line(&text, internal).starts_with(".global"), "{text}");
    }
    assert!(!text.contains(".weak") && !text.contains("__clang_gpu_used_external"), "{text}");
}

#[test]
fn what_is_internal_and_unused_goes() {
    let bitcode = input("used.ll");
    let mut session = linked(&[&bitcode]);
    session.internalize(&names(&["registered_variable"])).unwrap();
    session.run_passes(&spec(OptLevel::O2), "lto<O2>").unwrap();
    assert_eq!(session.undefined().unwrap(), []);
    let text = ptx(session);
    for kept in ["plain_kernel", "hidden_kernel", "template_kernel", "instantiated_kernel", "retained_variable", "registered_variable"] {
        assert!(text.contains(kept), "{kept}: {text}");
    }
    for gone in ["local_variable", "kernel_of_another_object", "variable_of_another_object"] {
        assert!(!text.contains(gone), "{gone}: {text}");
    }
    assert!(text.contains("1806"), "(1 + 41) * 43 is known: {text}");
}

/// The arrays by which clang keeps other objects' kernels alive must leave nothing behind at any level: -O0 removes nothing by itself.
#[test]
fn references_to_kernels_of_other_objects_are_dropped() {
    let unit = |n: u32, list: &[&str]| {
        device(&format!(
            "@__clang_gpu_used_external = internal global [1 x ptr] [ptr @elsewhere_{n}]
             @llvm.compiler.used = appending global [{} x ptr] [{}], section \"llvm.metadata\"
             @kept_{n} = internal addrspace(1) global i32 {n}, align 4
             declare ptx_kernel void @elsewhere_{n}(ptr)
             define ptx_kernel void @k_{n}(ptr %p) {{ ret void }}",
            list.len(),
            list.join(", ")
        ))
    };
    let a = unit(71, &["ptr @__clang_gpu_used_external"]);
    let b = unit(72, &["ptr @__clang_gpu_used_external"]);
    let c = unit(73, &["ptr addrspacecast (ptr addrspace(1) @kept_73 to ptr)", "ptr @__clang_gpu_used_external"]);
    for inputs in [vec![&a[..]], vec![&a, &b], vec![&a, &b, &c], vec![&c]] {
        for level in [OptLevel::O0, OptLevel::O2] {
            let mut session = linked(&inputs);
            session.internalize(&names(&[])).unwrap();
            session.run_passes(&spec(level), &format!("lto<O{}>", level.digit())).unwrap();
            assert_eq!(session.undefined().unwrap(), [], "{level:?} of {} objects", inputs.len());
            let text = ptx(session);
            assert!(!text.contains("__clang_gpu_used_external"), "{text}");
            assert!(!text.contains("elsewhere_"), "{text}");
            assert_eq!(text.contains("kept_73"), inputs.contains(&&c[..]), "what else is in the list stays in it: {text}");
            assert_eq!(text.matches(".entry").count(), inputs.len(), "{text}");
        }
    }
}

#[test]
fn a_kernel_of_another_object_is_found_when_it_is_there() {
    let user = input("used.ll");
    let owner = device(
        "define hidden ptx_kernel void @kernel_of_another_object(ptr %p) { ret void }
         @variable_of_another_object = addrspace(1) externally_initialized global i32 9, align 4",
    );
    for order in [[&user[..], &owner], [&owner, &user]] {
        let mut session = linked(&order);
        session.internalize(&names(&["variable_of_another_object"])).unwrap();
        session.run_passes(&spec(OptLevel::O2), "lto<O2>").unwrap();
        let text = ptx(session);
        assert!(text.contains(".visible .entry kernel_of_another_object("), "{text}");
        assert_eq!(line(&text, "variable_of_another_object"), ".visible .global .align 4 .u32 variable_of_another_object = 9;");
    }
}

#[test]
fn what_the_host_may_write_is_no_constant() {
    let bitcode = device(
        "@written = addrspace(4) externally_initialized constant i32 5, align 4
         @not_written = addrspace(4) constant i32 6, align 4
         define ptx_kernel void @k(ptr %p) {
           %x = load i32, ptr addrspacecast (ptr addrspace(4) @written to ptr)
           %y = load i32, ptr addrspacecast (ptr addrspace(4) @not_written to ptr)
           %z = mul i32 %x, %y
           store i32 %z, ptr %p
           ret void
         }",
    );
    let mut session = linked(&[&bitcode]);
    session.internalize(&names(&["written"])).unwrap();
    session.run_passes(&spec(OptLevel::O2), "lto<O2>").unwrap();
    let text = ptx(session);
    assert_eq!(line(&text, "written"), ".visible .const .align 4 .u32 written = 5;");
    assert!(text.contains("ld.const.b32") && text.contains(", 6;") && !text.contains("not_written"), "{text}");
}

#[test]
fn an_alias_becomes_internal_like_its_function() {
    let unit = "define i32 @target(i32 %x) noinline { ret i32 %x }
        @alias_N = alias i32 (i32), ptr @target_N
        @variable_alias_N = alias i32, ptr addrspace(1) @variable_N
        @variable_N = addrspace(1) global i32 5, align 4
        define ptx_kernel void @k_N(ptr %p) {
          %x = call i32 @alias_N(i32 71)
          %y = load i32, ptr addrspace(1) @variable_alias_N
          %z = add i32 %x, %y
          store i32 %z, ptr %p ret void
        }"
    .replace("@target(", "@target_N(");
    // Many, since what an alias does not have lies in its neighbour's memory.
    let inputs: Vec<Vec<u8>> = (0..100).map(|i| device(&unit.replace("_N", &format!("_{i}")))).collect();
    let mut session = linked(&inputs.iter().map(Vec::as_slice).collect::<Vec<_>>());
    session.internalize(&names(&[])).unwrap();
    assert!(visible(&session).iter().all(|(name, _)| name.starts_with("k_")));
    session.run_passes(&spec(OptLevel::O2), "lto<O2>").unwrap();
    let text = ptx(session);
    assert_eq!(text.matches(".visible .entry").count(), 100);
    assert!(!text.contains("alias"), "{text}");
}
