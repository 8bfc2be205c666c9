//! What a module defines, what nothing leads to, and remarks on what passes did.

use llvm_lto::{OptLevel, RemarkPatterns, Severity, SymbolKind};

use crate::support::*;

const PROGRAM: &str = r#"
@used = addrspace(1) global [4 x i32] zeroinitializer, align 4
@table = internal addrspace(4) constant [2 x ptr] [ptr @through_table, ptr @through_table]
@lonely = addrspace(1) global i64 7, align 8
@alias = alias i32 (i32), ptr @through_alias

define ptx_kernel void @kernel(ptr %p, i64 %i) {
  %x = load i32, ptr addrspacecast (ptr addrspace(1) @used to ptr), align 4
  %y = call i32 @small(i32 %x)
  %slot = getelementptr ptr, ptr addrspace(4) @table, i64 %i
  %f = load ptr, ptr addrspace(4) %slot
  %z = call i32 %f(i32 %y)
  store i32 %z, ptr %p, align 4
  ret void
}
define i32 @small(i32 %x) {
  %y = mul i32 %x, 7
  ret i32 %y
}
define internal i32 @through_table(i32 %x) noinline {
  %y = add i32 %x, 9
  ret i32 %y
}
define internal i32 @through_alias(i32 %x) {
  ret i32 %x
}
define i32 @unused(i32 %x) {
  %y = call i32 @unused_too(i32 %x)
  ret i32 %y
}
define i32 @unused_too(i32 %x) {
  %y = call i32 @unused(i32 %x)
  ret i32 %y
}
declare void @elsewhere()
"#;

/// The program, merged and closed.
fn closed(bitcode: &[u8]) -> llvm_lto::Session<'_> {
    let mut session = linked(&[bitcode]);
    session.internalize(&names(&["used", "alias"])).unwrap();
    session
}

#[test]
fn definitions_have_kinds_and_sizes() {
    let bitcode = device(PROGRAM);
    let session = closed(&bitcode);
    let inventory = session.inventory(true).unwrap();
    let of = |name: &str| inventory.iter().find(|definition| definition.name == name).unwrap();
    assert_eq!((of("kernel").kind, of("kernel").internal, of("kernel").size), (SymbolKind::Kernel, false, 7));
    assert_eq!((of("small").kind, of("small").internal, of("small").size), (SymbolKind::Function, true, 2));
    assert_eq!((of("used").kind, of("used").size), (SymbolKind::Variable, 16));
    assert_eq!(of("lonely").size, 8);
    assert!(!inventory.iter().any(|definition| ["elsewhere", "alias"].contains(&definition.name.as_str())), "{inventory:?}");
    assert!(session.inventory(false).unwrap().iter().all(|definition| definition.size == 0));
}

#[test]
fn what_nothing_leads_to_is_unreachable() {
    let bitcode = device(PROGRAM);
    let session = closed(&bitcode);
    // Two functions that call each other are no use to anybody; a table in memory and an alias are uses.
    assert_eq!(session.unreachable().unwrap(), names(&["unused", "unused_too", "lonely"]));
}

#[test]
fn remarks_are_reported_by_pattern() {
    let bitcode = device(PROGRAM);
    let mut session = closed(&bitcode);
    session.report_remarks(&RemarkPatterns { passed: Some("^inl.ne$".to_owned()), ..RemarkPatterns::default() }).unwrap();
    session.run_passes(&spec(OptLevel::O2), "lto<O2>").unwrap();
    let texts: Vec<String> = session.take_diagnostics().into_iter().filter(|d| d.severity == Severity::Remark).map(|d| d.text).collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].contains("'small' inlined into 'kernel'") && texts[0].ends_with(" [-Rpass=inline]"), "{texts:?}");
    let error = session.report_remarks(&RemarkPatterns { missed: Some("(".to_owned()), ..RemarkPatterns::default() }).unwrap_err();
    assert!(error.0.starts_with("'(': "), "{error}");
}

#[test]
fn remarks_are_written_down_as_yaml() {
    let bitcode = device(PROGRAM);
    let mut session = closed(&bitcode);
    assert_eq!(session.take_remarks(), "");
    session.report_remarks(&RemarkPatterns::default()).unwrap();
    session.record_remarks(Some("inline")).unwrap();
    session.run_passes(&spec(OptLevel::O2), "lto<O2>").unwrap();
    assert!(session.take_diagnostics().is_empty(), "written down only");
    session.emit_and_keep(&spec(OptLevel::O2)).unwrap();
    let yaml = session.take_remarks();
    assert!(yaml.contains("--- !Passed\nPass:            inline\nName:            Inlined\nFunction:        kernel\n"), "{yaml}");
    assert!(yaml.ends_with("...\n") && !yaml.contains("Pass:            gvn"), "{yaml}");
    assert_eq!(session.take_remarks(), "");
    assert!(session.record_remarks(Some("(")).is_err());
    // A session that ends in the middle of it.
    session.record_remarks(None).unwrap();
}
