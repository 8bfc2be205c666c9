//! Launch limits given at the link, `--warplink-kernel=PATTERN:maxnreg=128:maxntid=256:minctas=2`: which kernels they are for, and what they
//! say. They matter more than optimisation to some programs, and the source is often somebody else's.

use std::path::Path;

pub use llvm_lto::KernelLimits;

use crate::diagnostics::Diagnostics;
use crate::error::{Error, Result};
use crate::select::LinkJob;

/// Limits for the kernels that a pattern names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KernelSetting {
    /// As given. `*` stands for any text, `?` for one character.
    pub pattern: String,
    /// The limits.
    pub limits: KernelLimits,
}

impl KernelSetting {
    /// Reads `PATTERN:NAME=N,...`. The pattern may hold colons and commas. Settings may be separated by colons, too: commas are clang's in
    /// `-Wl,`.
    ///
    /// # Errors
    /// What is wrong, in words that follow the option.
    pub fn parse(text: &str) -> std::result::Result<KernelSetting, String> {
        let form = || format!("expected PATTERN:maxnreg=N:maxntid=N[xN[xN]]:minctas=N, got '{text}'");
        let mut pattern = text;
        let mut settings = Vec::new();
        while let Some((rest, setting)) = pattern.rsplit_once([':', ',']).filter(|(_, setting)| setting.contains('=')) {
            settings.push(setting);
            pattern = rest;
        }
        settings.reverse();
        let pattern = pattern.trim();
        if pattern.is_empty() || settings.is_empty() {
            return Err(form());
        }
        let number = |value: &str| value.parse::<u32>().ok().filter(|&n| n > 0).ok_or_else(form);
        let mut limits = KernelLimits::default();
        for setting in settings {
            let (name, value) = setting.split_once('=').ok_or_else(form)?;
            let value = value.trim();
            match name.trim() {
                "maxnreg" => limits.registers = Some(number(value)?),
                "minctas" => limits.blocks = Some(number(value)?),
                "maxntid" => {
                    let sizes = value.split('x').map(number).collect::<std::result::Result<Vec<_>, _>>()?;
                    limits.threads = Some(sizes).filter(|sizes| sizes.len() <= 3);
                    limits.threads.as_ref().ok_or_else(form)?;
                }
                _ => return Err(form()),
            }
        }
        Ok(KernelSetting { pattern: pattern.to_owned(), limits })
    }

    /// Reads the settings of a file: one a line, `#` begins a comment.
    ///
    /// # Errors
    /// What is wrong and where, in words that follow the option.
    pub fn read(path: &Path) -> std::result::Result<Vec<KernelSetting>, String> {
        let text = std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
        let lines = text.lines().enumerate().map(|(index, line)| (index + 1, line.split('#').next().unwrap_or_default().trim()));
        lines
            .filter(|(_, line)| !line.is_empty())
            .map(|(number, line)| KernelSetting::parse(line).map_err(|error| format!("{}:{number}: {error}", path.display())))
            .collect()
    }

    /// Whether a kernel is meant: by its mangled name, as it is written in the source, or by that without parameters.
    pub fn names(&self, kernel: &str) -> bool {
        let shown = llvm_lto::demangle(kernel);
        matches(&self.pattern, kernel) || matches(&self.pattern, &shown) || matches(&self.pattern, plain(&shown))
    }
}

/// A demangled name without result, template arguments and parameters: `void ns::k<int>(float*)` is `ns::k`.
pub fn plain(shown: &str) -> &str {
    let mut depth = 0usize;
    let mut start = 0;
    for (index, c) in shown.char_indices() {
        match c {
            '<' | '('
                if depth == 0 && index > start && !shown.get(index..).is_some_and(|rest| rest.starts_with("(anonymous namespace)")) =>
            {
                return shown.get(start..index).unwrap_or_default();
            }
            '<' | '(' => depth += 1,
            '>' | ')' => depth = depth.saturating_sub(1),
            ' ' if depth == 0 => start = index + 1,
            _ => {}
        }
    }
    shown.get(start..).unwrap_or_default()
}

/// Whether all of a text fits a pattern.
fn matches(pattern: &str, text: &str) -> bool {
    let (pattern, text) = (pattern.as_bytes(), text.as_bytes());
    let (mut p, mut t) = (0, 0);
    let mut retry = None;
    while t < text.len() {
        match pattern.get(p) {
            Some(b'*') => {
                retry = Some((p, t));
                p += 1;
            }
            Some(&c) if c == b'?' || Some(&c) == text.get(t) => {
                p += 1;
                t += 1;
            }
            _ => {
                let Some((star, from)) = retry else { return false };
                retry = Some((star, from + 1));
                p = star + 1;
                t = from + 1;
            }
        }
    }
    pattern.get(p..).is_some_and(|rest| rest.iter().all(|&c| c == b'*'))
}

/// Gives the kernels of a merged job their limits; of several settings for one kernel, each later one wins in what it says.
pub fn apply(job: &mut LinkJob, settings: &[KernelSetting], diagnostics: &Diagnostics) -> Result<()> {
    if settings.is_empty() {
        return Ok(());
    }
    let arch = job.arch;
    let named = |error: llvm_lto::Error| Error::new(format!("{arch}: {error}"));
    let session = job.session.get_mut();
    let kernels = session.kernels().map_err(named)?;
    for setting in settings {
        let meant: Vec<&String> = kernels.iter().filter(|kernel| setting.names(kernel)).collect();
        if meant.is_empty() {
            diagnostics.warn("unused-option", &format!("--warplink-kernel={}: no kernel of {arch} has such a name", setting.pattern));
        }
        for kernel in meant {
            session.limit_kernel(kernel, &setting.limits).map_err(named)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_are_read() {
        let setting = KernelSetting::parse("ns::k*:maxnreg=128,maxntid=16x8,minctas=2").unwrap();
        assert_eq!(setting.pattern, "ns::k*");
        assert_eq!(setting.limits, KernelLimits { registers: Some(128), threads: Some(vec![16, 8]), blocks: Some(2) });
        let other = KernelSetting::parse("void ns::k<int, 3>(float*):maxnreg=128:minctas=2").unwrap();
        assert_eq!((other.pattern.as_str(), other.limits.blocks), ("void ns::k<int, 3>(float*)", Some(2)));
        for bad in [
            "",
            "k",
            "k:",
            ":maxnreg=1",
            "k:maxnreg",
            "k:maxnreg=0",
            "k:maxnreg=x",
            "k:maxntid=1x2x3x4",
            "k:regs=3",
            "k:maxnreg=1,",
            "k:maxnreg=",
            "ns::k",
        ] {
            let error = KernelSetting::parse(bad).unwrap_err();
            assert!(error.contains("maxnreg=N") && error.ends_with(&format!("'{bad}'")), "{error}");
        }
    }

    #[test]
    fn files_hold_one_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("kernels");
        std::fs::write(&path, "# tuned\n\nk: maxnreg=32 # why\n_Z1jPf:minctas=4\n").unwrap();
        let settings = KernelSetting::read(&path).unwrap();
        assert_eq!(settings.iter().map(|s| s.pattern.as_str()).collect::<Vec<_>>(), ["k", "_Z1jPf"]);
        std::fs::write(&path, "k:maxnreg=32\nk:no=3\n").unwrap();
        assert!(KernelSetting::read(&path).unwrap_err().contains("kernels:2: expected"));
        assert!(KernelSetting::read(&dir.path().join("none")).unwrap_err().contains("none: No such file"));
    }

    #[test]
    fn kernels_are_meant_by_each_of_their_names() {
        let names =
            |pattern: &str, kernel: &str| KernelSetting { pattern: pattern.to_owned(), limits: KernelLimits::default() }.names(kernel);
        let template = "_ZN2ns1kIiEEvPT_";
        for (pattern, expected) in [
            ("ns::k", true),
            ("ns::*", true),
            ("void ns::k<int>(int*)", true),
            (template, true),
            ("*", true),
            ("k", false),
            ("ns", false),
            ("", false),
        ] {
            assert_eq!(names(pattern, template), expected, "{pattern}");
        }
        assert!(names("k", "_Z1kPf") && names("?", "_Z1kPf") && !names("?", "_Z2kkPf"));
        assert!(names("(anonymous namespace)::k", "_ZN12_GLOBAL__N_11kEPf"));
        assert!(names("plain", "plain"));
    }

    #[test]
    fn patterns() {
        for (pattern, text, expected) in [
            ("a*c", "abbc", true),
            ("a*c", "abcd", false),
            ("*a*b*", "xxaxxbxx", true),
            ("**", "", true),
            ("a?", "a", false),
            ("a*a*a", "aaaa", true),
            ("a*b", "aab", true),
        ] {
            assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
        }
    }
}
