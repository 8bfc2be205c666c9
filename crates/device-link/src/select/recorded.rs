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
        let args = recorded_ptxas_args(words);
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

/// What `-Xcuda-ptxas` gave to a compile command.
fn recorded_ptxas_args(words: &[String]) -> Vec<String> {
    let mut args = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if word == "-Xcuda-ptxas" {
            args.extend(words.next().cloned());
        }
    }
    args
}
