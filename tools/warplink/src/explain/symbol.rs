//! `warplink explain --symbol`: the definition that was chosen, the others, who refers to it, and what LTO made of it.

use std::collections::BTreeMap;

use device_link::names;
use device_link::record::{Fate, Input, Record, Symbol, look};
use serde_json::{Value, json};

use super::{Known, Outcome, line, member};
use crate::inspect::report::File;

/// More symbols than these are listed by name only.
const EXPLAINED: usize = 4;
/// More names than these are counted only.
const LISTED: usize = 25;

/// Explains the symbols that `name` means: those of exactly this name, mangled or not, or else all whose name has it as a part.
pub(super) fn explain(known: &Known, name: &str, out: &mut Vec<u8>) -> Result<(Outcome, Value), String> {
    let in_file = images_with(&known.file);
    let recorded = known.record.iter().flat_map(|record| &record.symbols).map(|symbol| symbol.name.as_str());
    let matches = matching(recorded.chain(in_file.keys().map(String::as_str)), name);
    let mut answers = Vec::new();
    if matches.len() > EXPLAINED {
        line(out, format_args!("{name}: a part of {} names; which one?", matches.len()));
        for symbol in matches.iter().take(LISTED) {
            line(out, format_args!("  {}", title(symbol)));
        }
        if matches.len() > LISTED {
            line(out, format_args!("  ... and {} more", matches.len() - LISTED));
        }
        answers.extend(matches.iter().map(|symbol| json!({ "name": symbol, "demangled": names::demangled(symbol) })));
    } else {
        for symbol in &matches {
            answers.push(one(known, symbol, in_file.get(*symbol).map(Vec::as_slice).unwrap_or_default(), out));
        }
    }
    let outside = known.record.as_ref().filter(|_| matches.is_empty()).map(|record| outside(record, name, out)).unwrap_or_default();
    let nothing = matches.is_empty() && outside.is_empty();
    answers.extend(outside);
    if nothing {
        line(out, format_args!("{name}: no device symbol of this name"));
        line(
            out,
            format_args!(
                "  {}",
                match known.record {
                    Some(_) => "neither the objects of the link nor the images have one; static functions are known to their object only",
                    None => "the images have none; functions that were inlined leave no name in them, but one in the record of a link",
                }
            ),
        );
    }
    Ok((if nothing { Outcome::Nothing } else { Outcome::Good }, json!({ "symbol": name, "found": answers })))
}

/// Symbols of members of archives that the link left out: a kernel that is missing is often there.
fn outside(record: &Record, name: &str, out: &mut Vec<u8>) -> Vec<Value> {
    let left = record.inputs.iter().filter(|input| !input.taken);
    let defined: Vec<(String, &Input)> =
        left.flat_map(|input| look::definitions(record, input).into_iter().map(move |symbol| (symbol, input))).collect();
    let matches = matching(defined.iter().map(|(symbol, _)| symbol.as_str()), name);
    let mut answers = Vec::new();
    for symbol in matches.iter().take(EXPLAINED) {
        line(out, format_args!("{}: not in the link", title(symbol)));
        for (_, input) in defined.iter().filter(|(defined, _)| defined == symbol) {
            line(out, format_args!("  defined in {}", input.name));
            line(out, format_args!("    which is not in the link because {}", member::reason(&input.reason)));
            if let Some(remedy) = member::remedy(input) {
                line(out, format_args!("  what to do: {remedy}"));
            }
            answers.push(json!({
                "name": symbol, "demangled": names::demangled(symbol), "left_out": input.name, "because": member::reason(&input.reason),
            }));
        }
    }
    if matches.len() > EXPLAINED {
        line(out, format_args!("  ... and {} more of which {name} is a part", matches.len() - EXPLAINED));
    }
    answers
}

/// One symbol, as text and as JSON.
fn one(known: &Known, name: &str, images: &[String], out: &mut Vec<u8>) -> Value {
    let variants: Vec<&Symbol> = known.record.iter().flat_map(|record| &record.symbols).filter(|symbol| symbol.name == name).collect();
    let kind = variants.first().map_or("", |symbol| symbol.kind.as_str());
    line(out, format_args!("{}{}", title(name), if kind.is_empty() { String::new() } else { format!(": {}", kind_words(kind)) }));
    let mut recorded = Vec::new();
    if let Some(record) = &known.record {
        for symbol in &variants {
            recorded.push(variant(record, symbol, variants.len() > 1, out));
        }
    }
    if !images.is_empty() {
        line(out, format_args!("  in {}: {}", known.file.path, images.join(", ")));
    } else if kind != "function" {
        // Of a function there may be a copy for each kernel, under a name that the host cannot use.
        line(out, format_args!("  no image of {} has it by name", known.file.path));
    }
    json!({ "name": name, "demangled": names::demangled(name), "kind": kind, "record": recorded, "images": images })
}

/// What the link says of a symbol in those architectures that agree.
fn variant(record: &Record, symbol: &Symbol, several: bool, out: &mut Vec<u8>) -> Value {
    let archs: Vec<&str> =
        symbol.archs.iter().filter_map(|&index| record.architectures.get(index)).map(|arch| arch.arch.as_str()).collect();
    if several {
        line(out, format_args!("  for {}:", archs.join(", ")));
    }
    let mut because = None;
    match symbol.definition {
        Some(index) => {
            line(out, format_args!("  defined in {} ({})", record.input_name(index), binding_words(&symbol.binding)));
            if let Some(input) = record.inputs.get(index) {
                because = Some(member::reason(&input.reason));
                line(out, format_args!("    which is in the link because {}", member::reason(&input.reason)));
            }
        }
        None => line(out, format_args!("  no object of the link defines it")),
    }
    for (index, binding) in &symbol.others {
        line(out, format_args!("  also defined in {} ({}), which gives way", record.input_name(*index), binding_words(binding)));
    }
    let mut references = Vec::new();
    for &index in &symbol.references {
        let Some(input) = record.inputs.get(index) else { continue };
        let from: Vec<String> = look::references(record, input, &symbol.name);
        let shown: Vec<String> = from.iter().map(|name| names::demangle(name)).collect();
        let inside = if shown.is_empty() { String::new() } else { format!(":({})", shown.join(", ")) };
        line(out, format_args!("  referred to by {}{inside}", input.name));
        references.push(json!({ "input": input.name, "from": from }));
    }
    if symbol.references.is_empty() && symbol.definition.is_some() {
        line(out, format_args!("  no other object refers to it in device code"));
    }
    if let Some(fate) = symbol.fate {
        line(out, format_args!("  LTO: {}", fate_words(fate)));
    }
    json!({
        "archs": archs, "definition": symbol.definition.map(|index| record.input_name(index)), "binding": symbol.binding, "because": because,
        "others": symbol.others.iter().map(|(index, binding)| json!({ "input": record.input_name(*index), "binding": binding })).collect::<Vec<_>>(),
        "references": references, "fate": symbol.fate,
    })
}

/// The symbols that a question means, each once.
fn matching<'n>(names: impl Iterator<Item = &'n str>, wanted: &str) -> Vec<&'n str> {
    let mut seen = std::collections::HashSet::new();
    let all: Vec<(&str, String)> = names.filter(|name| seen.insert(*name)).map(|name| (name, names::demangle(name))).collect();
    let of =
        |is: &dyn Fn(&str, &str) -> bool| all.iter().filter(|(name, shown)| is(name, shown)).map(|(name, _)| *name).collect::<Vec<_>>();
    let exact = of(&|name, shown| name == wanted || shown == wanted);
    if !exact.is_empty() {
        return exact;
    }
    let without_parameters = of(&|_, shown| shown.split('(').next() == Some(wanted));
    if without_parameters.is_empty() { of(&|name, shown| name.contains(wanted) || shown.contains(wanted)) } else { without_parameters }
}

/// The names that the images of a file define, with the images. What a linked cubin calls `$kernel$function` is the kernel's copy;
/// what a program cut into parts calls `NAME__part__HASH` is NAME.
fn images_with(file: &File) -> BTreeMap<String, Vec<String>> {
    let mut found: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for image in file.containers.iter().flat_map(|container| &container.images) {
        let kernels = image.kernels.iter().map(|kernel| &kernel.name);
        for name in kernels.chain(image.variables.iter().map(|variable| &variable.name)) {
            found.entry(names::before_cut(name).into_owned()).or_default().push(image.title());
        }
    }
    found
}

fn title(name: &str) -> String {
    names::demangled(name).map_or_else(|| name.to_owned(), |shown| format!("{shown} [{name}]"))
}

fn kind_words(kind: &str) -> String {
    if kind == "kernel" { kind.to_owned() } else { format!("device {kind}") }
}

fn binding_words(binding: &str) -> &str {
    match binding {
        "strong" => "the one definition",
        "weak" => "a template or inline function, of which one definition is kept",
        "common" => "tentatively",
        other => other,
    }
}

fn fate_words(fate: Fate) -> &'static str {
    match fate {
        Fate::Kept => "kept",
        Fate::Inlined => "gone: inlined into its users, or they do without it",
        Fate::Unused => "removed: nothing that is kept refers to it",
    }
}
