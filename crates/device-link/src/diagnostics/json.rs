//! Messages for machines: one JSON object a line, in the shape of rustc's `--error-format=json`, so that what reads rustc's reads ours.
//!
//! Device code has no lines: the place of a message is the object or archive that it begins with ("the object first" is a rule of all our
//! messages), and the numbers of rustc's spans are those of a file's first byte.

use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Value, json};

use super::catalogue;
use crate::error::Error;
use crate::options::DiagnosticsFormat;
use crate::response;

/// The format that a line or the environment asks for, looked up before the line is understood: what is wrong with the line is a message, too.
pub fn wanted(args: &[OsString], env: &dyn Fn(&str) -> Option<OsString>) -> DiagnosticsFormat {
    let expanded = response::expand(args.to_vec()).map_or_else(|_| args.to_vec(), |(args, _)| args);
    let named = expanded.iter().rev().find_map(|arg| {
        let arg = arg.as_bytes();
        let arg = arg.strip_prefix(b"--").or_else(|| arg.strip_prefix(b"-"))?;
        arg.strip_prefix(b"warplink-diagnostics=").map(<[u8]>::to_vec)
    });
    let value = named.or_else(|| env("WARPLINK_DIAGNOSTICS").map(|value| value.as_bytes().to_vec()));
    if value.as_deref() == Some(b"json") { DiagnosticsFormat::Json } else { DiagnosticsFormat::Text }
}

/// Prints every error that travels in `error` to stderr, where there is no [`super::Diagnostics`] to do it.
pub fn print_errors(error: &Error, format: DiagnosticsFormat) {
    for error in error.each() {
        eprintln!("{}", as_line(format, "error", error.code(), &error.text()));
    }
}

/// One message without colours, as a person or as a machine reads it.
pub fn as_line(format: DiagnosticsFormat, level: &str, code: Option<&str>, text: &str) -> String {
    match format {
        DiagnosticsFormat::Text => format!("warplink: {level}: {text}"),
        DiagnosticsFormat::Json => line(level, code, text),
    }
}

/// The object for a message, without a line end. `text` is what a person would be shown, without the name of a warning behind it.
pub(super) fn line(level: &str, code: Option<&str>, text: &str) -> String {
    let (message, notes) = split(text);
    let name = code.map(|code| format!(" [{code}]")).filter(|_| code.is_some_and(catalogue::is_warning)).unwrap_or_default();
    let children: Vec<Value> = notes
        .iter()
        .map(|note| {
            json!({
                "message": note,
                "code": null,
                "level": if is_help(note) { "help" } else { "note" },
                "spans": place_of_note(note).map(|place| vec![span(&place, false)]).unwrap_or_default(),
                "children": [],
                "rendered": null,
            })
        })
        .collect();
    let code = code.map(|code| json!({ "code": code, "explanation": catalogue::explanation(code) }));
    // A note by itself is what somebody asked for, such as statistics: people see no word before it.
    let word = if level == "note" { String::new() } else { format!("{level}: ") };
    json!({
        "$message_type": "diagnostic",
        "message": message,
        "code": code,
        "level": level,
        "spans": place(message).map(|place| vec![span(&place, true)]).unwrap_or_default(),
        "children": children,
        "rendered": format!("warplink: {word}{text}{name}\n"),
    })
    .to_string()
}

/// A text's own lines, and the `>>> ` lines below them.
fn split(text: &str) -> (&str, Vec<&str>) {
    let at = text.find("\n>>> ").unwrap_or(text.len());
    let (message, notes) = text.split_at(at);
    (message, notes.split("\n>>> ").skip(1).collect())
}

/// Whether a note says what to do rather than what is there.
fn is_help(note: &str) -> bool {
    let word = note.split(' ').next().unwrap_or_default();
    ["compile", "did", "name", "run", "use", "link", "add", "--save-temps"].contains(&word)
}

/// A file, and the member of it if it is an archive.
#[derive(Debug, PartialEq, Eq)]
struct Place<'t> {
    file: &'t str,
    member: Option<&'t str>,
}

/// The object that a message begins with.
fn place(message: &str) -> Option<Place<'_>> {
    let (object, _) = message.split_once(": ")?;
    // `a.o (sm_90)`, `a.o, b.o`
    let object = object.split(" (").next()?.split(", ").next()?;
    of_object(object)
}

/// The object that a note is about: `defined in a.o`, `referenced by lib.a(m.o)`, `looked in DIR`.
fn place_of_note(note: &str) -> Option<Place<'_>> {
    let object = ["defined in ", "referenced by ", "looked in "].iter().find_map(|start| note.strip_prefix(start))?;
    of_object(object.split(", ").next()?.split(" (").next()?)
}

fn of_object(object: &str) -> Option<Place<'_>> {
    let (file, member) = match object.strip_suffix(')').and_then(|object| object.split_once('(')) {
        Some((file, member)) => (file, Some(member)),
        None => (object, None),
    };
    let looks_like_a_file = || {
        let plain = !file.starts_with(['-', '$']) && !file.contains([' ', '=', '\'', '"', ':']);
        plain && (file.contains('/') || Path::new(file).extension().is_some())
    };
    (!file.is_empty() && (looks_like_a_file() || Path::new(file).exists())).then_some(Place { file, member })
}

fn span(place: &Place, is_primary: bool) -> Value {
    json!({
        "file_name": place.file,
        "member": place.member,
        "byte_start": 0,
        "byte_end": 0,
        "line_start": 1,
        "line_end": 1,
        "column_start": 1,
        "column_end": 1,
        "is_primary": is_primary,
        "text": [],
        "label": null,
        "suggested_replacement": null,
        "suggestion_applicability": null,
        "expansion": null,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(level: &str, code: Option<&str>, text: &str) -> Value {
        let line = line(level, code, text);
        assert!(!line.contains('\n'), "{line}");
        serde_json::from_str(&line).unwrap()
    }

    #[test]
    fn an_error_has_its_objects_as_spans() {
        let text =
            "libk.a(b.o): undefined device symbol: f(int) for sm_90\n>>> referenced by libk.a(b.o)\n>>> did you mean: f(long) in c.o";
        let json = parsed("error", Some("undefined-symbol"), text);
        assert_eq!(json["message"], "libk.a(b.o): undefined device symbol: f(int) for sm_90");
        assert_eq!(json["code"]["code"], "undefined-symbol");
        assert!(json["code"]["explanation"].as_str().is_some_and(|text| text.len() > 40));
        assert_eq!((&json["spans"][0]["file_name"], &json["spans"][0]["member"]), (&"libk.a".into(), &"b.o".into()));
        assert_eq!(json["spans"][0]["is_primary"], true);
        assert_eq!(json["children"][0]["level"], "note");
        assert_eq!(json["children"][0]["spans"][0]["member"], "b.o");
        assert_eq!(json["children"][1]["level"], "help");
        assert_eq!(json["rendered"], format!("warplink: error: {text}\n"));
    }

    #[test]
    fn the_shape_is_that_of_rustc() {
        // The fields that `cargo_metadata` reads: without one of them it refuses the message.
        let json = parsed("warning", Some("older-arch"), "a.o: has no code for sm_90; its sm_80 code is linked instead");
        assert_eq!(json["rendered"], "warplink: warning: a.o: has no code for sm_90; its sm_80 code is linked instead [older-arch]\n");
        for field in ["message", "code", "level", "spans", "children", "rendered"] {
            assert!(json.get(field).is_some(), "{field}");
        }
        for field in [
            "file_name",
            "byte_start",
            "byte_end",
            "line_start",
            "line_end",
            "column_start",
            "column_end",
            "is_primary",
            "text",
            "label",
            "suggested_replacement",
            "suggestion_applicability",
            "expansion",
        ] {
            assert!(json["spans"][0].get(field).is_some(), "{field}");
        }
    }

    #[test]
    fn only_what_is_a_file_is_a_place() {
        for (message, expected) in [
            ("a.o: damaged", Some(("a.o", None))),
            ("dir/lib.a(m.o): damaged", Some(("dir/lib.a", Some("m.o")))),
            ("a.o (sm_90): ptxas exited with code 255", Some(("a.o", None))),
            ("a.o, b.o: both", Some(("a.o", None))),
            ("/x/app: cannot be written", Some(("/x/app", None))),
            ("ptxas, sm_90: warning: x", None),
            ("--warplink-ptx=x.y: expected all", None),
            ("WARPLINK_PTX=x.y: expected all", None),
            ("ptxas not found, which device code needs", None),
            ("sm_90: something", None),
            ("", None),
            (": x", None),
        ] {
            assert_eq!(place(message).map(|place| (place.file, place.member)), expected, "{message}");
        }
    }

    #[test]
    fn the_format_is_known_before_the_line_is() {
        let none = |_: &str| None;
        let json = |name: &str| (name == "WARPLINK_DIAGNOSTICS").then(|| OsString::from("json"));
        let args = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        assert_eq!(wanted(&args(&["ld", "a.o"]), &none), DiagnosticsFormat::Text);
        assert_eq!(wanted(&args(&["ld", "a.o"]), &json), DiagnosticsFormat::Json);
        assert_eq!(wanted(&args(&["ld", "--warplink-diagnostics=text"]), &json), DiagnosticsFormat::Text);
        assert_eq!(wanted(&args(&["ld", "--warplink-diagnostics=text", "-warplink-diagnostics=json"]), &none), DiagnosticsFormat::Json);
    }
}
