//! GPU architectures: their names, and which code runs on which GPU.

use crate::{Error, Result};
use std::fmt;
use std::str::FromStr;

/// A GPU architecture such as `sm_90a`.
///
/// The order is by number, then plain, `a`, `f`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Arch {
    /// The compute capability without its dot: 75, 90, 120.
    pub sm: u32,
    /// What follows the number.
    pub suffix: Option<Suffix>,
}

/// The letter that restricts code to some GPUs in return for more instructions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Suffix {
    /// `a`: for this very architecture.
    ArchSpecific,
    /// `f`: for this architecture and the later ones of the same family.
    Family,
}

impl Suffix {
    fn letter(self) -> &'static str {
        match self {
            Suffix::ArchSpecific => "a",
            Suffix::Family => "f",
        }
    }
}

impl Arch {
    /// The architecture with this number and no suffix.
    pub const fn new(sm: u32) -> Self {
        Arch { sm, suffix: None }
    }

    /// The number before the dot of the compute capability.
    pub fn major(self) -> u32 {
        self.sm / 10
    }

    /// The number behind the dot of the compute capability.
    pub fn minor(self) -> u32 {
        self.sm % 10
    }

    /// The compute capability as NVIDIA writes it, with the suffix: `9.0a`.
    pub fn compute_capability(self) -> String {
        let suffix = self.suffix.map_or("", Suffix::letter);
        format!("{}.{}{suffix}", self.major(), self.minor())
    }

    /// The name of the virtual architecture: `compute_90a`.
    pub fn compute_name(self) -> String {
        let suffix = self.suffix.map_or("", Suffix::letter);
        format!("compute_{}{suffix}", self.sm)
    }

    /// Whether a cubin for this architecture runs on `gpu`, whose suffix does not count.
    ///
    /// From the CUDA programming guide: the same major number and no smaller minor number; `a` on
    /// the very same architecture only; `f` on the family, which so far is the major number too.
    /// Between Tegra and desktop there is no binary compatibility: Orin (8.7) does not run code for
    /// `sm_80`.
    pub fn cubin_runs_on(self, gpu: Arch) -> bool {
        match self.suffix {
            _ if self.is_tegra() || gpu.is_tegra() => gpu.sm == self.sm,
            Some(Suffix::ArchSpecific) => gpu.sm == self.sm,
            None | Some(Suffix::Family) => gpu.major() == self.major() && gpu.minor() >= self.minor(),
        }
    }

    /// Whether it is that of a Tegra chip which shares its major number with desktop GPUs: the
    /// Jetsons TX1, TX2, Xavier, Orin, and Thor as CUDA 12 numbers it.
    fn is_tegra(self) -> bool {
        matches!(self.sm, 53 | 62 | 72 | 87 | 101)
    }

    /// Whether the driver can compile PTX for this architecture on `gpu`, whose suffix does not
    /// count: on every later one; with `a` on the very same, with `f` on the family.
    pub fn ptx_runs_on(self, gpu: Arch) -> bool {
        match self.suffix {
            None => gpu.sm >= self.sm,
            Some(Suffix::ArchSpecific) => gpu.sm == self.sm,
            Some(Suffix::Family) => gpu.sm >= self.sm && gpu.major() == self.major(),
        }
    }
}

impl fmt::Display for Arch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "sm_{}{}", self.sm, self.suffix.map_or("", Suffix::letter))
    }
}

impl FromStr for Arch {
    type Err = Error;

    /// Reads `sm_90a`, `compute_90a`, `lto_90a`, `90a` and `9.0a`.
    fn from_str(text: &str) -> Result<Self> {
        let bad = || Error::new(format!("'{text}' is not a gpu architecture such as sm_90a"));
        let name = ["sm_", "compute_", "lto_"].iter().find_map(|prefix| text.strip_prefix(prefix)).unwrap_or(text);
        let (number, suffix) = if let Some(number) = name.strip_suffix('a') {
            (number, Some(Suffix::ArchSpecific))
        } else if let Some(number) = name.strip_suffix('f') {
            (number, Some(Suffix::Family))
        } else {
            (name, None)
        };
        // Only the bare form can have the dot, and then one digit behind it.
        let digits = match number.split_once('.') {
            Some((major, minor)) if name.len() == text.len() && minor.len() == 1 => {
                format!("{major}{minor}")
            }
            Some(_) => return Err(bad()),
            None => number.to_owned(),
        };
        if !digits.bytes().all(|b| b.is_ascii_digit()) || digits.starts_with('0') {
            return Err(bad());
        }
        match digits.parse() {
            Ok(sm @ 10..=999) => Ok(Arch { sm, suffix }),
            _ => Err(bad()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arch(text: &str) -> Arch {
        text.parse().expect(text)
    }

    #[test]
    fn reads_every_spelling() {
        for (text, name) in [
            ("sm_90a", "sm_90a"),
            ("compute_90", "sm_90"),
            ("lto_86", "sm_86"),
            ("90a", "sm_90a"),
            ("9.0", "sm_90"),
            ("9.0a", "sm_90a"),
            ("12.0f", "sm_120f"),
            ("12.1", "sm_121"),
            ("sm_120f", "sm_120f"),
            ("75", "sm_75"),
        ] {
            assert_eq!(arch(text).to_string(), name);
        }
        assert_eq!(arch("10.3f").compute_capability(), "10.3f");
        assert_eq!(arch("90a").compute_name(), "compute_90a");
    }

    #[test]
    fn refuses_what_is_none() {
        for text in [
            "",
            "sm_",
            "sm_a",
            "9",
            "090",
            "sm_9.0",
            "9.",
            ".9",
            "9.00",
            "sm_90b",
            "sm_90aa",
            "SM_90",
            "sm_ 90",
            "+90",
            "sm_-90",
            "1000",
            "99999999999",
            "9.0.1",
            "gfx90a",
            "sm_90 ",
            "sm_٩٠",
        ] {
            assert!(text.parse::<Arch>().is_err(), "{text:?}");
        }
    }

    #[test]
    fn orders_by_number_then_suffix() {
        let names = ["sm_75", "sm_90", "sm_90a", "sm_100", "sm_100a", "sm_100f", "sm_120"];
        let mut sorted: Vec<Arch> = names.iter().rev().map(|n| arch(n)).collect();
        sorted.sort();
        assert_eq!(sorted.iter().map(Arch::to_string).collect::<Vec<_>>(), names);
    }

    #[test]
    fn cubins_run_within_their_major_number() {
        for (code, gpu, runs) in [
            ("80", "80", true),
            ("80", "86", true),
            ("80", "89", true),
            ("80", "87", false),
            ("87", "87", true),
            ("87", "89", false),
            ("70", "72", false),
            ("100f", "101", false),
            ("86", "80", false),
            ("80", "90", false),
            ("90", "90", true),
            ("90a", "90", true),
            ("100a", "103", false),
            ("100a", "100", true),
            ("100f", "103", true),
            ("103f", "100", false),
            ("100", "103", true),
            ("100f", "120", false),
            ("120f", "121", true),
            ("75", "80", false),
        ] {
            assert_eq!(arch(code).cubin_runs_on(arch(gpu)), runs, "{code} on {gpu}");
        }
    }

    #[test]
    fn ptx_runs_on_later_gpus() {
        for (code, gpu, runs) in [
            ("80", "80", true),
            ("80", "121", true),
            ("80", "87", true),
            ("100f", "101", true),
            ("90", "89", false),
            ("90a", "90", true),
            ("90a", "100", false),
            ("100f", "103", true),
            ("100f", "110", false),
        ] {
            assert_eq!(arch(code).ptx_runs_on(arch(gpu)), runs, "{code} on {gpu}");
        }
    }
}
