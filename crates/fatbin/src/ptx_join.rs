//! Joins PTX texts that are parts of one program into one text, as the driver wants it: it compiles one text for an architecture, and links
//! nothing. The parts are LLVM's, and each name is defined by at most one of them; what one part declares as external and another defines
//! becomes a declaration before its definition. Grammar: PTX ISA, "Directives" and "Linking Directives".

use std::collections::HashSet;

use crate::ptx::{Header, Version};
use crate::{Error, Result};

/// A directive outside of functions, from its first line to its end.
struct Statement<'a> {
    text: &'a str,
    kind: Kind,
    /// The symbol that it declares or defines.
    name: &'a str,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// `.version`, `.target`, `.address_size`.
    Header,
    /// `.extern .func`.
    ExternalFunction,
    /// `.extern` and a memory space.
    ExternalVariable,
    /// Line and debug information, which is numbered by part.
    Debug,
    /// A definition, or a declaration of something internal.
    Other,
}

/// One text of all parts. Variables must be defined before they are used: parts that only hold variables come first. The result is for the
/// first part's target, of the highest ISA version among the parts; it has no line information.
pub fn join(parts: &[&[u8]]) -> Result<Vec<u8>> {
    let texts =
        parts.iter().map(|part| std::str::from_utf8(part).map_err(|_| Error::new("PTX is not UTF-8"))).collect::<Result<Vec<_>>>()?;
    let headers = parts.iter().map(|part| Header::parse(part)).collect::<Result<Vec<_>>>()?;
    let version = headers.iter().map(|header| header.version).max().unwrap_or(Version::new(0, 0));
    let statements: Vec<Vec<Statement>> = texts.iter().map(|text| statements(text)).collect();
    let defined: HashSet<&str> =
        statements.iter().flatten().filter(|s| s.kind == Kind::Other && s.text.starts_with(".visible")).map(|s| s.name).collect();

    let mut out = String::with_capacity(texts.iter().map(|text| text.len()).sum());
    for statement in statements.first().into_iter().flatten().filter(|s| s.kind == Kind::Header) {
        if statement.text.starts_with(".version") {
            out.push_str(&format!(".version {version}\n"));
        } else {
            out.push_str(statement.text);
        }
    }
    let mut declared = HashSet::new();
    for statement in statements.iter().flatten() {
        match statement.kind {
            Kind::Header | Kind::Debug => {}
            Kind::ExternalFunction if !declared.insert(statement.name) => {}
            Kind::ExternalFunction if defined.contains(statement.name) => {
                out.push_str(".visible");
                out.push_str(statement.text.trim_start_matches(".extern"));
            }
            Kind::ExternalVariable if defined.contains(statement.name) || !declared.insert(statement.name) => {}
            Kind::ExternalFunction | Kind::ExternalVariable => out.push_str(statement.text),
            Kind::Other => push_without_lines(&mut out, statement.text),
        }
    }
    Ok(out.into_bytes())
}

/// Adds a definition without `.loc`, which refers to files by the number that its part gave them.
fn push_without_lines(out: &mut String, text: &str) {
    for line in text.split_inclusive('\n').filter(|line| !is_word(line.trim_start(), ".loc")) {
        out.push_str(line);
    }
}

/// The statements of a text. Comments and empty lines between them are left out.
fn statements(text: &str) -> Vec<Statement<'_>> {
    let mut all = Vec::new();
    let mut start = None;
    let mut depth = 0usize;
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let code = line.split("//").next().unwrap_or_default().trim_end();
        let end = offset + line.len();
        if start.is_none() && code.trim_start().starts_with('.') {
            start = Some(offset);
        }
        if let Some(from) = start {
            let debug = depth == 0 && from == offset && is_line(code);
            if !debug {
                depth = (depth + code.matches('{').count()).saturating_sub(code.matches('}').count());
            }
            let header = from == offset && [".version", ".target", ".address_size"].iter().any(|word| code.starts_with(word));
            if debug || header || (depth == 0 && (code.ends_with(';') || code.ends_with('}'))) {
                all.extend(text.get(from..end).map(statement));
                start = None;
            }
        }
        offset = end;
    }
    all
}

/// Whether a directive is a line of its own that braces and semicolons do not end.
fn is_line(code: &str) -> bool {
    let code = code.trim_start();
    is_word(code, ".file") || is_word(code, ".loc")
}

/// Whether a line starts with a directive, and not with a longer one: `.local` is none of `.loc`'s.
fn is_word(line: &str, word: &str) -> bool {
    line.strip_prefix(word).is_some_and(|rest| rest.starts_with(char::is_whitespace))
}

fn statement(text: &str) -> Statement<'_> {
    let trimmed = text.trim_start();
    let word = trimmed.split_whitespace().next().unwrap_or_default();
    let kind = match word {
        ".version" | ".target" | ".address_size" => Kind::Header,
        ".file" | ".loc" | ".section" => Kind::Debug,
        ".extern" if trimmed.split_whitespace().nth(1) == Some(".func") => Kind::ExternalFunction,
        ".extern" => Kind::ExternalVariable,
        _ => Kind::Other,
    };
    Statement { text: trimmed, kind, name: name(trimmed) }
}

/// The symbol that a declaration or definition is about.
fn name(text: &str) -> &str {
    let is_function = text.split_whitespace().take(2).any(|word| matches!(word, ".func" | ".entry"));
    let head = if is_function {
        // `.func (.param .b32 retval) name(`: the return value stands before the name.
        let after = text.split_once(".func").or_else(|| text.split_once(".entry")).map_or(text, |(_, rest)| rest).trim_start();
        match after.strip_prefix('(') {
            Some(rest) => rest.split_once(')').map_or("", |(_, rest)| rest),
            None => after,
        }
        .trim_start()
    } else {
        let declaration = text.split(['=', '[', ';']).next().unwrap_or_default().trim_end();
        declaration.rsplit(char::is_whitespace).next().unwrap_or_default()
    };
    head.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '_' | '$' | '%'))).next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DATA: &str = "//\n// Generated by LLVM NVPTX Back-End\n//\n\n.version 7.0\n.target sm_80\n.address_size 64\n\n\
        .extern .func taken\n()\n;\n.visible .global .align 8 .u64 pointers[1] = {taken};\n.visible .global .align 4 .u32 n = 3;\n";
    const CODE: &str = ".version 7.8\n.target sm_80\n.address_size 64\n\n\t// .globl\tk\n\
        .extern .func  (.param .b32 func_retval0) _Z1fi\n(\n\t.param .b32 _Z1fi_param_0\n)\n;\n.extern .func vprintf\n()\n;\n\
        .extern .global .align 8 .u64 pointers[1];\n.extern .shared .align 4 .b8 dyn[];\n.global .align 1 .b8 s__part__1[3] = {104, 105};\n\
        .visible .entry k(\n\t.param .u64 k_param_0\n)\n.maxntid 256, 1, 1\n{\n\t.local .align 4 .b8 \t__local_depot0[8];\n\t.loc\t1 3 5\n\t{ // callseq 0, 0\n\tcall.uni (retval0), _Z1fi, (param0);\n\t}\n\tret;\n\
        \t\t// -- End function\n}\n\t.file\t1 \"a { b.cu\"\n\t.section\t.debug_str\n\t{\n$L__info_string0:\n.b8 95\n\t}\n";
    const MORE: &str = ".version 7.0\n.target sm_80\n.address_size 64\n.extern .func vprintf\n()\n;\n.extern .shared .align 4 .b8 dyn[];\n\
        .visible .func  (.param .b32 func_retval0) _Z1fi(\n\t.param .b32 _Z1fi_param_0\n)\n{\n\tret;\n}\n.visible .func taken()\n{\n\tret;\n}\n";

    #[test]
    fn parts_become_one_text() {
        let joined = String::from_utf8(join(&[DATA.as_bytes(), CODE.as_bytes(), MORE.as_bytes()]).unwrap()).unwrap();
        let expected = ".version 7.8\n.target sm_80\n.address_size 64\n\
            .visible .func taken\n()\n;\n.visible .global .align 8 .u64 pointers[1] = {taken};\n.visible .global .align 4 .u32 n = 3;\n\
            .visible .func  (.param .b32 func_retval0) _Z1fi\n(\n\t.param .b32 _Z1fi_param_0\n)\n;\n.extern .func vprintf\n()\n;\n\
            .extern .shared .align 4 .b8 dyn[];\n.global .align 1 .b8 s__part__1[3] = {104, 105};\n\
            .visible .entry k(\n\t.param .u64 k_param_0\n)\n.maxntid 256, 1, 1\n{\n\t.local .align 4 .b8 \t__local_depot0[8];\n\t{ // callseq 0, 0\n\tcall.uni (retval0), _Z1fi, (param0);\n\t}\n\tret;\n\
            \t\t// -- End function\n}\n\
            .visible .func  (.param .b32 func_retval0) _Z1fi(\n\t.param .b32 _Z1fi_param_0\n)\n{\n\tret;\n}\n.visible .func taken()\n{\n\tret;\n}\n";
        assert_eq!(joined, expected);
    }

    #[test]
    fn names_are_found() {
        for (text, expected) in [
            (".extern .func  (.param .align 4 .b8 func_retval0[8]) _Z1fi\n(\n.param .b32 a\n)\n;", "_Z1fi"),
            (".visible .entry k(\n)", "k"),
            (".extern .global .align 4 .b8 g[16];", "g"),
            (".visible .const .align 4 .f32 c$1 = 0f00000000;", "c$1"),
            (".func x", "x"),
            ("", ""),
        ] {
            assert_eq!(name(text), expected, "{text}");
        }
    }

    #[test]
    fn what_is_no_ptx_is_an_error() {
        assert!(join(&[b"\xff\xfe"]).is_err());
        assert!(join(&[b"hello"]).is_err());
    }
}
