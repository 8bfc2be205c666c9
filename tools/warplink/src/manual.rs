//! `warplink man`: the manual page warplink(1), in the roff that man reads. Commands come from clap's description of them, options of link
//! lines from the tables of `device-link`; only what explains them is written here.

use std::fmt::Write as _;

use clap::{Arg, Command};
use device_link::link_line::{self, HelpLine};
use device_link::options::Invocation;

/// The paragraphs of DESCRIPTION.
const DESCRIPTION: &[&str] = &[
    "warplink takes the place of clang-linker-wrapper in the link step of CUDA programs that clang compiles with relocatable device code \
     (-fgpu-rdc -foffload-lto). It pulls the device bitcode out of the host objects, links and optimises it as one program, has ptxas make a \
     cubin for each architecture, adds PTX where the objects or the link line ask for it, and hands the host link, with one more object, to \
     the host linker. A link without device code becomes the host linker at once.",
    "Compilers find it through the directory that warplink bin-dir prints: it holds warplink as clang-linker-wrapper, as the linkers ld, \
     ld.bfd, ld.gold, ld.lld, ld.mold and ld.warplink, and as the packagers llvm-offload-binary and clang-offload-packager, which record the \
     choice about PTX in objects. A first argument that is exactly the name of a command runs that command; any other begins a link line.",
];

/// Variables that are not those of an option.
const ENVIRONMENT: &[(&str, &str)] = &[
    (
        "WARPLINK_PTX",
        "At compile time, with -B: the choice about PTX that is recorded in the object. At link time the option --warplink-ptx.",
    ),
    (
        "CUDA_PATH, CUDA_HOME, CUDA_ROOT, CUDAToolkit_ROOT, CUDA_TOOLKIT_PATH",
        "The CUDA toolkit, where no option names one. After these come the directory of a ptxas on PATH and the usual places.",
    ),
    ("MAKEFLAGS", "Names the jobserver that --warplink-jobs=jobserver takes tokens from."),
    ("NO_COLOR, CLICOLOR, CLICOLOR_FORCE", "Whether messages have colours."),
    ("TMPDIR", "Where temporary files are made; none is left behind."),
];

/// What the exit codes mean.
const EXIT_STATUS: &[(&str, &str)] = &[
    ("0", "All is well."),
    ("1", "The device link failed, or a command did; the messages say why."),
    ("2", "The command line of a command is wrong."),
    ("other", "That of the host linker, passed on."),
];

/// The whole page for the commands of `command`.
pub(crate) fn page(command: &Command) -> String {
    let mut page = format!(".TH WARPLINK 1 \"\" \"warplink {}\" \"User Commands\"\n", env!("CARGO_PKG_VERSION"));
    page.push_str(".nh\n.ad l\n.SH NAME\nwarplink \\- device link\\-time optimisation for CUDA programs built by clang\n");
    page.push_str(".SH SYNOPSIS\n");
    page.push_str(".B warplink\n.I COMMAND\n.RI [ ARGUMENT ]...\n.br\n");
    page.push_str(".B clang++ \\-B\"$(warplink bin\\-dir)\" \\-\\-offload\\-link\n.I FILE\\fR... \\fB\\-o\\fR \\fIOUTPUT\\fR\n.br\n");
    page.push_str(".B clang++ \\-\\-ld\\-path=\"$(command \\-v warplink)\"\n.I FILE\\fR... \\fB\\-o\\fR \\fIOUTPUT\n");
    page.push_str(".SH DESCRIPTION\n");
    for paragraph in DESCRIPTION {
        let _ = writeln!(page, ".PP\n{}", escaped(paragraph));
    }
    page.push_str(".SH COMMANDS\n");
    for (title, commands) in crate::help::groups(command) {
        let _ = writeln!(page, ".SS {}", escaped(title));
        for command in commands {
            add_command(&mut page, "warplink", command);
        }
    }
    page.push_str(".SH OPTIONS OF A LINK\n.PP\nGiven through the compiler, as in ");
    page.push_str("\\fB\\-Wl,\\-\\-warplink\\-ptx=all\\fR. All other options go to the host linker as they are.\n");
    for group in link_line::groups(&Invocation::Wrapper, true) {
        let _ = writeln!(page, ".SS {}", escaped(group.title));
        for line in &group.lines {
            add_option(&mut page, line);
        }
    }
    page.push_str(".SH ENVIRONMENT\n.PP\nEvery option of warplink's own can be given in the environment too; the command line wins.\n");
    for (names, text) in ENVIRONMENT {
        add_tagged(&mut page, names, text);
    }
    page.push_str(".SH EXIT STATUS\n");
    for (code, text) in EXIT_STATUS {
        add_tagged(&mut page, code, text);
    }
    page.push_str(".SH EXAMPLES\n");
    for (what, line) in crate::help::EXAMPLES {
        let _ = writeln!(page, ".PP\nTo {}:\n.PP\n.nf\n.RS\n{}\n.RE\n.fi", escaped(what), escaped(line));
    }
    page.push_str(".SH SEE ALSO\n.BR clang (1),\n.BR ld (1)\n");
    page
}

fn add_tagged(page: &mut String, tag: &str, text: &str) {
    let _ = writeln!(page, ".TP\n.B {}\n{}", escaped(tag), escaped(text));
}

fn add_option(page: &mut String, line: &HelpLine) {
    let variable = line.variable.as_ref().map_or_else(String::new, |name| format!(" ({name})"));
    add_tagged(page, &line.option, &format!("{}{variable}", sentence(line.text)));
}

/// A command with its arguments, and the commands below it.
fn add_command(page: &mut String, above: &str, command: &Command) {
    let name = format!("{above} {}", command.get_name());
    let about = command.get_long_about().or(command.get_about()).map(ToString::to_string).unwrap_or_default();
    let operands: String = command.get_positionals().map(|arg| format!(" {}", operand(arg))).collect();
    let below: Vec<&Command> = command.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help").collect();
    let options = command.get_opts().any(|arg| !arg.is_hide_set()) || command.get_arguments().any(is_switch);
    let options = if options { " [OPTION]..." } else { "" };
    if below.is_empty() || !operands.is_empty() {
        add_tagged(page, &format!("{name}{options}{operands}"), &sentence(&about));
    } else {
        add_tagged(page, &format!("{name} COMMAND"), &sentence(&about));
    }
    page.push_str(".RS\n");
    for arg in command.get_arguments().filter(|arg| !arg.is_hide_set()) {
        let help = arg.get_long_help().or(arg.get_help()).map(ToString::to_string).unwrap_or_default();
        if is_automatic(arg) || help.is_empty() {
            continue;
        }
        let tag = if arg.is_positional() { operand(arg) } else { spelled(arg) };
        add_tagged(page, &tag, &sentence(&help));
    }
    page.push_str(".RE\n");
    for command in below {
        add_command(page, &name, command);
    }
}

/// `--help` and `--version`, which every command has.
fn is_automatic(arg: &Arg) -> bool {
    matches!(arg.get_long(), Some("help" | "version"))
}

fn is_switch(arg: &Arg) -> bool {
    !arg.is_positional() && !arg.is_hide_set() && !is_automatic(arg)
}

/// How a positional argument is shown: `FILE...`, `[FILE]...`.
fn operand(arg: &Arg) -> String {
    let name = arg.get_value_names().and_then(|names| names.first()).map_or_else(|| arg.get_id().as_str(), |name| name.as_str());
    let many = arg.get_num_args().is_some_and(|range| range.max_values() > 1) || matches!(arg.get_action(), clap::ArgAction::Append);
    let name = if arg.is_required_set() { name.to_owned() } else { format!("[{name}]") };
    if many { format!("{name}...") } else { name }
}

/// How an option is shown: `-o, --out=FILE`.
fn spelled(arg: &Arg) -> String {
    let mut names: Vec<String> = arg.get_short().map(|short| format!("-{short}")).into_iter().collect();
    names.extend(arg.get_long().map(|long| format!("--{long}")));
    let takes_value = arg.get_action().takes_values();
    let value = arg.get_value_names().and_then(|names| names.first()).map(|name| name.as_str()).unwrap_or("VALUE");
    format!("{}{}", names.join(", "), if takes_value { format!("={value}") } else { String::new() })
}

/// With a capital letter and a full stop, as texts of a page have and lines of a help text do not.
fn sentence(text: &str) -> String {
    let mut chars = text.trim().chars();
    let text: String = chars.next().map(|first| first.to_uppercase().chain(chars).collect()).unwrap_or_default();
    if text.is_empty() || text.ends_with('.') { text } else { format!("{text}.") }
}

/// Text that roff takes for text: hyphens can be copied as minus signs, no line begins with a control character.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-").replace('"', "\\(dq");
    let lines: Vec<String> =
        text.lines().map(|line| if line.starts_with(['.', '\'']) { format!("\\&{line}") } else { line.to_owned() }).collect();
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use device_link::link_line::{OWN_OPTIONS, variable};

    use super::*;

    #[test]
    fn the_page_names_every_command_and_option() {
        let command = crate::cli::command();
        let page = page(&command);
        for command in command.get_subcommands().filter(|command| command.get_name() != "help" && !command.is_hide_set()) {
            assert!(page.contains(&escaped(&format!("warplink {}", command.get_name()))), "{}", command.get_name());
            for arg in command.get_arguments().filter(|arg| is_switch(arg)) {
                assert!(page.contains(&escaped(&spelled(arg))), "{} {}", command.get_name(), spelled(arg));
            }
        }
        for option in OWN_OPTIONS {
            assert!(page.contains(&escaped(&format!("--warplink-{}", option.name))), "{}", option.name);
            assert!(page.contains(&variable(option.name)), "{}", option.name);
        }
    }

    #[test]
    fn nothing_in_a_text_is_taken_for_roff() {
        assert_eq!(escaped(".TH -a \\n \"x\"\n'y"), "\\&.TH \\-a \\en \\(dqx\\(dq\n\\&'y");
        assert_eq!(sentence("the host linker to run"), "The host linker to run.");
        assert_eq!(sentence("Done."), "Done.");
    }
}
