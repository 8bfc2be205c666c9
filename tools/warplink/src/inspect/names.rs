//! Names that fit a column: demangled C++ names run to hundreds of characters, and what tells two of them apart is rarely at the end.
//!
//! What is left out first is what says least: the hash of a static, the `void` of a kernel, then the arguments of templates from the innermost outwards, then the
//! function's parameters; only then the middle of what is left. A cut is always shown as `...`.

const CUT: &str = "...";

/// `name` in at most `width` characters, which are taken to be one column wide each.
pub(crate) fn shorten(name: &str, width: usize) -> String {
    let fits = |text: &str| text.chars().count() <= width;
    if fits(name) {
        return name.to_owned();
    }
    let mut text = name.to_owned();
    if let Some(at) = text.find(" (__intern__").or_else(|| text.find(" (__static__")) {
        text.replace_range(at.., " (static)");
        if fits(&text) {
            return text;
        }
    }
    // Every kernel returns nothing, and only templates say so.
    if let Some(rest) = text.strip_prefix("void ") {
        text = rest.to_owned();
        if fits(&text) {
            return text;
        }
    }
    let deepest = brackets(&text).iter().map(|bracket| bracket.depth).max().unwrap_or(0);
    for depth in (2..=deepest).rev() {
        text = collapse(&text, |bracket| bracket.depth == depth && bracket.open == b'<');
        if fits(&text) {
            return text;
        }
    }
    // The parameters often repeat what the template arguments say; these are what tells instances of one kernel apart.
    let text = collapse(&text, |bracket| bracket.depth == 1 && bracket.open == b'(');
    if fits(&text) {
        return text;
    }
    middle(&text, width)
}

/// The text without its middle. The beginning gets the larger part: it holds the namespaces by which code is known.
fn middle(text: &str, width: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    let keep = width.saturating_sub(CUT.len());
    let head = (keep * 3).div_ceil(5);
    let tail = keep - head;
    let mut short: String = chars.iter().take(head).collect();
    short.push_str(CUT);
    short.extend(chars.iter().skip(chars.len().saturating_sub(tail)));
    short
}

/// A pair of brackets in a name: the byte offsets of both, and how deep it lies, from 1.
#[derive(Debug, Clone, Copy)]
struct Bracket {
    open: u8,
    start: usize,
    end: usize,
    depth: usize,
}

/// The brackets of a name. Operators such as `operator<` have none; what does not match is passed over.
fn brackets(name: &str) -> Vec<Bracket> {
    let bytes = name.as_bytes();
    let mut open: Vec<(u8, usize)> = Vec::new();
    let mut found = Vec::new();
    for (at, &byte) in bytes.iter().enumerate() {
        let after_operator = bytes.get(..at).is_some_and(|before| {
            let word = before.trim_ascii_end();
            let word = word.strip_suffix(b"<").or_else(|| word.strip_suffix(b">")).or_else(|| word.strip_suffix(b"-")).unwrap_or(word);
            word.ends_with(b"operator")
        });
        match byte {
            b'<' if !after_operator => open.push((byte, at)),
            b'(' => open.push((byte, at)),
            b'>' | b')' if !after_operator || byte == b')' => {
                let expected = if byte == b'>' { b'<' } else { b'(' };
                if open.last().is_some_and(|(kind, _)| *kind == expected)
                    && let Some((kind, start)) = open.pop()
                {
                    found.push(Bracket { open: kind, start, end: at, depth: open.len() + 1 });
                }
            }
            _ => {}
        }
    }
    found
}

/// Puts `...` in the place of what the chosen brackets hold, where that makes the name shorter.
fn collapse(name: &str, chosen: impl Fn(&Bracket) -> bool) -> String {
    let mut text = name.to_owned();
    let mut ranges: Vec<_> = brackets(name)
        .into_iter()
        .filter(|bracket| chosen(bracket) && bracket.end - bracket.start > CUT.len() + 1)
        .map(|bracket| bracket.start + 1..bracket.end)
        .collect();
    // From the end on, so that the offsets before stay true.
    ranges.sort_by_key(|range| std::cmp::Reverse(range.start));
    for range in ranges {
        // These say what they are.
        if !matches!(name.get(range.clone()), Some("anonymous namespace" | "static")) {
            text.replace_range(range, CUT);
        }
    }
    text
}

/// `text` in lines of at most `width` characters, broken at blanks; a word that is longer stays whole.
pub(crate) fn wrap(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split(' ') {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_telling_parts_go_first() {
        for (name, width, expected) in [
            ("ns::k(int*)", 40, "ns::k(int*)"),
            ("heat::fill(double*, int) (__intern__4b806bdc438b51f4)", 40, "heat::fill(double*, int) (static)"),
            ("heat::fill(double*, int) (__intern__4b806bdc438b51f4)", 26, "heat::fill(...) (static)"),
            (
                "void cub::kernel<cub::policy<int, cub::less<int>>, float>(float*, int)",
                60,
                "cub::kernel<cub::policy<...>, float>(float*, int)",
            ),
            (
                "void cub::kernel<cub::policy<int, cub::less<int>>, float>(float*, int)",
                50,
                "cub::kernel<cub::policy<...>, float>(float*, int)",
            ),
            ("void cub::kernel<cub::policy<int, cub::less<int>>, float>(float*, int)", 44, "cub::kernel<cub::policy<...>, float>(...)"),
            ("void reduce<Magnitude, Max>(Magnitude, Max, int, double*)", 40, "reduce<Magnitude, Max>(...)"),
            ("void reduce<Magnitude, Max>(Magnitude, Max, int, double*)", 24, "reduce<Magnit...ax>(...)"),
            ("(anonymous namespace)::kernel(int, int, int, int)", 40, "(anonymous namespace)::kernel(...)"),
            ("a_very_long_name_without_any_brackets_at_all", 20, "a_very_long...at_all"),
            ("bool operator< <int, int, int>(pair const&, pair const&)", 36, "bool operator< <int, int, int>(...)"),
            ("x", 0, "..."),
        ] {
            let short = shorten(name, width);
            assert_eq!(short, expected);
            assert!(short.chars().count() <= width.max(3), "{short}");
        }
    }

    #[test]
    fn any_name_is_survived() {
        for name in ["<<<<", ">>>>", "a<b(c>d)", "ü<ü<ü>>(ü)", "operator>>(a<b>)", "", "operator()(int)", "a->b"] {
            for width in 0..8 {
                assert!(shorten(name, width).chars().count() <= width.max(3), "{name} {width}");
            }
        }
    }

    #[test]
    fn lines_break_at_blanks() {
        assert_eq!(wrap("one two three four", 9), ["one two", "three", "four"]);
        assert_eq!(wrap("incomprehensibilities are long", 9), ["incomprehensibilities", "are long"]);
        assert_eq!(wrap("", 9), [""]);
    }
}
