//! Cutting a program into parts: what each part defines, copies, sees and refers to, that every symbol is defined once, and that borders stay.

use std::collections::{BTreeMap, BTreeSet};

use llvm_lto::{Cut, CutLimits, OptLevel};

use crate::support::*;

/// A function body of some weight that optimisation cannot remove.
fn work(n: usize) -> String {
    (0..n).map(|i| format!("store volatile i32 {i}, ptr %p\n")).collect()
}

fn kernel(name: &str, weight: usize, body: &str) -> String {
    format!("define ptx_kernel void @{name}(ptr %p) {{\n{body}{}ret void\n}}\n", work(weight))
}

fn function(name: &str, weight: usize, body: &str) -> String {
    format!("define internal void @{name}(ptr %p) {{\n{body}{}ret void\n}}\n", work(weight))
}

fn cut(text: &str, roots: &[&str]) -> Option<Cut> {
    let bitcode = device(text);
    let mut session = linked(&[&bitcode]);
    session.internalize(&names(roots)).unwrap();
    session.cut(&spec(OptLevel::O2), &CutLimits { smallest_module: 1000, ..CutLimits::USUAL }).unwrap()
}

/// PTX of every part by its name.
fn parts(cut: &Cut) -> BTreeMap<String, String> {
    (0..cut.len())
        .map(|index| {
            let mut part = cut.part(index).unwrap();
            part.run_passes(&spec(OptLevel::O2), "lto<O2>").unwrap();
            (cut.name(index).to_owned(), ptx(part))
        })
        .collect()
}

/// The only line that declares or defines something whose name starts like this.
fn declaration<'a>(text: &'a str, name: &str) -> &'a str {
    let found: Vec<&str> = symbols(text)
        .into_iter()
        .filter(|line| line.split(|c: char| !(c.is_ascii_alphanumeric() || "_$".contains(c))).any(|w| w.starts_with(name)))
        .collect();
    assert_eq!(found.len(), 1, "{name}: {found:?}");
    found[0]
}

/// The lines that define or declare something outside of functions.
fn symbols(text: &str) -> BTreeSet<&str> {
    text.lines()
        .filter(|line| line.starts_with('.') && [".global", ".func", ".entry", ".const", ".shared"].iter().any(|word| line.contains(word)))
        .collect()
}

#[test]
fn a_small_program_stays_whole() {
    assert!(cut(&kernel("k", 100, ""), &[]).is_none());
    // One kernel cannot be cut.
    assert!(cut(&kernel("k", 9000, ""), &[]).is_none());
}

#[test]
fn variables_that_change_exist_once_and_constants_can_be_seen() {
    let text = format!(
        "@counter = internal addrspace(1) global i32 0\n\
         @mine = internal addrspace(1) global i32 0\n\
         @host = addrspace(1) externally_initialized global i32 5\n\
         @unused = addrspace(1) externally_initialized global i32 6\n\
         @table = internal addrspace(1) constant [2 x i32] [i32 1, i32 4711]\n\
         @scratch = internal addrspace(3) global [8 x i32] undef\n{}{}",
        kernel("ka", 4000, "store volatile i32 1, ptr addrspace(1) @counter\n store volatile i32 2, ptr addrspace(1) @host\n
                store volatile i32 1, ptr addrspace(1) @mine\n %c = load volatile i32, ptr addrspace(1) @mine\n store volatile i32 1, ptr addrspace(3) @scratch
                %a = getelementptr i32, ptr addrspace(1) @table, i32 1\n %v = load i32, ptr addrspace(1) %a\n store volatile i32 %v, ptr %p\n"),
        kernel("kb", 4000, "store volatile i32 1, ptr addrspace(1) @counter\n %r = load volatile i32, ptr addrspace(1) @counter\n store volatile i32 1, ptr addrspace(3) @scratch
                %a = getelementptr i32, ptr addrspace(1) @table, i32 1\n %v = load i32, ptr addrspace(1) %a\n store volatile i32 %v, ptr %p\n
                %q = addrspacecast ptr addrspace(1) @table to ptr\n store volatile ptr %q, ptr %p\n"),
    );
    let cut = cut(&text, &["host", "unused"]).unwrap();
    let parts = parts(&cut);
    assert_eq!(parts.keys().collect::<Vec<_>>(), ["data", "ka", "kb"]);
    let (data, a, b) = (&parts["data"], &parts["ka"], &parts["kb"]);
    let promoted = "counter__part__";
    assert!(declaration(data, promoted).starts_with(".visible .global"), "{data}");
    assert!(declaration(a, promoted).starts_with(".extern .global") && declaration(b, promoted).starts_with(".extern .global"), "{a}{b}");
    assert!(declaration(a, "mine").starts_with(".global"), "only ka has it: {a}");
    assert!(
        declaration(a, "host").starts_with(".visible .global") && declaration(data, "unused").starts_with(".visible .global"),
        "{a}{data}"
    );
    assert!(a.contains("4711") && b.contains("4711"), "constants fold wherever they are: {a}{b}");
    assert!(
        declaration(data, "table__part__").starts_with(".visible .global") && declaration(b, "table__part__").starts_with(".extern"),
        "one address: {data}{b}"
    );
    assert!(!a.contains("table"), "{a}");
    for (part, text) in [("ka", a), ("kb", b)] {
        assert!(text.contains(".shared .align 4 .b8 scratch__part__"), "{part} has its own: {text}");
    }
    assert!(cut.defines("host") && cut.defines("ka") && !cut.defines("mine") && !cut.defines("scratch"));
}

#[test]
fn functions_are_copied_unless_they_are_large_or_their_address_counts() {
    let text = format!(
        "@pointers = internal addrspace(1) global [1 x ptr] [ptr @taken]\n{}{}{}{}{}",
        function("small", 10, ""),
        function("large", 1500, ""),
        "define internal void @taken(ptr %p) noinline { store volatile i32 99, ptr %p\n ret void }\n",
        kernel(
            "ka",
            4000,
            "call void @small(ptr %p)\n call void @large(ptr %p)\n %f = load ptr, ptr addrspace(1) @pointers\n call void %f(ptr %p)\n store volatile ptr null, ptr addrspace(1) @pointers\n"
        ),
        kernel(
            "kb",
            4000,
            "call void @small(ptr %p)\n call void @large(ptr %p)\n %f = load ptr, ptr addrspace(1) @pointers\n call void %f(ptr %p)\n"
        ),
    );
    let cut = cut(&text, &[]).unwrap();
    let parts = parts(&cut);
    assert_eq!(parts.keys().collect::<Vec<_>>(), ["data", "ka", "kb", "large", "taken"], "functions of several kernels have a part");
    for part in ["ka", "kb"] {
        let text = &parts[part];
        assert!(declaration(text, "large__part__").starts_with(".extern .func"), "{text}");
        assert!(!text.contains("small"), "inlined: {text}");
        assert!(declaration(text, "pointers__part__").starts_with(".extern .global"), "{text}");
    }
    for function in ["large", "taken"] {
        let text = &parts[function];
        assert!(
            text.contains(&format!("// .globl\t{function}__part__")) && text.contains(&format!(".visible .func {function}__part__")),
            "{text}"
        );
    }
    assert!(parts["data"].contains("taken__part__"), "{}", parts["data"]);
}

/// A large function that uses block-shared memory is where its kernel is, because the memory is.
#[test]
fn block_shared_memory_stays_with_its_kernel() {
    let text = format!(
        "@scratch = internal addrspace(3) global [8 x i32] undef\n{}{}{}",
        function("large", 1500, "store volatile i32 1, ptr addrspace(3) @scratch\n"),
        kernel("ka", 4000, "call void @large(ptr %p)\n store volatile i32 1, ptr addrspace(3) @scratch\n"),
        kernel("kb", 4000, "call void @large(ptr %p)\n store volatile i32 1, ptr addrspace(3) @scratch\n"),
    );
    let parts = parts(&cut(&text, &[]).unwrap());
    assert_eq!(parts.keys().collect::<Vec<_>>(), ["ka", "kb"]);
    for text in parts.values() {
        assert_eq!(text.matches(".shared .align 4 .b8 scratch").count(), 1, "{text}");
        assert!(!text.contains(".extern"), "{text}");
    }
}

#[test]
fn every_symbol_is_defined_once_and_found() {
    let mut text = String::from("@a = internal addrspace(1) global i32 0\n@b = internal addrspace(1) constant [1 x ptr] [ptr @f3]\n");
    for i in 0..12 {
        let callee = if i % 3 == 0 { "%f = load ptr, ptr addrspace(1) @b\n call void %f(ptr %p)\n".to_owned() } else { String::new() };
        text += &function(
            &format!("f{i}"),
            200 * i,
            &format!(
                "store volatile i32 1, ptr addrspace(1) @a\n {}",
                if i > 0 { format!("call void @f{}(ptr %p)\n", i - 1) } else { String::new() }
            ),
        );
        text += &kernel(&format!("k{i}"), 1000, &format!("call void @f{i}(ptr %p)\n{callee}"));
    }
    let cut = cut(&text, &[]).unwrap();
    assert!(cut.len() > 3);
    let mut defined: BTreeMap<String, usize> = BTreeMap::new();
    let mut wanted = BTreeSet::new();
    for text in parts(&cut).values() {
        for line in symbols(text) {
            let name = line
                .split(|c: char| !(c.is_ascii_alphanumeric() || "_$".contains(c)))
                .rfind(|w| w.starts_with(['a', 'b', 'f', 'k']) && *w != "align" && *w != "b8" && *w != "b64" && *w != "func");
            let Some(name) = name else { continue };
            if line.starts_with(".visible") {
                *defined.entry(name.to_owned()).or_default() += usize::from(!text.contains(&format!(".extern .func {name}")));
            } else if line.starts_with(".extern") {
                wanted.insert(name.to_owned());
            }
        }
    }
    assert!(defined.values().all(|&count| count == 1), "{defined:?}");
    let missing: Vec<_> = wanted.iter().filter(|name| !defined.contains_key(*name)).collect();
    assert!(missing.is_empty() && !wanted.is_empty(), "{missing:?} of {wanted:?}; {defined:?}");
}

/// What a change costs is the part that it is in; so is what another order of inputs costs, which is nothing.
#[test]
fn a_change_moves_no_border() {
    let program = |changed: usize| -> Vec<String> {
        (0..200).map(|i| kernel(&format!("k{i:03}"), if i == changed { 130 } else { 100 }, "")).collect()
    };
    let bytes = |text: &str| -> BTreeMap<String, Vec<u8>> {
        let cut = cut(text, &[]).unwrap();
        (0..cut.len()).map(|i| (cut.name(i).to_owned(), cut.part(i).unwrap().bitcode().unwrap())).collect()
    };
    let before = bytes(&program(1000).concat());
    let after = bytes(&program(77).concat());
    assert!(before.len() >= 6, "{:?}", before.keys());
    assert_eq!(before.keys().collect::<Vec<_>>(), after.keys().collect::<Vec<_>>());
    assert_eq!(before.iter().filter(|(name, bytes)| after.get(*name) != Some(bytes)).count(), 1);

    let mut reversed = program(1000);
    reversed.reverse();
    assert_eq!(bytes(&reversed.concat()), before, "the order of the input means nothing");
}

#[test]
fn what_cannot_be_cut_is_not() {
    let two = format!("{}{}", kernel("ka", 4000, ""), kernel("kb", 4000, ""));
    assert!(cut(&two, &[]).is_some());
    assert!(cut(&format!("module asm \".global .u32 x;\"\n{two}"), &[]).is_none());
    let alias = format!("{}{two}@other = alias void (ptr), ptr @f\n", "define void @f(ptr %p) { ret void }\n");
    assert!(cut(&alias, &["other"]).is_none());
    let launching = format!("{}{}declare void @launch(ptr)\n", kernel("ka", 4000, "call void @launch(ptr @kb)\n"), kernel("kb", 4000, ""));
    assert!(cut(&launching, &[]).is_none());
    let bank = format!("@c = addrspace(4) constant [70000 x i8] zeroinitializer\n{two}");
    assert!(cut(&bank, &["c"]).is_none());
}

/// Names that optimisation makes have dots, which PTX does not take, once they are promoted.
#[test]
fn promoted_names_are_names_of_ptx() {
    let body = "store volatile i32 1, ptr addrspace(1) @hist.0\n call void @large.part.1(ptr %p)\n";
    let text = format!(
        "@hist.0 = internal addrspace(1) global i32 0\n{}{}{}",
        function("large.part.1", 1500, ""),
        kernel("ka", 4000, body),
        kernel("kb", 4000, body),
    );
    let parts = parts(&cut(&text, &[]).unwrap());
    for part in ["ka", "kb"] {
        let text = &parts[part];
        assert!(declaration(text, "hist_$_0__part__").starts_with(".extern .global"), "{text}");
        assert!(declaration(text, "large_$_part_$_1__part__").starts_with(".extern .func"), "{text}");
    }
    assert!(!parts.values().any(|text| text.contains("hist.0") || text.contains("large.part")));
}
