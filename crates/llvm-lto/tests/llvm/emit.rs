//! Code generation: the PTX's header, and the same bytes each time.

use llvm_lto::{OptLevel, TargetSpec};

use crate::support::*;

fn generate(inputs: &[&[u8]], level: OptLevel) -> Vec<u8> {
    let mut session = linked(inputs);
    session.internalize(&names(&["registered_variable"])).unwrap();
    session.retarget("sm_90", "+ptx78,+sm_90").unwrap();
    session.run_passes(&spec(level), &format!("lto<O{}>", level.digit())).unwrap();
    session.merge_constants().unwrap();
    session.demote_constants(4000, &names(&[])).unwrap();
    session.emit(&spec(level)).unwrap().0
}

#[test]
fn the_header_says_what_was_asked_for() {
    let bitcode = input("calls.ll");
    for (cpu, features, version, target) in
        [("sm_90", "+ptx78", "7.8", "sm_90"), ("sm_90a", "+ptx80", "8.0", "sm_90a"), ("sm_52", "+ptx64", "6.4", "sm_52")]
    {
        let session = linked(&[&bitcode]);
        let spec = TargetSpec { cpu: cpu.to_owned(), features: features.to_owned(), ..spec(OptLevel::O2) };
        let (text, _) = session.emit(&spec).unwrap();
        let text = String::from_utf8(text).unwrap();
        let header: Vec<&str> = text.lines().filter(|line| !line.is_empty() && !line.starts_with("//")).take(3).collect();
        assert_eq!(header, [format!(".version {version}"), format!(".target {target}"), ".address_size 64".to_owned()]);
        assert_eq!(text.matches(".visible .entry").count(), 3, "{text}");
    }
}

#[test]
fn a_target_that_is_not_there_is_an_error() {
    let bitcode = input("calls.ll");
    let session = linked(&[&bitcode]);
    let error = session.emit(&TargetSpec { triple: "vax-dec-ultrix".to_owned(), ..spec(OptLevel::O2) }).unwrap_err().to_string();
    assert!(error.contains("vax"), "{error}");
}

#[test]
fn a_pipeline_that_is_not_there_is_an_error() {
    let bitcode = input("calls.ll");
    let error = linked(&[&bitcode]).run_passes(&spec(OptLevel::O2), "lto<O2>,no-such-pass").unwrap_err().to_string();
    assert!(error.contains("no-such-pass"), "{error}");
}

#[test]
fn same_inputs_same_bytes() {
    let files = ["calls.ll", "constants.ll", "used.ll"].map(input);
    // `kernel` is in two of the others.
    let bank = assemble(&text("bank.ll").replace("@kernel", "@bank_kernel").replace("@table", "@bank_table"));
    let inputs = [&files[0][..], &files[1], &files[2], &bank];
    for level in [OptLevel::O0, OptLevel::O1, OptLevel::O2, OptLevel::O3] {
        let once = generate(&inputs, level);
        let (one, two) = std::thread::scope(|scope| {
            let one = scope.spawn(|| generate(&inputs, level));
            let two = scope.spawn(|| generate(&inputs, level));
            (one.join().unwrap(), two.join().unwrap())
        });
        assert!(once == one && once == two, "{level:?} differs between runs");
        assert!(once.starts_with(b"//"), "{level:?}");
    }
}

#[test]
fn a_session_may_move_to_another_thread() {
    let bitcode = input("calls.ll");
    let session = linked(&[&bitcode]);
    let text = std::thread::scope(|scope| scope.spawn(move || ptx(session)).join().unwrap());
    assert!(text.contains(".visible .entry third("), "{text}");
}

/// Two objects with debug information of a kind: each a kernel with an inlined function and a variable.
fn with_debug(kind: &str) -> [Vec<u8>; 2] {
    ["a", "b"].map(|unit| assemble(&text("debug.ll").replace("KIND", kind).replace("UNIT", unit)))
}

#[test]
fn source_lines_are_kept_without_making_the_code_debuggable() {
    for (kind, debug) in [("FullDebug", true), ("LineTablesOnly", true), ("DebugDirectivesOnly", false)] {
        let [a, b] = with_debug(kind);
        for keep_lines in [false, true] {
            let mut session = linked(&[&a, &b]);
            session.internalize(&names(&[])).unwrap();
            if keep_lines {
                session.keep_line_tables().unwrap();
            }
            session.run_passes(&spec(OptLevel::O2), "lto<O2>").unwrap();
            let text = ptx(session);
            let expected = debug && !keep_lines;
            assert_eq!(text.contains(".target sm_90, debug\n"), expected, "{kind}: {text}");
            assert_eq!(text.contains(".debug_info"), expected, "{kind}: {text}");
            for unit in ["a", "b"] {
                assert!(text.contains(&format!("{unit}.cu\"")), "{kind}: {text}");
            }
            // The kernel's own line, and the line of the function inlined into it.
            assert!(text.contains(".loc\t1 9 3") && text.contains(".loc\t1 3 5"), "{kind}: {text}");
        }
    }
}

#[test]
fn without_debug_information_there_is_nothing_to_reduce() {
    let bitcode = input("calls.ll");
    let (mut with, without) = (linked(&[&bitcode]), linked(&[&bitcode]));
    with.keep_line_tables().unwrap();
    assert_eq!(ptx(with), ptx(without));
}
