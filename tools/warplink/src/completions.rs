//! `warplink completions SHELL`: what a shell offers after `warplink`: the commands with their options, and the options of link lines. All of
//! it comes from the tables that are parsed with.

use clap::builder::PossibleValuesParser;
use clap::{Arg, ArgAction, ValueEnum, ValueHint};
use device_link::link_line::{OWN_OPTIONS, OwnOption};

/// Arguments of `warplink completions`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// The shell that the completions are for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

/// The shells that we have completions for.
#[derive(Debug, Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// The script to be sourced.
pub(crate) fn script(args: &Args) -> String {
    let command = crate::cli::command();
    // Some of them are the commands' as well.
    let known: Vec<String> = command.get_arguments().filter_map(|arg| arg.get_long().map(str::to_owned)).collect();
    let of_links = OWN_OPTIONS.iter().filter(|option| !known.contains(&format!("warplink-{}", option.name)));
    let mut command = command.args(of_links.map(own_option));
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, "warplink", &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// An option of link lines as clap describes options. It is never parsed so.
fn own_option(option: &OwnOption) -> Arg {
    let arg = Arg::new(option.name).long(format!("warplink-{}", option.name)).help(option.help);
    if option.value.is_empty() {
        return arg.action(ArgAction::SetTrue);
    }
    let arg = arg.value_name(option.value).require_equals(true);
    let words: Vec<&str> = option.value.split('|').filter(|word| is_literal(word)).collect();
    match option.value {
        "DIR" => arg.value_hint(ValueHint::DirPath),
        value if value.starts_with("FILE") || value.starts_with("PATH") => arg.value_hint(ValueHint::AnyPath),
        _ if words.is_empty() => arg,
        _ => arg.value_parser(PossibleValuesParser::new(words)),
    }
}

/// Whether a part of a value's description stands for itself: `none`, but not `ARCH,...` nor `no-NAME`.
fn is_literal(word: &str) -> bool {
    !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_command_and_option_is_offered() {
        for shell in Shell::value_variants() {
            let script = script(&Args { shell: *shell });
            let command = crate::cli::command();
            for name in command.get_subcommands().map(clap::Command::get_name) {
                assert!(script.contains(name), "{name} for {shell:?}");
            }
            for option in OWN_OPTIONS {
                assert!(script.contains(&format!("warplink-{}", option.name)), "{} for {shell:?}", option.name);
            }
        }
    }

    #[test]
    fn words_of_a_value_are_offered_and_placeholders_are_not() {
        for (value, expected) in
            [("all|none|ARCH,...", vec!["all", "none"]), ("no-NAME|error=NAME", vec![]), ("0|1|s", vec!["0", "1", "s"])]
        {
            let words: Vec<&str> = value.split('|').filter(|word| is_literal(word)).collect();
            assert_eq!(words, expected);
        }
    }
}
