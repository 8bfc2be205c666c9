//! What the objects of a job say about how they want to be compiled.

use std::collections::HashMap;

use super::LinkJob;
use crate::diagnostics::Diagnostics;
use crate::extract::DeviceInput;
use crate::options::{OptLevel, Options};
use crate::ptx_choice::{Recorded, command_wants, metadata_wants, split_command};

/// Options that objects carry: PTX, optimisation level, ptxas arguments. The line wins over all of them.
pub(super) fn apply(job: &mut LinkJob, inputs: &[&DeviceInput], options: &Options, diagnostics: &Diagnostics) {
    let arch = job.arch;
    let commands: HashMap<&str, Vec<String>> =
        job.members.iter().filter_map(|member| Some((member.origin.as_str(), split_command(member.info.command_lines.first()?)))).collect();
    let recorded: Vec<Recorded> = inputs
        .iter()
        .map(|input| Recorded {
            origin: input.origin.clone(),
            wants: match &input.ptx {
                Some(value) => Some(metadata_wants(value, arch)),
                None => commands.get(input.origin.as_str()).and_then(|words| command_wants(words, arch)),
            },
        })
        .collect();
    job.ptx = crate::ptx_choice::decide(arch, options.ptx.as_ref(), &recorded, diagnostics);

    job.level = options.opt_level;
    let mut ptxas: Option<(&str, Vec<String>)> = None;
    for member in &job.members {
        let Some(words) = commands.get(member.origin.as_str()) else { continue };
        if options.opt_level.is_none() {
            job.level = job.level.max(recorded_level(words));
        }
        let (args, refused) = recorded_ptxas_args(words);
        if let Some(word) = refused {
            diagnostics.warn("compile-choice", &format!("{}: was compiled with -Xcuda-ptxas {word}, which is not followed", member.origin));
        }
        match &ptxas {
            None => ptxas = Some((&member.origin, args)),
            Some((first, known)) if *known != args => diagnostics.warn(
                "compile-choice",
                &format!(
                    "{}: was compiled with other -Xcuda-ptxas options than {first}; those of {first} are used for the whole link",
                    member.origin
                ),
            ),
            Some(_) => {}
        }
    }
    job.recorded_ptxas_args = ptxas.map(|(_, args)| args).unwrap_or_default();
}

/// The last `-O` of a compile command.
fn recorded_level(words: &[String]) -> Option<OptLevel> {
    words.iter().rev().find_map(|word| match word.as_str() {
        "-O0" => Some(OptLevel::O0),
        "-O1" | "-Og" => Some(OptLevel::O1),
        "-O" | "-O2" => Some(OptLevel::O2),
        "-Os" => Some(OptLevel::Os),
        "-Oz" => Some(OptLevel::Oz),
        "-O3" | "-Ofast" | "-O4" => Some(OptLevel::O3),
        _ => None,
    })
}

/// Options of ptxas that name a file, without dashes: one to be written, and one that holds further options. An object may come from
/// anywhere; what the assembler of this link reads and writes is none of its business.
const OF_FILES: [&str; 4] = ["o", "output-file", "optf", "options-file"];

/// What `-Xcuda-ptxas` gave to a compile command, and the first of it that is not followed.
fn recorded_ptxas_args(words: &[String]) -> (Vec<String>, Option<String>) {
    let mut args = Vec::new();
    let mut refused = None;
    let mut given = words.iter().zip(words.iter().skip(1)).filter(|(word, _)| *word == "-Xcuda-ptxas").map(|(_, argument)| argument);
    while let Some(argument) = given.next() {
        let (name, value) = argument.split_once('=').map_or((argument.as_str(), None), |(name, value)| (name, Some(value)));
        if !argument.starts_with('-') || !OF_FILES.contains(&name.trim_start_matches('-')) {
            args.push(argument.clone());
            continue;
        }
        if value.is_none() {
            given.next();
        }
        refused.get_or_insert_with(|| argument.clone());
    }
    (args, refused)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn objects_do_not_say_which_files_ptxas_uses() {
        let check = |line: &str, expected: &[&str], refused: Option<&str>| {
            let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
            let (args, found) = recorded_ptxas_args(&words);
            assert_eq!((args, found.as_deref()), (expected.iter().map(|&word| word.to_owned()).collect(), refused), "{line}");
        };
        check("clang -O2 -Xcuda-ptxas -maxrregcount -Xcuda-ptxas 32 -o a.o", &["-maxrregcount", "32"], None);
        check("clang -Xcuda-ptxas -o -Xcuda-ptxas /etc/x -Xcuda-ptxas -v", &["-v"], Some("-o"));
        check("clang -Xcuda-ptxas --output-file=x -Xcuda-ptxas -options-file=y", &[], Some("--output-file=x"));
        check("clang -Xcuda-ptxas", &[], None);
    }
}
