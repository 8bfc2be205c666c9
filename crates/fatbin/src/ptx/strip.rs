//! PTX text without comments, as fat binaries hold it.

use super::{comment_len, is_word, string_len};

/// Drops comments and redundant blanks as `fatbinary` 13.0 does: line numbers stay true but for
/// block comments. Only where nothing but a comment parts two words a blank takes its place;
/// `fatbinary` makes one word of them, which no driver can compile.
pub(crate) fn strip(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    // Of the input, not the output: a blank behind a comment stays.
    let mut previous = 0;
    while let [byte, ..] = *rest {
        let comment = rest.starts_with(b"//") || rest.starts_with(b"/*");
        let len = match byte {
            b'/' if comment => comment_len(rest),
            b'"' => string_len(rest),
            _ => 1,
        };
        let (taken, after) = rest.split_at(len.min(rest.len()));
        // The white space of C: a vertical tab counts.
        let after_space = matches!(previous, b' ' | b'\t'..=b'\r');
        let redundant = matches!(byte, b' ' | b'\t') && after_space;
        if !comment && !redundant {
            out.extend(taken);
        }
        let parts_words = comment && out.last().is_some_and(|&byte| is_word(byte)) && after.first().is_some_and(|&byte| is_word(byte));
        if parts_words {
            out.push(b' ');
        }
        previous = byte;
        rest = after;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strips_like_fatbinary() {
        for (text, stripped) in [
            ("a  b\tc", "a b\tc"),
            ("\n  \t a", "\na"),
            ("  a", " a"),
            ("a // b\nc", "a \nc"),
            ("a // b", "a "),
            ("a /* b\n */ c", "a  c"),
            ("a /* open", "a "),
            ("\"a  // b\\\"  c\"  d", "\"a  // b\\\"  c\" d"),
            ("a / b", "a / b"),
            ("\"open  ", "\"open  "),
            ("\r\n  a", "\r\na"),
            ("a // b\r  c \r d", "a \rc \rd"),
            ("a\u{b}  b\u{c} c", "a\u{b}b\u{c}c"),
            ("a \u{a0} b", "a \u{a0} b"),
            // Here fatbinary writes `.targetsm_75`.
            (".target/* */sm_75", ".target sm_75"),
            ("a/* b *//* c */d/**/;", "a d;"),
        ] {
            assert_eq!(String::from_utf8_lossy(&strip(text.as_bytes())), stripped, "{text:?}");
        }
    }
}
