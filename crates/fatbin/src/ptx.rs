//! Reads what PTX text says about itself, and knows which CUDA release understands it.

mod kernel_references;
mod register_limits;
mod strip;

use crate::{Arch, Error, Result, Suffix};
use std::fmt;
use std::str::FromStr;

pub use kernel_references::with_kernels_declared;
pub use register_limits::with_register_limits;
pub(crate) use strip::strip;

/// A version of the PTX instruction set, as in `.version 8.8`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version {
    /// The number before the dot.
    pub major: u16,
    /// The number behind the dot.
    pub minor: u16,
}

impl Version {
    /// The version `major.minor`.
    pub const fn new(major: u16, minor: u16) -> Self {
        Version { major, minor }
    }

    /// The oldest CUDA release whose tools and driver understand this version; for versions before
    /// 6.0 that of 6.0. `None` for versions newer than the table.
    pub fn release(self) -> Option<&'static Release> {
        RELEASES.iter().find(|release| release.version >= self)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.major, self.minor)
    }
}

impl FromStr for Version {
    type Err = Error;

    /// Reads `8.8`.
    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::new(format!("'{text}' is not a ptx version such as 8.8"));
        let number = |digits: &str| {
            let plain = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit());
            if plain { digits.parse().ok() } else { None }
        };
        let (major, minor) = text.split_once('.').ok_or_else(bad)?;
        match (number(major), number(minor)) {
            (Some(major), Some(minor)) => Ok(Version { major, minor }),
            _ => Err(bad()),
        }
    }
}

/// The CUDA release that brought a version of PTX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Release {
    /// The newest PTX that it understands.
    pub version: Version,
    /// The CUDA release: `12.9`.
    pub cuda: &'static str,
    /// The branch of the driver that came with it, such as 575 for r575; `None` where the table of
    /// the PTX ISA names none.
    pub driver: Option<u32>,
}

const fn release(major: u16, minor: u16, cuda: &'static str, driver: u32) -> Release {
    let driver = if driver == 0 { None } else { Some(driver) };
    Release { version: Version::new(major, minor), cuda, driver }
}

/// The release table of the PTX ISA document. Where two CUDA releases have the same version, the
/// older.
pub const RELEASES: &[Release] = &[
    release(6, 0, "9.0", 384),
    release(6, 1, "9.1", 387),
    release(6, 2, "9.2", 396),
    release(6, 3, "10.0", 400),
    release(6, 4, "10.1", 418),
    release(6, 5, "10.2", 440),
    release(7, 0, "11.0", 445),
    release(7, 1, "11.1", 455),
    release(7, 2, "11.2", 460),
    release(7, 3, "11.3", 465),
    release(7, 4, "11.4", 470),
    release(7, 5, "11.5", 495),
    release(7, 6, "11.6", 510),
    release(7, 7, "11.7", 515),
    release(7, 8, "11.8", 520),
    release(8, 0, "12.0", 525),
    release(8, 1, "12.1", 530),
    release(8, 2, "12.2", 535),
    release(8, 3, "12.3", 545),
    release(8, 4, "12.4", 550),
    release(8, 5, "12.5", 555),
    release(8, 6, "12.7", 565),
    release(8, 7, "12.8", 570),
    release(8, 8, "12.9", 575),
    release(9, 0, "13.0", 580),
    release(9, 1, "13.1", 590),
    release(9, 2, "13.2", 595),
    release(9, 3, "13.3", 610),
    release(9, 4, "13.4", 0),
    release(9, 5, "13.5", 0),
];

/// The lowest `.version` with which ptxas and LLVM take `.target` of this architecture. `None` for
/// an architecture that is not in the table.
pub fn lowest_version(arch: Arch) -> Option<Version> {
    use Suffix::{ArchSpecific, Family};
    let (major, minor) = match (arch.sm, arch.suffix) {
        (50, None) => (4, 0),
        (52, None) => (4, 1),
        (53, None) => (4, 2),
        (60..=62, None) => (5, 0),
        (70, None) => (6, 0),
        (72, None) => (6, 1),
        (75, None) => (6, 3),
        (80, None) => (7, 0),
        (86, None) => (7, 1),
        (87, None) => (7, 4),
        (88, None) => (9, 0),
        (89 | 90, None) => (7, 8),
        (90, Some(ArchSpecific)) => (8, 0),
        (100 | 101, None | Some(ArchSpecific)) => (8, 6),
        (120, None | Some(ArchSpecific)) => (8, 7),
        (100 | 101 | 120, Some(Family)) | (103 | 121, _) => (8, 8),
        (110, _) => (9, 0),
        (107, _) => (9, 4),
        _ => return None,
    };
    Some(Version { major, minor })
}

/// The directives at the head of a PTX module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// `.version`.
    pub version: Version,
    /// The architecture that `.target` names.
    pub target: Arch,
    /// `.target` says `debug`: the module carries DWARF.
    pub debug: bool,
    /// `.address_size` in bits; 32 if it is not there.
    pub address_size: u32,
}

impl Header {
    /// Reads the head of `text`, comments before it allowed.
    ///
    /// # Errors
    /// If `.version` or `.target` is missing or malformed, or `.address_size` is.
    pub fn parse(text: &[u8]) -> Result<Self> {
        let mut tokens = Tokens::new(text).peekable();
        if tokens.next() != Some(Token::Word(b".version")) {
            return Err(Error::new("ptx does not start with .version"));
        }
        let version = match tokens.next() {
            Some(Token::Word(word)) => String::from_utf8_lossy(word).parse()?,
            _ => return Err(Error::new("ptx has no number behind .version")),
        };
        if tokens.next() != Some(Token::Word(b".target")) {
            return Err(Error::new("ptx has no .target behind .version"));
        }
        let target = match tokens.next() {
            Some(Token::Word(word)) => String::from_utf8_lossy(word).parse()?,
            _ => return Err(Error::new("ptx has no architecture behind .target")),
        };
        let mut debug = false;
        while tokens.next_if_eq(&Token::Punct(b',')).is_some() {
            debug |= tokens.next() == Some(Token::Word(b"debug"));
        }
        let mut address_size = 32;
        if tokens.next_if_eq(&Token::Word(b".address_size")).is_some() {
            address_size = match tokens.next() {
                Some(Token::Word(b"32")) => 32,
                Some(Token::Word(b"64")) => 64,
                _ => return Err(Error::new("ptx has an .address_size that is not 32 or 64")),
            };
        }
        Ok(Header { version, target, debug, address_size })
    }
}

/// Who sees a symbol of a PTX module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Linkage {
    /// No directive: this module only.
    Local,
    /// `.visible`.
    Visible,
    /// `.weak`.
    Weak,
    /// `.common`.
    Common,
    /// `.extern`: defined elsewhere.
    Extern,
}

/// What a symbol of a PTX module is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum SymbolKind {
    /// `.entry`: a kernel.
    Entry,
    /// `.func`.
    Function,
    /// `.global`.
    Global,
    /// `.const`.
    Constant,
    /// `.shared`, at module level.
    Shared,
}

/// A symbol of a PTX module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Symbol<'a> {
    /// Its name, mangled.
    pub name: &'a str,
    /// What it is.
    pub kind: SymbolKind,
    /// Who sees it.
    pub linkage: Linkage,
    /// False for a prototype of a function or kernel, and for `.extern` variables.
    pub defined: bool,
}

/// The kernels, functions and variables at module level, in the order of the text. A function with
/// prototypes comes once for each of them and once for its body.
///
/// Text that is no PTX gives whatever looks like a symbol in it; it never fails.
pub fn symbols(text: &[u8]) -> Vec<Symbol<'_>> {
    let mut symbols = Vec::new();
    let mut depth = 0usize;
    let mut statement = Vec::new();
    for token in Tokens::new(text) {
        match token {
            Token::Punct(b'{') => {
                if depth == 0 {
                    symbols.extend(symbol(&statement, true));
                }
                depth += 1;
            }
            Token::Punct(b'}') => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    statement.clear();
                }
            }
            Token::Punct(b';') if depth == 0 => {
                symbols.extend(symbol(&statement, false));
                statement.clear();
            }
            // `.version`, `.target`, `.file` and their like have no semicolon.
            Token::Word(b".visible" | b".weak" | b".extern" | b".common") if depth == 0 => {
                statement.clear();
                statement.push(token);
            }
            // The initializer of a variable can be long and says nothing here.
            _ if depth == 0 && statement.last() != Some(&Token::Punct(b'=')) => {
                statement.push(token);
            }
            _ => {}
        }
    }
    symbols
}

/// The symbol that a statement at module level declares; `body` if a brace follows it.
fn symbol<'a>(statement: &[Token<'a>], body: bool) -> Option<Symbol<'a>> {
    let (at, kind) = statement.iter().enumerate().find_map(|(at, token)| {
        let kind = match token {
            Token::Word(b".entry") => SymbolKind::Entry,
            Token::Word(b".func") => SymbolKind::Function,
            Token::Word(b".global") => SymbolKind::Global,
            Token::Word(b".const") => SymbolKind::Constant,
            Token::Word(b".shared") => SymbolKind::Shared,
            _ => return None,
        };
        Some((at, kind))
    })?;
    let linkage = match at.checked_sub(1).and_then(|before| statement.get(before)) {
        Some(Token::Word(b".visible")) => Linkage::Visible,
        Some(Token::Word(b".weak")) => Linkage::Weak,
        Some(Token::Word(b".common")) => Linkage::Common,
        Some(Token::Word(b".extern")) => Linkage::Extern,
        _ => Linkage::Local,
    };
    let mut parens = 0usize;
    let mut after_align = false;
    let name = statement.get(at + 1..)?.iter().find_map(|token| match token {
        // The result of a `.func` stands in parentheses before its name.
        Token::Punct(b'(') => {
            parens += 1;
            None
        }
        Token::Punct(b')') => {
            parens = parens.saturating_sub(1);
            None
        }
        Token::Word(word) if parens == 0 => {
            let number = std::mem::replace(&mut after_align, *word == b".align");
            (!number && !word.starts_with(b".")).then_some(*word)
        }
        _ => None,
    })?;
    let is_code = matches!(kind, SymbolKind::Entry | SymbolKind::Function);
    Some(Symbol { name: std::str::from_utf8(name).ok()?, kind, linkage, defined: if is_code { body } else { linkage != Linkage::Extern } })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// A directive, name or number.
    Word(&'a [u8]),
    /// A string with its quotes.
    String,
    /// Any other byte but blanks.
    Punct(u8),
}

/// The tokens of PTX text, without comments.
struct Tokens<'a> {
    rest: &'a [u8],
}

impl<'a> Tokens<'a> {
    fn new(text: &'a [u8]) -> Self {
        Tokens { rest: text }
    }

    /// Cuts off the first `len` bytes, or all.
    fn take(&mut self, len: usize) -> &'a [u8] {
        let (taken, rest) = self.rest.split_at(len.min(self.rest.len()));
        self.rest = rest;
        taken
    }
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        loop {
            match *self.rest {
                [] => return None,
                [b'/', b'/', ..] | [b'/', b'*', ..] => {
                    self.take(comment_len(self.rest));
                }
                [b'"', ..] => {
                    self.take(string_len(self.rest));
                    return Some(Token::String);
                }
                [byte, ..] if byte.is_ascii_whitespace() => {
                    self.take(1);
                }
                [byte, ..] if is_word(byte) => {
                    let len = self.rest.iter().position(|&b| !is_word(b));
                    return Some(Token::Word(self.take(len.unwrap_or(self.rest.len()))));
                }
                [byte, ..] => {
                    self.take(1);
                    return Some(Token::Punct(byte));
                }
            }
        }
    }
}

fn is_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'$' | b'%')
}

/// The length of the comment at the start of `text`: `//` without its line end, `/* */` whole.
fn comment_len(text: &[u8]) -> usize {
    if text.starts_with(b"//") {
        let end = text.iter().position(|&b| matches!(b, b'\n' | b'\r'));
        return end.unwrap_or(text.len());
    }
    let body = text.get(2..).unwrap_or_default();
    body.windows(2).position(|end| end == b"*/").map_or(text.len(), |at| at + 4)
}

/// The length of the string at the start of `text`, with both quotes.
fn string_len(text: &[u8]) -> usize {
    let mut escaped = false;
    for (at, &byte) in text.iter().enumerate().skip(1) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(text: &str) -> Result<Header> {
        Header::parse(text.as_bytes())
    }

    #[test]
    fn reads_the_head() {
        let text = "//\n// by LLVM\n/* .version 1.0 */\n.version 8.8\n.target sm_90a, debug\n\
                    .address_size 64\n";
        assert_eq!(
            header(text),
            Ok(Header {
                version: Version::new(8, 8),
                target: Arch { sm: 90, suffix: Some(Suffix::ArchSpecific) },
                debug: true,
                address_size: 64
            })
        );
        let short = header(".version 7.0\n.target sm_80\n.global .u32 x;").expect("head");
        assert_eq!((short.debug, short.address_size), (false, 32));
        let odd = header(".version\t6.3 .target sm_75,texmode_independent\n").expect("head");
        assert!(!odd.debug);
    }

    #[test]
    fn refuses_a_bad_head() {
        for text in [
            "",
            "\n\n",
            "/* open",
            ".target sm_80",
            ".version",
            ".version 8",
            ".version 8.",
            ".version .8",
            ".version +8.1",
            ".version 99999.0",
            ".version 8.8",
            ".version 8.8 .address_size 64",
            ".version 8.8 .target",
            ".version 8.8 .target x",
            ".version 8.8 .target sm_80 .address_size",
            ".version 8.8 .target sm_80 .address_size 48",
            "x .version 8.8 .target sm_80",
        ] {
            assert!(header(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn lists_symbols() {
        let text = br#"
.version 8.8
.target sm_90
.address_size 64
.file 1 "a;b{.entry no"
.extern .func  (.param .b32 func_retval0) vprintf
(
	.param .b64 vprintf_param_0
)
;
.func helper(.param .b32 a);
.extern .global .align 4 .u32 there;
.visible .global .align 4 .b8 table[8] = {1, 2, 3, 4};
.global .u32 alone = 7;
.const .align 8 .f64 pi;
.common .global .u32 c;
.extern .shared .align 16 .b8 dyn[];
// .entry comment()
.visible .entry _Z1kPi(.param .u64 p)
.maxntid 128, 1, 1
{
	.shared .align 4 .b8 inner[64];
	{ call.uni helper, (x); }
	ret;
}
.weak .func (.param .align 16 .b8 r[16]) w() { ret; }
.func helper(.param .b32 a)
{
	ret;
}
"#;
        use Linkage::{Common, Extern, Local, Visible, Weak};
        use SymbolKind::{Constant, Entry, Function, Global, Shared};
        let rows: Vec<_> = symbols(text).iter().map(|s| (s.name, s.kind, s.linkage, s.defined)).collect();
        assert_eq!(
            rows,
            [
                ("vprintf", Function, Extern, false),
                ("helper", Function, Local, false),
                ("there", Global, Extern, false),
                ("table", Global, Visible, true),
                ("alone", Global, Local, true),
                ("pi", Constant, Local, true),
                ("c", Global, Common, true),
                ("dyn", Shared, Extern, false),
                ("_Z1kPi", Entry, Visible, true),
                ("w", Function, Weak, true),
                ("helper", Function, Local, true),
            ]
        );
    }

    #[test]
    fn any_bytes_are_survived() {
        for text in [&b"}}}{;{"[..], b".entry", b".entry;{", b"\"", b"/*", b"/", b"\xff.entry \xff;"] {
            symbols(text);
            strip(text);
            assert!(Header::parse(text).is_err());
        }
    }

    #[test]
    fn knows_releases() {
        for (version, expected) in [
            (Version::new(8, 8), Some(("12.9", Some(575)))),
            (Version::new(8, 5), Some(("12.5", Some(555)))),
            (Version::new(7, 0), Some(("11.0", Some(445)))),
            (Version::new(4, 0), Some(("9.0", Some(384)))),
            (Version::new(9, 5), Some(("13.5", None))),
            (Version::new(9, 6), None),
        ] {
            assert_eq!(version.release().map(|r| (r.cuda, r.driver)), expected, "{version}");
        }
        assert!(RELEASES.is_sorted_by(|a, b| a.version < b.version));
    }

    #[test]
    fn knows_the_lowest_version() {
        for (arch, lowest) in [
            ("75", Some("6.3")),
            ("80", Some("7.0")),
            ("86", Some("7.1")),
            ("90", Some("7.8")),
            ("90a", Some("8.0")),
            ("100a", Some("8.6")),
            ("100f", Some("8.8")),
            ("120", Some("8.7")),
            ("121", Some("8.8")),
            ("110f", Some("9.0")),
            ("80a", None),
            ("999", None),
        ] {
            let arch: Arch = arch.parse().expect("arch");
            assert_eq!(lowest_version(arch).map(|v| v.to_string()).as_deref(), lowest, "{arch}");
        }
    }
}
