//! Whether PTX is embedded for an architecture. Three carriers record the choice, strongest first: the link line (or `WARPLINK_PTX`), the
//! image's metadata (key `ptx`), and the compile command that `-frecord-command-line` left in the bitcode. Objects that say nothing have
//! no say; where nobody says anything there is no PTX.

use fatbin::{Arch, Suffix};

use crate::diagnostics::Diagnostics;
use crate::options::PtxChoice;

/// What one object says for one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// The object, as messages call it.
    pub origin: String,
    /// Its choice, if it recorded one.
    pub wants: Option<bool>,
}

/// What `all`, `none` or a list of architectures says for one of them. Lists name architectures in any of their usual spellings.
pub fn metadata_wants(value: &str, arch: Arch) -> bool {
    value.split([',', ';', ' ']).map(str::trim).any(|word| word.eq_ignore_ascii_case("all") || word.parse() == Ok(arch))
}

/// What a compile command says for one architecture: the last `--[no-]cuda-include-ptx=` that names it or all counts, as for clang.
pub fn command_wants(words: &[String], arch: Arch) -> Option<bool> {
    let mut wants = None;
    for word in words {
        let word = word.strip_prefix("--").or_else(|| word.strip_prefix('-')).unwrap_or_default();
        let (value, yes) = match (word.strip_prefix("cuda-include-ptx="), word.strip_prefix("no-cuda-include-ptx=")) {
            (Some(value), _) => (value, true),
            (_, Some(value)) => (value, false),
            _ => continue,
        };
        if metadata_wants(value, arch) {
            wants = Some(yes);
        }
    }
    wants
}

/// Splits a recorded command line at spaces; clang writes a backslash before a space or backslash that belongs to a word.
pub fn split_command(line: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut chars = line.chars();
    while let Some(c) = chars.next() {
        match (c, words.last_mut()) {
            (' ', _) => words.push(String::new()),
            ('\\', Some(word)) => word.extend(chars.next()),
            (c, Some(word)) => word.push(c),
            (_, None) => {}
        }
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The choice for one architecture; says what it had to overrule.
pub fn decide(arch: Arch, line: Option<&PtxChoice>, recorded: &[Recorded], diagnostics: &Diagnostics) -> bool {
    let wants = match line {
        Some(PtxChoice::All) => true,
        Some(PtxChoice::None) => false,
        Some(PtxChoice::Archs(archs)) => archs.iter().any(|name| name.parse() == Ok(arch)),
        None => {
            let yes = recorded.iter().find(|r| r.wants == Some(true));
            let no = recorded.iter().find(|r| r.wants == Some(false));
            if let (Some(yes), Some(no)) = (yes, no) {
                diagnostics.warn(
                    "ptx-conflict",
                    &format!(
                        "{}: asks for PTX of {arch}, {} asks for none; no PTX of {arch} is embedded (--warplink-ptx= on the link line decides)",
                        yes.origin, no.origin
                    ),
                );
                return false;
            }
            yes.is_some()
        }
    };
    if wants && arch.suffix == Some(Suffix::ArchSpecific) {
        diagnostics.warn(
            "ptx-arch-specific",
            &format!("PTX of {arch} is not embedded: it can be compiled for no other GPU than the one that the cubin is for"),
        );
        return false;
    }
    wants
}

/// Warns of architectures that the link line asks PTX of and the link has no code for.
pub fn warn_of_unknown(line: Option<&PtxChoice>, archs: &[(String, Arch)], diagnostics: &Diagnostics) {
    let Some(PtxChoice::Archs(names)) = line else { return };
    for name in names.iter().filter(|name| !archs.iter().any(|(_, arch)| name.parse() == Ok(*arch))) {
        let there: Vec<String> = archs.iter().map(|(_, arch)| arch.to_string()).collect();
        diagnostics.warn(
            "unused-option",
            &format!(
                "--warplink-ptx={name}: the link has no code for {name}, so there is no PTX of it; it has code for {}",
                there.join(", ")
            ),
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arch(name: &str) -> Arch {
        name.parse().unwrap()
    }

    #[test]
    fn metadata_names_architectures_in_any_spelling() {
        for (value, expected) in [
            ("all", true),
            ("ALL", true),
            ("none", false),
            ("", false),
            ("sm_90", true),
            ("90", true),
            ("compute_90", true),
            ("9.0", true),
            ("sm_80,sm_90", true),
            ("sm_80, sm_89", false),
            ("sm_90a", false),
        ] {
            assert_eq!(metadata_wants(value, arch("sm_90")), expected, "{value}");
        }
    }

    #[test]
    fn the_last_word_of_a_command_counts() {
        for (line, expected) in [
            ("clang -c a.cu", None),
            ("clang --cuda-include-ptx=all a.cu", Some(true)),
            ("clang --cuda-include-ptx=sm_80 a.cu", None),
            ("clang --cuda-include-ptx=all --no-cuda-include-ptx=sm_90", Some(false)),
            ("clang --no-cuda-include-ptx=all --cuda-include-ptx=sm_90", Some(true)),
            ("clang -no-cuda-include-ptx=all", Some(false)),
            ("clang --no-cuda-include-ptx=sm_80 --offload-arch=sm_90", None),
        ] {
            assert_eq!(command_wants(&split_command(line), arch("sm_90")), expected, "{line}");
        }
    }

    #[test]
    fn recorded_commands_split_at_bare_spaces() {
        assert_eq!(split_command(r"clang -c a\ b.cu  -DX=\\n"), ["clang", "-c", "a b.cu", r"-DX=\n"]);
    }
}
