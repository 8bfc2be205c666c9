//! Linker scripts, as far as they name inputs: the text files that stand where libraries are expected (glibc's `libc.so`), and `-T` files.
//!
//! Everything about layout is skipped. The commands are those of the GNU ld manual, section "Commands Dealing with Files"; lld, gold and
//! mold read the same ones. Text that is no linker script gives no commands.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;

/// A command that matters for which files are linked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// `INPUT(...)`, `STARTUP(...)`
    Input(Vec<Named>),
    /// `GROUP(...)`: searched again until nothing new is found.
    Group(Vec<Named>),
    /// `SEARCH_DIR(...)`
    SearchDir(OsString),
    /// `INCLUDE file`
    Include(OsString),
    /// `EXTERN(...)`: symbols that are undefined from the start.
    Extern(Vec<String>),
    /// `ENTRY(symbol)`
    Entry(String),
    /// `INSERT AFTER|BEFORE`: the script adds to the default one instead of replacing it.
    Insert,
}

/// A file or `-lNAME` in `INPUT` or `GROUP`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Named {
    /// As written, quotes taken off.
    pub name: OsString,
    /// Inside `AS_NEEDED(...)`.
    pub as_needed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    Word(Vec<u8>),
    Punctuation(u8),
}

/// The commands in `text`, in order.
pub fn parse(text: &[u8]) -> Vec<Command> {
    let mut tokens = Tokens { text, position: 0 };
    let mut commands = Vec::new();
    while let Some(token) = tokens.next() {
        let word = match token {
            Token::Word(word) => word,
            Token::Punctuation(b'{') => {
                tokens.skip_block();
                continue;
            }
            Token::Punctuation(_) => continue,
        };
        match word.as_slice() {
            b"INPUT" | b"STARTUP" => commands.extend(tokens.list().map(Command::Input)),
            b"GROUP" => commands.extend(tokens.list().map(Command::Group)),
            b"SEARCH_DIR" => {
                let dirs = tokens.list().unwrap_or_default();
                commands.extend(dirs.into_iter().map(|dir| Command::SearchDir(dir.name)));
            }
            b"EXTERN" => {
                let names = tokens.list().unwrap_or_default();
                commands.push(Command::Extern(names.into_iter().map(|named| lossy(named.name)).collect()));
            }
            b"ENTRY" => {
                let names = tokens.list().unwrap_or_default();
                commands.extend(names.into_iter().take(1).map(|named| Command::Entry(lossy(named.name))));
            }
            b"INCLUDE" => {
                if let Some(Token::Word(name)) = tokens.next() {
                    commands.push(Command::Include(OsString::from_vec(name)));
                }
            }
            b"INSERT" => commands.push(Command::Insert),
            _ => {}
        }
    }
    commands
}

fn lossy(name: OsString) -> String {
    name.to_string_lossy().into_owned()
}

struct Tokens<'a> {
    text: &'a [u8],
    position: usize,
}

impl Tokens<'_> {
    fn peek_byte(&self) -> Option<u8> {
        self.text.get(self.position).copied()
    }

    fn skip_space(&mut self) {
        while let Some(byte) = self.peek_byte() {
            let rest = &self.text[self.position..];
            if byte.is_ascii_whitespace() || byte == 0x0b {
                self.position += 1;
            } else if rest.starts_with(b"/*") {
                let end = rest.windows(2).skip(2).position(|pair| pair == b"*/");
                self.position += end.map_or(rest.len(), |end| end + 4);
            } else if byte == b'#' {
                self.position += rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
            } else {
                break;
            }
        }
    }

    fn next(&mut self) -> Option<Token> {
        self.skip_space();
        let start = self.position;
        let byte = self.peek_byte()?;
        self.position += 1;
        if byte == b'"' {
            let rest = &self.text[self.position..];
            let length = rest.iter().position(|&byte| byte == b'"').unwrap_or(rest.len());
            self.position = (self.position + length + 1).min(self.text.len());
            return Some(Token::Word(rest[..length].to_vec()));
        }
        if !is_word_byte(byte) {
            return Some(Token::Punctuation(byte));
        }
        while self.peek_byte().is_some_and(is_word_byte) {
            self.position += 1;
        }
        Some(Token::Word(self.text[start..self.position].to_vec()))
    }

    /// What stands in the parentheses that must follow; nothing if none do.
    fn list(&mut self) -> Option<Vec<Named>> {
        let before = self.position;
        if self.next() != Some(Token::Punctuation(b'(')) {
            self.position = before;
            return None;
        }
        let mut names = Vec::new();
        let mut depth = 1;
        let mut as_needed_depth = None;
        while depth > 0 {
            match self.next() {
                None => break,
                Some(Token::Punctuation(b'(')) => depth += 1,
                Some(Token::Punctuation(b')')) => {
                    depth -= 1;
                    if as_needed_depth == Some(depth) {
                        as_needed_depth = None;
                    }
                }
                Some(Token::Punctuation(_)) => {}
                Some(Token::Word(word)) if word == b"AS_NEEDED" => as_needed_depth = as_needed_depth.or(Some(depth)),
                Some(Token::Word(word)) => {
                    names.push(Named { name: OsString::from_vec(word), as_needed: as_needed_depth.is_some() });
                }
            }
        }
        Some(names)
    }

    /// Skips to the brace that closes the one just read.
    fn skip_block(&mut self) {
        let mut depth = 1;
        while depth > 0 {
            match self.next() {
                None => break,
                Some(Token::Punctuation(b'{')) => depth += 1,
                Some(Token::Punctuation(b'}')) => depth -= 1,
                Some(_) => {}
            }
        }
    }
}

/// What a file name in a script may consist of; the rest separates.
fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte >= 0x80 || b"_.$/\\~=+:[]*?-!<>^@%&|'".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(text: &str) -> String {
        let list = |names: &[Named]| {
            let names = names.iter().map(|named| format!("{}{}", named.name.display(), if named.as_needed { "?" } else { "" }));
            names.collect::<Vec<_>>().join(" ")
        };
        let commands = parse(text.as_bytes()).into_iter().map(|command| match command {
            Command::Input(names) => format!("input {}", list(&names)),
            Command::Group(names) => format!("group {}", list(&names)),
            Command::SearchDir(dir) => format!("dir {}", dir.display()),
            Command::Include(file) => format!("include {}", file.display()),
            Command::Extern(names) => format!("extern {}", names.join(" ")),
            Command::Entry(name) => format!("entry {name}"),
            Command::Insert => "insert".to_owned(),
        });
        commands.collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn commands_are_found() {
        for (text, expected) in [
            ("", ""),
            ("INPUT(a.o b.o)", "input a.o b.o"),
            ("INPUT ( a.o , b.o,c.o )", "input a.o b.o c.o"),
            ("INPUT(a.o AS_NEEDED(b.so c.so) d.o)", "input a.o b.so? c.so? d.o"),
            (
                "/* GNU ld script\n*/\nOUTPUT_FORMAT(elf64-x86-64)\nGROUP ( /lib/libc.so.6 /usr/lib/libc_nonshared.a  AS_NEEDED ( /lib64/ld.so.2 ) )",
                "group /lib/libc.so.6 /usr/lib/libc_nonshared.a /lib64/ld.so.2?",
            ),
            ("INPUT(-lfoo -l:libbar.a =/usr/lib/x.a $SYSROOT/y.a)", "input -lfoo -l:libbar.a =/usr/lib/x.a $SYSROOT/y.a"),
            ("INPUT(\"a b.o\" \"c(d).o\")", "input a b.o c(d).o"),
            ("SEARCH_DIR(\"=/usr/lib64\"); SEARCH_DIR(/x);", "dir =/usr/lib64; dir /x"),
            ("SECTIONS { .text : { *(.text) INPUT(no.o) } } INPUT(yes.o)", "input yes.o"),
            ("# comment INPUT(no.o)\nINPUT(a#b", "input a"),
            ("/* INPUT(no.o) */ INPUT(a.o) /* open", "input a.o"),
            ("INCLUDE other.ld ENTRY(main) EXTERN(a b) STARTUP(crt0.o)", "include other.ld; entry main; extern a b; input crt0.o"),
            ("x = 3; INPUT = 4; INPUT(a.o)", "input a.o"),
            ("SECTIONS { } INSERT AFTER .text;", "insert"),
            ("INPUT(c++/a.o lib~1.a)", "input c++/a.o lib~1.a"),
            (".version 8.0\n.target sm_90\n.visible .entry k() { ret; }", ""),
            ("{ INPUT(a.o)", ""),
            ("\"", ""),
            ("INPUT(\"a", "input a"),
        ] {
            assert_eq!(show(text), expected, "{text:?}");
        }
    }
}
