//! What the names of warnings and errors mean. The texts are those of docs/diagnostics.md, where every name has a section of its own: what
//! a person reads there and what a tool is given are the same words.

use super::WARNINGS;

/// The errors that have names. Those without are one of a kind: their text says it all.
pub const ERRORS: &[&str] = &[
    "bad-option",
    "damaged-input",
    "duplicate-symbol",
    "host-linker-failed",
    "host-linker-not-found",
    "input-changed",
    "internal-error",
    "llvm-fatal",
    "missing-architecture",
    "nvlink-failed",
    "ptxas-failed",
    "ptxas-not-found",
    "toolkit-too-old",
    "undefined-symbol",
    "usage",
];

const PAGE: &str = include_str!("../../../../docs/diagnostics.md");

/// Whether it is the name of a warning, which stands in brackets behind its text.
pub fn is_warning(name: &str) -> bool {
    WARNINGS.iter().any(|(known, _)| *known == name)
}

/// What a warning or error of this name means, why it comes, and what to do: a few sentences of Markdown.
pub fn explanation(name: &str) -> Option<&'static str> {
    sections().find(|(known, _)| *known == name).map(|(_, text)| text)
}

/// The sections of the page that are about a name, in the order of the page.
pub fn sections() -> impl Iterator<Item = (&'static str, &'static str)> {
    PAGE.split("\n### `").skip(1).filter_map(|section| {
        let (name, text) = section.split_once("`\n")?;
        Some((name, text.split("\n## ").next().unwrap_or(text).trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    #[test]
    fn the_page_and_the_code_have_the_same_names() {
        let page: Vec<&str> = sections().map(|(name, _)| name).collect();
        let on_page: BTreeSet<&str> = page.iter().copied().collect();
        assert_eq!(on_page.len(), page.len(), "a name stands twice on the page");
        let in_code: BTreeSet<&str> = WARNINGS.iter().map(|(name, _)| *name).chain(ERRORS.iter().copied()).collect();
        assert_eq!(in_code.difference(&on_page).collect::<Vec<_>>(), Vec::<&&str>::new(), "not in docs/diagnostics.md");
        assert_eq!(on_page.difference(&in_code).collect::<Vec<_>>(), Vec::<&&str>::new(), "in docs/diagnostics.md only");
        for (name, text) in sections() {
            assert!(text.len() > 40 && text.ends_with(['.', ')', '`']), "{name}: {text:?}");
        }
    }

    /// Every name in the sources is one that is known, and every known name is used somewhere.
    #[test]
    fn every_name_is_used() {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let mut sources = String::new();
        let mut pending = vec![root.join("crates/device-link/src"), root.join("tools/warplink/src")];
        while let Some(dir) = pending.pop() {
            for entry in std::fs::read_dir(dir).unwrap() {
                let path = entry.unwrap().path();
                if path.is_dir() {
                    pending.push(path);
                } else if !path.ends_with("diagnostics.rs") && !path.ends_with("catalogue.rs") && !path.ends_with("json.rs") {
                    sources.push_str(&std::fs::read_to_string(path).unwrap());
                }
            }
        }
        let after = |call: &str| -> BTreeSet<String> {
            let calls = sources.split(call).skip(1);
            calls.filter_map(|rest| Some(rest.trim_start().strip_prefix('"')?.split_once('"')?.0.to_owned())).collect()
        };
        let warned = after(".warn(");
        let known: BTreeSet<String> = WARNINGS.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert!(warned.len() > 8, "{warned:?}");
        assert_eq!(warned.difference(&known).collect::<Vec<_>>(), Vec::<&String>::new(), "no such warning");
        assert_eq!(known.difference(&warned).collect::<Vec<_>>(), Vec::<&String>::new(), "never given");
        let named = after(".named(");
        for name in &named {
            assert!(ERRORS.contains(&name.as_str()), "no such error: {name}");
        }
        for name in ERRORS {
            assert!(sources.contains(&format!("\"{name}\"")), "error {name} is never given");
        }
    }
}
