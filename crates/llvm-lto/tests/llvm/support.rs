//! What the tests share: bitcode from text, a linked session, its PTX.

use std::collections::HashSet;
use std::path::Path;

use llvm_lto::{Binding, InputId, OptLevel, Session, Severity, Symbol, TargetSpec};

/// What every module that clang makes for NVPTX starts with.
pub(crate) const HEADER: &str = r#"
target datalayout = "e-p6:32:32-i64:64-i128:128-i256:256-v16:16-v32:32-n16:32:64"
target triple = "nvptx64-nvidia-cuda"
"#;

/// Bitcode of a device module, of which only what follows the header is given.
pub(crate) fn device(body: &str) -> Vec<u8> {
    assemble(&format!("{HEADER}{body}"))
}

/// Bitcode of a whole module.
pub(crate) fn assemble(ir: &str) -> Vec<u8> {
    llvm_lto::assemble(ir).unwrap_or_else(|error| panic!("{error}\n{ir}"))
}

/// The text of a file in `test-inputs/llvm-lto`.
pub(crate) fn text(file: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../test-inputs/llvm-lto").join(file);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A file in `test-inputs/llvm-lto` as bitcode.
pub(crate) fn input(file: &str) -> Vec<u8> {
    assemble(&text(file))
}

/// A session with all inputs loaded under the names `0.o`, `1.o`, ...
pub(crate) fn loaded<'a>(inputs: &[&'a [u8]]) -> (Session<'a>, Vec<InputId>) {
    let mut session = Session::new();
    let ids = inputs.iter().enumerate().map(|(i, bitcode)| session.load(&format!("{i}.o"), bitcode).unwrap()).collect();
    (session, ids)
}

/// A session with all inputs merged in order.
pub(crate) fn linked<'a>(inputs: &[&'a [u8]]) -> Session<'a> {
    let (mut session, ids) = loaded(inputs);
    session.link(&ids).unwrap();
    session
}

/// A set of names.
pub(crate) fn names(names: &[&str]) -> HashSet<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// sm_90 at a level.
pub(crate) fn spec(level: OptLevel) -> TargetSpec {
    TargetSpec { triple: "nvptx64-nvidia-cuda".to_owned(), cpu: "sm_90".to_owned(), features: "+ptx78".to_owned(), level }
}

/// The PTX of a session as it stands.
pub(crate) fn ptx(session: Session<'_>) -> String {
    let (text, diagnostics) = session.emit(&spec(OptLevel::O2)).unwrap();
    let loud: Vec<_> = diagnostics.iter().filter(|d| d.severity != Severity::Remark).collect();
    assert!(loud.is_empty(), "{loud:?}");
    String::from_utf8(text).unwrap()
}

/// The symbols of the merged module that others can see, `name` and binding.
pub(crate) fn visible(session: &Session<'_>) -> Vec<(String, Binding)> {
    let bitcode = session.bitcode().unwrap();
    let mut other = Session::new();
    let id = other.load("merged", &bitcode).unwrap();
    other.symbols(id).into_iter().map(|Symbol { name, binding, .. }| (name, binding)).collect()
}

/// The line of the PTX that declares or defines a variable; panics unless there is exactly one.
pub(crate) fn line<'a>(ptx: &'a str, name: &str) -> &'a str {
    let declares = |line: &&str| {
        let declaration = line.split(['=', '[', ';']).next().unwrap_or_default();
        declaration.starts_with('.') && declaration.split_whitespace().last() == Some(name)
    };
    let lines: Vec<&str> = ptx.lines().filter(declares).collect();
    assert_eq!(lines.len(), 1, "{name} in {lines:#?} of\n{ptx}");
    lines[0]
}
