//! Names as their author wrote them, for messages, reports and `warplink inspect` alike.

/// What clang puts, with a hash of the unit, behind the name of a static that the host refers to. It is no part of the mangling.
const UNIT_MARKS: [&str; 2] = ["__intern__", "__static__"];

/// The mangled name that a symbol had before its program was cut into parts.
pub fn before_cut(symbol: &str) -> std::borrow::Cow<'_, str> {
    llvm_lto::name_before_cut(symbol)
}

/// A symbol as its author wrote it. A static that clang renamed keeps its hash, in parentheses: two units may each have one of the name; so
/// does one that LLVM numbered when it merged them. What a symbol got when a program was cut into parts says nothing and goes.
/// What is no mangled name comes back as it is.
pub fn demangle(symbol: &str) -> String {
    demangled(symbol).unwrap_or_else(|| symbol.to_owned())
}

/// The same; none where it says no more than the symbol does.
pub fn demangled(symbol: &str) -> Option<String> {
    let whole = llvm_lto::name_before_cut(symbol);
    in_words(&whole).or_else(|| (whole != symbol).then(|| whole.into_owned()))
}

fn in_words(symbol: &str) -> Option<String> {
    // Anything can be read as a mangled type: `v` would be shown as `void`.
    if !symbol.starts_with("_Z") && !symbol.starts_with("_R") && !symbol.starts_with('?') {
        return None;
    }
    let read = |mangled: &str| Some(llvm_lto::demangle(mangled)).filter(|name| name != mangled);
    let mark = UNIT_MARKS.iter().filter_map(|mark| symbol.rfind(mark)).max();
    let (mangled, hash) = symbol.split_at_checked(mark.unwrap_or(symbol.len()))?;
    match read(mangled) {
        Some(name) if hash.is_empty() => Some(name),
        Some(name) => Some(format!("{name} ({hash})")),
        // `_ZL4hits4`: the second `hits`, and no name of the ABI.
        None => {
            let first = mangled.trim_end_matches(|c: char| c.is_ascii_digit());
            let number = symbol.get(first.len()..).filter(|number| !number.is_empty())?;
            Some(format!("{} ({number})", read(first)?))
        }
    }
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
            ("_ZL4hits__part__7a46aeb6", "hits"),
            ("_ZL1kPi__intern__0123abc__part__7a46aeb6", "k(int*) (__intern__0123abc)"),
            ("__internal_accurate_pow__part__7a46aeb6", "__internal_accurate_pow"),
            ("_ZL4hits_$_7__part__c5fdb9fd", "hits (.7)"),
            ("hist_$_0__part__99007feb", "hist.0"),
            ("hist_$_0__part__99007fec", "hist_$_0"),
            ("table__part__of_mine", "table__part__of_mine"),
            ("_ZL4hits4", "hits (4)"),
            ("_ZL4hits4__part__7a46aeb6", "hits (4)"),
            ("_ZL6helperi3", "helper(int) (3)"),
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
