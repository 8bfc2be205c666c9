//! Names as their author wrote them, for messages, reports and `warplink inspect` alike.

/// What clang puts, with a hash of the unit, behind the name of a static that the host refers to. It is no part of the mangling.
const UNIT_MARKS: [&str; 2] = ["__intern__", "__static__"];

/// A symbol as its author wrote it. A static that clang renamed keeps its hash, in parentheses: two units may each have one of the name.
/// What is no mangled name comes back as it is.
pub fn demangle(symbol: &str) -> String {
    demangled(symbol).unwrap_or_else(|| symbol.to_owned())
}

/// The same; none where it says no more than the symbol does.
pub fn demangled(symbol: &str) -> Option<String> {
    // Anything can be read as a mangled type: `v` would be shown as `void`.
    if !symbol.starts_with("_Z") && !symbol.starts_with("_R") && !symbol.starts_with('?') {
        return None;
    }
    let mark = UNIT_MARKS.iter().filter_map(|mark| symbol.rfind(mark)).max();
    let (mangled, hash) = symbol.split_at_checked(mark.unwrap_or(symbol.len()))?;
    let name = Some(llvm_lto::demangle(mangled)).filter(|name| name != mangled)?;
    Some(if hash.is_empty() { name } else { format!("{name} ({hash})") })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_the_hash_of_a_unit() {
        for (symbol, expected) in [
            ("_Z1kPi", "k(int*)"),
            ("_ZL1kPi__intern__0123abc", "k(int*) (__intern__0123abc)"),
            ("_ZL5table__static__77", "table (__static__77)"),
            ("_ZL5table", "table"),
            ("plain", "plain"),
            ("v", "v"),
            ("_Z", "_Z"),
            ("x__static__77", "x__static__77"),
        ] {
            assert_eq!(demangle(symbol), expected);
        }
        assert_eq!(demangled("plain"), None);
    }
}
