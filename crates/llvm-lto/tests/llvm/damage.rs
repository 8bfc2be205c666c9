//! Bitcode that is damaged, cut off or too new: an error with a reason, never the end of the program.

use llvm_lto::{OptLevel, Session, read_host_bitcode};

use crate::support::*;

/// Reads all there is of an input, as a link does.
fn read(bitcode: &[u8]) -> Result<(), String> {
    let mut session = Session::new();
    let id = session.load("cut.o", bitcode).map_err(|error| error.to_string())?;
    session.symbols(id);
    session.info(id);
    session.link(&[id]).map_err(|(name, error)| format!("{name}: {error}"))?;
    session.internalize(&names(&[])).map_err(|error| error.to_string())?;
    session.emit(&spec(OptLevel::O0)).map_err(|error| error.to_string())?;
    Ok(())
}

#[test]
fn what_is_not_bitcode() {
    for bytes in [&b""[..], b"B", b"BC\xc0\xde", b"\x7fELF", &[0; 64], b"BC\xc0\xde\0\0\0\0", &[0xff; 1000]] {
        let error = Session::new().load("a.o", bytes).unwrap_err().to_string();
        assert!(!error.is_empty() && !error.contains('\n'), "{bytes:?}: {error:?}");
        assert!(read_host_bitcode(bytes).is_err(), "{bytes:?}");
    }
}

#[test]
fn cut_off_at_any_length() {
    let whole = input("calls.ll");
    assert_eq!(read(&whole), Ok(()));
    for length in 0..whole.len() {
        // The symbol table at the end is not needed; nothing else can be missing.
        assert!(read(&whole[..length]).is_err(), "the first {length} of {} bytes are taken for a module", whole.len());
    }
}

#[test]
fn a_host_object_cut_off_at_any_length() {
    let whole = input("host.ll");
    assert!(read_host_bitcode(&whole).is_ok());
    for length in 0..whole.len() {
        assert!(read_host_bitcode(&whole[..length]).is_err(), "the first {length} of {} bytes are taken for a module", whole.len());
    }
}

/// Bitcode whose identification block says that its epoch is 1: "not readable by what knows only epoch 0".
fn of_a_later_epoch(mut bitcode: Vec<u8>) -> Vec<u8> {
    // Behind the magic: abbreviation width 2, ENTER_SUBBLOCK, block 13, aligned; then the block's length in words. Its last record is the
    // epoch (abbreviation 5 in five bits, then the number), and END_BLOCK is zeros: the last bit that is set is the number 5's.
    let words = u32::from_le_bytes(bitcode[8..12].try_into().unwrap()) as usize;
    let last = (12 * 8..(12 + 4 * words) * 8).rev().find(|bit| bitcode[bit / 8] >> (bit % 8) & 1 == 1).unwrap();
    let epoch = last + 3;
    bitcode[epoch / 8] |= 1 << (epoch % 8);
    bitcode
}

#[test]
fn bitcode_of_a_later_llvm() {
    let bitcode = of_a_later_epoch(input("calls.ll"));
    let error = Session::new().load("a.o", &bitcode).unwrap_err().to_string();
    assert!(error.contains("Incompatible epoch: Bitcode '1' vs current: '0'"), "{error}");
    assert!(read_host_bitcode(&bitcode).unwrap_err().to_string().contains("Incompatible epoch"));
}

#[test]
fn a_session_survives_a_bad_input() {
    let good = input("calls.ll");
    let mut session = Session::new();
    assert!(session.load("bad.o", &good[..good.len() / 2]).is_err());
    let id = session.load("good.o", &good).unwrap();
    session.link(&[id]).unwrap();
    assert_eq!(session.kernels().unwrap(), ["first", "second", "third"]);
    assert!(ptx(session).contains(".visible .entry first("));
}

#[test]
fn text_that_is_no_ir() {
    let error = llvm_lto::assemble("define void @f( {").unwrap_err().to_string();
    assert!(error.contains("expected type"), "{error}");
}

/// Bitcode that LLVM reads although it is no valid program: the optimiser would never end, or make something else of it.
#[test]
fn code_that_is_not_valid_is_an_error_that_names_its_object() {
    let good = device("define i32 @f(i32 %n) {\n  %a = add i32 %n, 1\n  %b = add i32 %a, 1\n  ret i32 %b\n}\n");
    let bad = device("define i32 @g(i32 %n) {\n  %b = add i32 %a, 1\n  %a = add i32 %n, 1\n  ret i32 %b\n}\n");
    let (mut session, ids) = loaded(&[&good, &bad]);
    let (name, error) = session.link(&ids).unwrap_err();
    assert_eq!((name.as_str(), error.to_string().as_str()), ("1.o", "device code is not valid: Instruction does not dominate all uses"));
    let (mut session, ids) = loaded(&[&good]);
    assert!(session.link(&ids).is_ok());
}
