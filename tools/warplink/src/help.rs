//! `warplink --help`: the commands in groups, a line each, and examples. What each command does is said where it is declared, in
//! [`crate::cli`]; a command that no group names is listed all the same.

use std::fmt::Write as _;

use clap::Command;

/// What the commands of a group are for, and their names in the order in which they are shown.
const GROUPS: &[(&str, &[&str])] = &[
    ("Build with it", &["bin-dir", "options", "annotate", "cache", "doctor"]),
    ("Look at results", &["inspect", "tune", "explain", "repro"]),
    ("Set up the shell", &["completions", "man"]),
];

/// The heading for commands that [`GROUPS`] does not name.
const OTHERS: &str = "More commands";

/// Examples, the commonest first: what one wants, and the line that does it.
pub(crate) const EXAMPLES: &[(&str, &str)] = &[
    ("compile for two architectures", "clang++ -B\"$(warplink bin-dir)\" -fgpu-rdc -foffload-lto --offload-arch=sm_80,sm_90 -c a.cu b.cu"),
    ("link", "clang++ -B\"$(warplink bin-dir)\" --offload-link a.o b.o -L/usr/local/cuda/lib64 -lcudart_static -ldl -lpthread -lrt -o app"),
    ("have PTX for later GPUs in it", "clang++ -B\"$(warplink bin-dir)\" --offload-link -Wl,--warplink-ptx=sm_90 a.o b.o ... -o app"),
    ("see what is in it, and whether it runs on a GPU", "warplink inspect --gpu sm_86 app"),
];

/// The text of `warplink --help`.
pub(crate) fn text(command: &Command) -> String {
    let mut text = String::new();
    if let Some(about) = command.get_about() {
        let _ = writeln!(text, "{about}.");
    }
    text.push_str("\nUsage: warplink COMMAND [ARGUMENT]...\n       clang++ -B\"$(warplink bin-dir)\" --offload-link FILE... -o OUTPUT\n");
    for (title, commands) in groups(command) {
        let _ = writeln!(text, "\n{title}:");
        for command in commands {
            let about = command.get_about().map(ToString::to_string).unwrap_or_default();
            let _ = writeln!(text, "  {:<13} {about}", command.get_name());
        }
    }
    text.push_str("\nExamples:\n");
    for (what, line) in EXAMPLES {
        let _ = writeln!(text, "  # {what}\n  {line}");
    }
    text.push_str(
        "\n`warplink COMMAND --help` tells more about a command, `warplink options` about link lines. `warplink --version` prints the\n\
         version. A first word that is no command begins a link line: warplink can be named as the linker.\n",
    );
    text
}

/// The commands that a person may see, in groups, none of which is empty.
pub(crate) fn groups(command: &Command) -> Vec<(&'static str, Vec<&Command>)> {
    let named = |name: &str| GROUPS.iter().any(|(_, names)| names.contains(&name));
    let mut groups: Vec<(&str, Vec<&Command>)> =
        GROUPS.iter().map(|(title, names)| (*title, names.iter().filter_map(|name| command.find_subcommand(name)).collect())).collect();
    groups.push((OTHERS, command.get_subcommands().filter(|command| !named(command.get_name()) && command.get_name() != "help").collect()));
    for (_, commands) in &mut groups {
        commands.retain(|command| !command.is_hide_set());
    }
    groups.retain(|(_, commands)| !commands.is_empty());
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_is_listed_once() {
        let command = Command::new("warplink")
            .about("About it")
            .subcommand(Command::new("inspect").about("Looks"))
            .subcommand(Command::new("brand-new").about("Is in no group"))
            .subcommand(Command::new("secret").hide(true))
            .subcommand(Command::new("bin-dir").about("Prints"));
        let text = text(&command);
        assert!(text.starts_with("About it.\n"), "{text}");
        assert!(text.contains("Build with it:\n  bin-dir       Prints\n\nLook at results:\n  inspect       Looks\n"), "{text}");
        assert!(text.contains("More commands:\n  brand-new     Is in no group\n"), "{text}");
        assert!(!text.contains("secret") && !text.contains("Set up the shell"), "{text}");
    }
}
