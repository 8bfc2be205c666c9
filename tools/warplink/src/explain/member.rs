//! `warplink explain --member`: why an object is or is not in the link.

use device_link::names;
use device_link::record::{Input, Reason, Record};
use serde_json::{Value, json};

use super::{Known, Outcome, line};

/// Explains the object that `name` means: as messages call it, or without its directories.
pub(super) fn explain(known: &Known, name: &str, out: &mut Vec<u8>) -> Result<(Outcome, Value), String> {
    let Some(record) = &known.record else {
        return Err(format!(
            "{}: a program does not say which objects it was linked from, and there is no record of its link here (it is kept by links of \
             programs with device code, in the cache directory of the user who links; or name a report with --record)",
            known.file.path
        ));
    };
    let found = matching(record, name);
    for input in &found {
        line(out, format_args!("{}: device code {}", input.name, if input.taken { "is in the link" } else { "is not in the link" }));
        line(out, format_args!("  because {}", reason(&input.reason)));
        if let Some(remedy) = remedy(input) {
            line(out, format_args!("  what to do: {remedy}"));
        }
        let images: Vec<String> = input.images.iter().map(|image| format!("{} {}", image.arch, image.kind)).collect();
        line(out, format_args!("  it holds {}", images.join(", ")));
        let index = record.inputs.iter().position(|other| other.name == input.name);
        for arch in &record.architectures {
            if let Some((_, older)) = arch.older.iter().find(|(at, _)| Some(*at) == index) {
                line(out, format_args!("  it has no code for {}: that for {older} is linked instead", arch.arch));
            }
        }
    }
    if found.is_empty() {
        line(out, format_args!("{name}: no object of this name with device code was on the line of the link"));
        let archive = name.split('(').next().unwrap_or(name);
        let others: Vec<&str> =
            record.inputs.iter().filter(|input| is_of(input, archive)).map(|input| input.name.as_str()).take(8).collect();
        if !others.is_empty() {
            line(out, format_args!("  with device code there are {}", others.join(", ")));
        }
        line(out, format_args!("  objects without device code are the host linker's alone: its -Map=FILE says why it takes them"));
    }
    let json = json!({
        "member": name,
        "found": found.iter().map(|input| json!({
            "name": input.name, "taken": input.taken, "reason": input.reason, "because": reason(&input.reason), "images": input.images,
        })).collect::<Vec<_>>(),
    });
    Ok((if found.is_empty() { Outcome::Nothing } else { Outcome::Good }, json))
}

fn matching<'r>(record: &'r Record, name: &str) -> Vec<&'r Input> {
    let exact: Vec<&Input> = record.inputs.iter().filter(|input| input.name == name).collect();
    if !exact.is_empty() {
        return exact;
    }
    let ends = |input: &&Input| input.name.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with('/'));
    let found: Vec<&Input> = record.inputs.iter().filter(ends).collect();
    if !found.is_empty() {
        return found;
    }
    // The member alone, of whichever archive.
    record.inputs.iter().filter(|input| input.archive.is_some() && input.name.ends_with(&format!("({name})"))).collect()
}

fn is_of(input: &Input, archive: &str) -> bool {
    input.archive.as_deref().is_some_and(|path| path == archive || path.rsplit('/').next() == archive.rsplit('/').next())
}

/// How an archive member comes into the link that nothing refers to.
pub(super) fn remedy(input: &Input) -> Option<String> {
    let archive = input.archive.as_deref().filter(|_| input.reason == Reason::NotNeeded)?;
    let archive = archive.rsplit('/').next().unwrap_or(archive);
    Some(format!(
        "if it registers itself, link {archive} between -Wl,--whole-archive and -Wl,--no-whole-archive; or refer to something in it"
    ))
}

/// A reason in words that go on from "because".
pub(super) fn reason(reason: &Reason) -> String {
    match reason {
        Reason::OnTheLine => "it stands on the line itself, or --whole-archive takes it".to_owned(),
        Reason::HostSymbol { symbol, from: Some(from), .. } => {
            format!("{from} refers to {} in host code, which it defines", names::demangle(symbol))
        }
        Reason::HostSymbol { symbol, from: None, .. } => format!("the line asks for {}, which it defines", names::demangle(symbol)),
        Reason::HostLink => "the host link takes it".to_owned(),
        Reason::DeviceSymbol { symbol, .. } => format!("device code refers to {}, which it defines", names::demangle(symbol)),
        Reason::NotNeeded => "neither host code nor device code refers to anything that it defines".to_owned(),
    }
}
