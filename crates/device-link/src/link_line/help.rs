//! The help on link lines: the options of [`OWN_OPTIONS`] and, as the wrapper, those of the wrapper, in groups. The texts come from the
//! tables that are parsed with, so an option that exists is listed; the manual page is made of the same groups.

use super::own::{OWN_OPTIONS, variable};
use super::table::{Dashes, Row, Spelling, WRAPPER_ROWS};
use crate::options::Invocation;

/// What a group holds, and which of our options belong to it, in this order. An option that no group names is in [`OTHERS`].
const GROUPS: &[(&str, &[&str])] = &[
    ("Device code", &["ptx", "opt-level", "ptxas", "ptxas-mode", "compress", "compression-level", "launch-guard"]),
    ("Tools", &["cuda-path", "ptxas-path", "linker"]),
    ("Speed", &["jobs", "max-memory", "partitions", "cache-dir", "cache-size", "no-cache"]),
    ("Messages", &["warn", "diagnostics", "color", "progress", "verbose"]),
    ("See what it does", &["report", "stats", "time-trace", "dry-run", "save-temps", "repro"]),
];

/// The group of options that [`GROUPS`] does not name.
const OTHERS: &str = "More options";

/// The column at which the texts begin; a longer option has its text on a line of its own.
const COLUMN: usize = 42;

/// One option, as help texts show it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelpLine {
    /// With dashes and the name of its value.
    pub option: String,
    /// What it does.
    pub text: &'static str,
    /// The environment variable that sets it too, for our own options.
    pub variable: Option<String>,
}

/// Options that belong together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HelpGroup {
    /// A heading without a colon.
    pub title: &'static str,
    /// In the order in which they are to be shown; never empty.
    pub lines: Vec<HelpLine>,
}

/// Every option that a person may give under this name, in groups. `hidden` adds what users do not need.
pub fn groups(invoked_as: &Invocation, hidden: bool) -> Vec<HelpGroup> {
    let mut groups: Vec<HelpGroup> = GROUPS.iter().map(|(title, names)| HelpGroup { title, lines: own_lines(names) }).collect();
    let named = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let others: Vec<_> = OWN_OPTIONS.iter().map(|option| option.name).filter(|name| !named(name)).collect();
    groups.push(HelpGroup { title: OTHERS, lines: own_lines(&others) });
    let title = if *invoked_as == Invocation::Wrapper {
        "As LLVM's clang-linker-wrapper"
    } else {
        "As LLVM's clang-linker-wrapper, under any name"
    };
    groups.push(HelpGroup { title, lines: wrapper_lines(invoked_as, hidden) });
    groups.retain(|group| !group.lines.is_empty());
    groups
}

fn own_lines(names: &[&str]) -> Vec<HelpLine> {
    let options = names.iter().filter_map(|name| OWN_OPTIONS.iter().find(|option| option.name == *name));
    options
        .map(|option| {
            let equals = if option.value.is_empty() { "" } else { "=" };
            HelpLine {
                option: format!("--warplink-{}{equals}{}", option.name, option.value),
                text: option.help,
                variable: Some(variable(option.name)),
            }
        })
        .collect()
}

fn wrapper_lines(invoked_as: &Invocation, hidden: bool) -> Vec<HelpLine> {
    let shown = |row: &&Row| {
        let ours = *invoked_as == Invocation::Wrapper || is_always_ours(row);
        ours && !row.help.1.is_empty() && (hidden || row.name != "offload-opt=")
    };
    let line = |row: &Row| {
        let dashes = if row.dashes == Dashes::One { "-" } else { "--" };
        let space = if row.spelling == Spelling::Separate { " " } else { "" };
        HelpLine { option: format!("{dashes}{}{space}{}", row.name, row.help.0), text: row.help.1, variable: None }
    };
    WRAPPER_ROWS.iter().filter(shown).map(line).collect()
}

/// Whether an option of the wrapper is ours under every name: no linker will ever own what starts so.
pub(super) fn is_always_ours(row: &Row) -> bool {
    row.name.starts_with("wrapper-") || row.name.starts_with("device-")
}

/// The help on our own options and, as the wrapper, on the wrapper's. `hidden` adds what users do not need.
pub fn help_text(invoked_as: &Invocation, hidden: bool) -> String {
    let mut text = String::from(match invoked_as {
        Invocation::Wrapper => "Usage: clang++ -B\"$(warplink bin-dir)\" --offload-link -Wl,OPTION... FILE... -o OUTPUT\n",
        Invocation::Linker(_) => "Options of warplink; all others are the host linker's, whose own help comes after these.\n",
    });
    for group in groups(invoked_as, hidden) {
        text.push_str(&format!("\n{}:\n", group.title));
        for line in group.lines {
            let gap = COLUMN.checked_sub(line.option.len() + 2).filter(|gap| *gap >= 2);
            let gap = gap.map_or_else(|| format!("\n{}", " ".repeat(COLUMN)), |gap| " ".repeat(gap));
            text.push_str(&format!("  {}{gap}{}\n", line.option, line.text));
        }
    }
    text.push_str(
        "\nEvery --warplink-NAME=VALUE is an environment variable WARPLINK_NAME too (dashes as underscores); the line wins.\n\
         All other options go to the host linker as they are.\n",
    );
    if *invoked_as == Invocation::Wrapper {
        text.push_str(
            "\nExamples:\n  \
               clang++ -B\"$(warplink bin-dir)\" --offload-link a.o b.o -lcudart_static -ldl -lpthread -lrt -o app\n  \
               clang++ -B\"$(warplink bin-dir)\" --offload-link -Wl,--warplink-ptx=all a.o b.o ... -o app\n  \
               WARPLINK_VERBOSE=1 make\n",
        );
    }
    text
}
