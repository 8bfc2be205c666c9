//! Merging inputs: order, conflicts and whose name an error bears, module flags, definitions that give way.

use std::collections::HashSet;

use llvm_lto::Binding;

use crate::support::*;

/// Merges and returns the name and text of the error.
fn conflict(inputs: &[&[u8]]) -> (String, String) {
    let (mut session, ids) = loaded(inputs);
    let (name, error) = session.link(&ids).unwrap_err();
    (name, error.to_string())
}

#[test]
fn what_two_objects_define_in_common_is_linked_once() {
    let template = "$f = comdat any
        define linkonce_odr i32 @f() noinline comdat { ret i32 VALUE }
        define ptx_kernel void @k_VALUE(ptr %p) { %x = call i32 @f() store i32 %x, ptr %p ret void }";
    let (a, b) = (device(&template.replace("VALUE", "71")), device(&template.replace("VALUE", "72")));
    for (order, first) in [([&a[..], &b], "71"), ([&b, &a], "72")] {
        let mut session = linked(&order);
        session.internalize(&names(&[])).unwrap();
        let text = ptx(session);
        assert!(text.contains(&format!(", {first};")), "the first definition counts: {text}");
        assert!(text.contains("k_71(") && text.contains("k_72("), "{text}");
        assert_eq!(text.matches(".func").count() - text.matches(".func  (.param .b32 func_retval0) f\n()\n;").count(), 1, "{text}");
    }
}

#[test]
fn a_strong_definition_beats_a_weak_one() {
    let weak = device("@v = weak addrspace(1) global i32 71, align 4");
    let strong = device("@v = addrspace(1) global i32 72, align 4");
    for order in [[&weak[..], &strong], [&strong, &weak]] {
        let session = linked(&order);
        assert_eq!(visible(&session), [("v".to_owned(), Binding::Strong)]);
        assert_eq!(line(&ptx(session), "v"), ".visible .global .align 4 .u32 v = 72;");
    }
}

#[test]
fn conflicts_name_the_later_input() {
    let function = device("define void @x() { ret void }");
    let again = device("define void @x() { ret void }");
    let variable = device("@x = addrspace(1) global i32 0");
    for second in [&again, &variable] {
        let (name, error) = conflict(&[&function, second]);
        assert_eq!(name, "1.o");
        assert!(error.contains("'x': symbol multiply defined"), "{error}");
    }
    let list = "@llvm.used = appending global [1 x TYPE] [TYPE ZERO], section \"llvm.metadata\"";
    let (name, error) = conflict(&[
        &device("@other = addrspace(1) global i32 0"),
        &device(&list.replace("TYPE", "ptr").replace("ZERO", "null")),
        &device(&list.replace("TYPE", "ptr addrspace(1)").replace("ZERO", "null")),
    ]);
    assert_eq!(name, "2.o");
    assert!(error.contains("different element types"), "{error}");
}

#[test]
fn the_order_given_is_the_order_linked() {
    let inputs: Vec<Vec<u8>> = (0..4).map(|i| device(&format!("define ptx_kernel void @k{i}() {{ ret void }}"))).collect();
    let (mut session, ids) = loaded(&inputs.iter().map(Vec::as_slice).collect::<Vec<_>>());
    session.link(&[ids[2], ids[0], ids[3]]).unwrap();
    assert_eq!(session.kernels().unwrap(), ["k2", "k0", "k3"]);
    assert_eq!(session.symbols(ids[1]).len(), 1, "an input that was not asked for is still there");
}

#[test]
fn nothing_at_all_can_be_linked() {
    let mut session = linked(&[]);
    session.internalize(&names(&[])).unwrap();
    assert_eq!(session.kernels().unwrap(), Vec::<String>::new());
}

/// One module flag in LLVM's numbers: 1 is an error where two differ, 2 a warning, 4 overrides, 7 and 8 take the extreme.
fn flag(function: &str, behaviour: u32, key: &str, value: &str) -> Vec<u8> {
    device(&format!(
        "define ptx_kernel void @{function}() {{ ret void }}
         !llvm.module.flags = !{{!0}}
         !0 = !{{i32 {behaviour}, !\"{key}\", {value}}}"
    ))
}

#[test]
fn flags_that_do_not_concern_a_link_do_not_stop_it() {
    for (behaviour, key, one, other) in [
        (4, "nvvm-reflect-ftz", "i32 0", "i32 1"),
        (1, "ThinLTO", "i32 0", "i32 1"),
        (1, "EnableSplitLTOUnit", "i32 0", "i32 1"),
        (1, "UnifiedLTO", "i32 0", "i32 1"),
        (2, "SDK Version", "[2 x i32] [i32 12, i32 9]", "[2 x i32] [i32 13, i32 0]"),
        (1, "SDK Version", "[2 x i32] [i32 12, i32 9]", "[2 x i32] [i32 13, i32 0]"),
    ] {
        let (a, b) = (flag("a", behaviour, key, one), flag("b", behaviour, key, other));
        for order in [[&a[..], &b], [&b, &a]] {
            let (mut session, ids) = loaded(&order);
            session.link(&ids).unwrap_or_else(|(name, error)| panic!("{key}: {name}: {error}"));
            assert_eq!(session.take_diagnostics(), [], "{key}");
        }
    }
}

#[test]
fn a_flag_that_does_is_an_error() {
    let (name, error) = conflict(&[&flag("a", 1, "wchar_size", "i32 4"), &flag("b", 1, "wchar_size", "i32 2")]);
    assert_eq!(name, "1.o");
    assert!(error.contains("wchar_size"), "{error}");
}

#[test]
fn objects_of_compilers_with_another_data_layout() {
    let kernel = |name: &str| format!("define ptx_kernel void @{name}(ptr %p) {{ store i32 1, ptr %p ret void }}");
    let new = device(&kernel("new"));
    for layout in [
        "e-i64:64-i128:128-v16:16-v32:32-n16:32:64",
        "e-i64:64-v16:16-v32:32-n16:32:64",
        "e-p6:32:32-i64:64-i128:128-v16:16-v32:32-n16:32:64",
    ] {
        let old = assemble(&format!("target datalayout = \"{layout}\"\ntarget triple = \"nvptx64-nvidia-cuda\"\n{}", kernel("old")));
        for order in [[&new[..], &old], [&old, &new]] {
            let session = linked(&order);
            assert_eq!(session.take_diagnostics(), [], "{layout}");
            assert!(ptx(session).contains(".entry old("));
        }
    }
}

#[test]
fn with_multiple_definitions_the_first_counts() {
    let unit = "define i32 @f() noinline { ret i32 NUMBER }
        @v = addrspace(1) externally_initialized global i32 NUMBER, align 4
        $c = comdat any
        @c = addrspace(1) global i32 NUMBER, comdat, align 4
        $g = comdat nodeduplicate
        define i32 @g() noinline comdat { ret i32 NUMBER }
        define i32 @g_part_NUMBER() noinline comdat($g) { ret i32 NUMBER }
        @a = alias i32 (), ptr @f
        define ptx_kernel void @k_NUMBER(ptr %p) {
          %x = call i32 @f()
          store volatile i32 %x, ptr %p
          %y = call i32 @g()
          store volatile i32 %y, ptr %p
          %z = call i32 @g_part_NUMBER()
          store volatile i32 %z, ptr %p
          ret void
        }";
    let (a, b) = (device(&unit.replace("NUMBER", "71")), device(&unit.replace("NUMBER", "72")));
    for (order, first, second) in [([&a[..], &b], "71", "72"), ([&b, &a], "72", "71")] {
        let (mut session, ids) = loaded(&order);
        session.yield_definitions(ids[1], &HashSet::from(["f", "v", "c", "g", "a"]));
        session.link(&ids).unwrap_or_else(|(name, error)| panic!("{name}: {error}"));
        session.internalize(&names(&["v", "c"])).unwrap();
        let text = ptx(session);
        assert!(line(&text, "v").ends_with(&format!("= {first};")), "{text}");
        assert!(line(&text, "c").ends_with(&format!("= {first};")), "{text}");
        for name in ["f", "g"] {
            let body = text.rsplit(&format!(") {name}()\n")).next().unwrap();
            let body = body.split('}').next().unwrap();
            assert!(body.contains(&format!(", {first};")), "{name}: {body}\n{text}");
        }
        // What only the second defines stays, although its group lost.
        assert!(text.contains(&format!("g_part_{second}()\n{{")), "{text}");
    }
}

#[test]
fn the_winner_may_come_later() {
    let loser = device("@v = addrspace(1) global i32 71, align 4");
    let winner = device("@v = addrspace(1) global i32 72, align 4");
    let (mut session, ids) = loaded(&[&loser, &winner]);
    session.yield_definitions(ids[0], &HashSet::from(["v"]));
    assert_eq!(session.symbols(ids[0])[0].binding, Binding::Undefined);
    session.link(&ids).unwrap();
    assert_eq!(line(&ptx(session), "v"), ".visible .global .align 4 .u32 v = 72;");
}

#[test]
fn one_target_for_all_functions() {
    let unit = r#"define i32 @f(i32 %x) #0 { %y = mul i32 %x, 71 ret i32 %y }
        declare i32 @g(i32) #0
        define ptx_kernel void @k(ptr %p) { %x = call i32 @f(i32 2) %y = call i32 @g(i32 %x) store i32 %y, ptr %p ret void }
        attributes #0 = { "target-cpu"="sm_70" "target-features"="+ptx60,+sm_70" }"#;
    let bitcode = device(unit);
    let mut session = linked(&[&bitcode]);
    session.retarget("sm_90", "+ptx78,+sm_90").unwrap();
    session.internalize(&names(&[])).unwrap();
    let merged = session.bitcode().unwrap();
    let (other, ids) = loaded(&[&merged]);
    let info = other.info(ids[0]);
    assert_eq!((info.cpu.as_deref(), info.ptx_version), (Some("sm_90"), Some(78)));
    session.run_passes(&spec(llvm_lto::OptLevel::O2), "lto<O2>").unwrap();
    let text = ptx(session);
    assert!(text.contains(".target sm_90") && !text.contains("f(") && text.contains(", 142"), "f is not inlined: {text}");
}
