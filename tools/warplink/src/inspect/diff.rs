//! `warplink inspect --diff OLD NEW`: what grew, from the whole file down to the kernel. The file's own parts are compared as they are
//! stored; images by what they hold when decompressed, since a kernel has no compressed size of its own.

use super::Columns;
use super::render::{BAD, BOLD, GOOD};
use super::report::{File, Image, ImageKind, Part};
use super::table::Align::{Left, Right};
use super::table::{Cell, Last, PLAIN, Table};
use serde::Serialize;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::io::{self, Write};

/// All of the JSON output of `--diff`. Sizes are in bytes; what is absent on one side has the size 0 there.
#[derive(Debug, Serialize)]
pub(crate) struct Diff {
    /// Changes when a field changes its meaning or goes away.
    pub(crate) schema: u32,
    pub(crate) old: Side,
    pub(crate) new: Side,
    /// The whole file; its device code as stored, decompressed, and the rest.
    pub(crate) totals: Vec<Change>,
    /// The sections of a host file or the members of an archive.
    pub(crate) parts: Vec<Change>,
    /// By architecture and kind, all images of one added up, as stored.
    pub(crate) images: Vec<ImageChange>,
    /// By image and section.
    pub(crate) sections: Vec<ImageChange>,
    pub(crate) kernels: Vec<KernelChange>,
    pub(crate) variables: Vec<ImageChange>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Side {
    pub(crate) path: String,
    pub(crate) format: String,
}

/// What became of a thing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Fate {
    Appeared,
    Vanished,
    Grew,
    Shrank,
    Same,
}

#[derive(Debug, Serialize)]
pub(crate) struct Change {
    pub(crate) name: String,
    pub(crate) fate: Fate,
    pub(crate) old: u64,
    pub(crate) new: u64,
    /// `new - old`.
    pub(crate) growth: i64,
    /// Of the old size; none if that is 0.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) percent: Option<f64>,
}

impl Change {
    /// `None` stands for what is not there.
    fn new(name: impl Into<String>, old: Option<u64>, new: Option<u64>) -> Change {
        let fate = match (old, new) {
            (None, Some(_)) => Fate::Appeared,
            (Some(_), None) => Fate::Vanished,
            _ if old < new => Fate::Grew,
            _ if old > new => Fate::Shrank,
            _ => Fate::Same,
        };
        let (old, new) = (old.unwrap_or(0), new.unwrap_or(0));
        let growth = i64::try_from(i128::from(new) - i128::from(old)).unwrap_or(i64::MAX);
        let percent = (old > 0).then(|| (growth as f64 * 1000.0 / old as f64).round() / 10.0);
        Change { name: name.into(), fate, old, new, growth, percent }
    }
}

/// A change in the images of one architecture and kind.
#[derive(Debug, Serialize)]
pub(crate) struct ImageChange {
    pub(crate) arch: String,
    pub(crate) kind: ImageKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) demangled: Option<String>,
    #[serde(flatten)]
    pub(crate) change: Change,
}

/// A kernel: `old`, `new` and `growth` are its machine code.
#[derive(Debug, Serialize)]
pub(crate) struct KernelChange {
    #[serde(flatten)]
    pub(crate) image: ImageChange,
    /// Registers, spills and the like that differ; a side that does not know or have them is null.
    pub(crate) resources: Vec<ResourceChange>,
}

#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct ResourceChange {
    /// "registers", "spill_stores", "spill_loads", "stack", "shared", "constants", "parameters" or "barriers".
    pub(crate) name: &'static str,
    pub(crate) old: Option<u64>,
    pub(crate) new: Option<u64>,
}

/// Of which images a thing is: architecture and kind.
type Key = (String, ImageKind);

#[derive(Debug, Default, Clone)]
struct KernelFacts {
    demangled: Option<String>,
    code: u64,
    resources: Vec<(&'static str, Option<u64>)>,
}

/// What is compared of one file.
#[derive(Debug, Default)]
struct Facts {
    images: BTreeMap<Key, u64>,
    decompressed: u64,
    sections: BTreeMap<(Key, String), u64>,
    kernels: BTreeMap<(Key, String), KernelFacts>,
    variables: BTreeMap<(Key, String), (Option<String>, u64)>,
}

impl Facts {
    fn of(file: &File) -> Facts {
        let mut facts = Facts::default();
        for image in file.containers.iter().flat_map(|container| &container.images) {
            facts.add(image);
        }
        facts
    }

    fn add(&mut self, image: &Image) {
        let key = (image.arch.clone(), image.kind);
        *self.images.entry(key.clone()).or_default() += image.stored_size;
        self.decompressed += image.size;
        for part in &image.sections {
            *self.sections.entry((key.clone(), part.name.clone())).or_default() += part.size;
        }
        for kernel in &image.kernels {
            // A kernel that several objects of an archive define counts once for each.
            let facts = self.kernels.entry((key.clone(), kernel.name.clone())).or_default();
            facts.demangled = kernel.demangled.clone();
            if let Some(resources) = &kernel.resources {
                facts.code += resources.code;
                facts.resources = vec![
                    ("registers", resources.registers.map(u64::from)),
                    ("spill_stores", resources.spill_stores),
                    ("spill_loads", resources.spill_loads),
                    ("stack", Some(u64::from(resources.stack))),
                    ("shared", Some(resources.shared)),
                    ("constants", Some(resources.constants.iter().map(|(_, size)| size).sum())),
                    ("parameters", resources.parameters.map(u64::from)),
                    ("barriers", Some(u64::from(resources.barriers))),
                ];
            }
        }
        for variable in &image.variables {
            // Whether the program was cut into parts makes no other variable of it.
            let name = device_link::names::before_cut(&variable.name).into_owned();
            let entry = self.variables.entry((key.clone(), name)).or_default();
            entry.0 = variable.demangled.clone();
            entry.1 += variable.size.unwrap_or(0);
        }
    }
}

/// Every key of both maps with its values.
fn joined<'m, K: Ord, V>(old: &'m BTreeMap<K, V>, new: &'m BTreeMap<K, V>) -> Vec<(&'m K, Option<&'m V>, Option<&'m V>)> {
    let mut all: BTreeMap<&K, (Option<&V>, Option<&V>)> = BTreeMap::new();
    for (key, value) in old {
        all.entry(key).or_default().0 = Some(value);
    }
    for (key, value) in new {
        all.entry(key).or_default().1 = Some(value);
    }
    all.into_iter().map(|(key, (old, new))| (key, old, new)).collect()
}

/// What differs between two files. Each list begins with what grew most; what is the same is left out, but for totals and images.
pub(crate) fn compare(old: &File, new: &File) -> Diff {
    let (before, after) = (Facts::of(old), Facts::of(new));
    let side = |file: &File| Side { path: file.path.clone(), format: file.format.clone() };
    let stored = |facts: &Facts| facts.images.values().sum::<u64>();
    let (old_code, new_code) = (stored(&before), stored(&after));
    let totals = vec![
        Change::new("file", Some(old.size), Some(new.size)),
        Change::new("device code", Some(old_code), Some(new_code)),
        Change::new("device code, decompressed", Some(before.decompressed), Some(after.decompressed)),
        Change::new("everything else", Some(old.size.saturating_sub(old_code)), Some(new.size.saturating_sub(new_code))),
    ];
    let change = |(arch, kind): &Key, demangled: Option<String>, name: &str, old: Option<u64>, new: Option<u64>| ImageChange {
        arch: arch.clone(),
        kind: *kind,
        demangled,
        change: Change::new(name, old, new),
    };
    let images = joined(&before.images, &after.images);
    let mut images: Vec<_> =
        images.into_iter().map(|(key, old, new)| change(key, None, &format!("{} {}", key.0, key.1), old.copied(), new.copied())).collect();
    let sections = joined(&before.sections, &after.sections);
    let mut sections: Vec<_> =
        sections.into_iter().map(|((key, name), old, new)| change(key, None, name, old.copied(), new.copied())).collect();
    let mut kernels: Vec<_> = joined(&before.kernels, &after.kernels)
        .into_iter()
        .map(|((key, name), old, new)| {
            let demangled = new.or(old).and_then(|kernel| kernel.demangled.clone());
            KernelChange {
                image: change(key, demangled, name, old.map(|kernel| kernel.code), new.map(|kernel| kernel.code)),
                resources: resources(old, new),
            }
        })
        .collect();
    let mut variables: Vec<_> = joined(&before.variables, &after.variables)
        .into_iter()
        .map(|((key, name), old, new)| {
            let demangled = new.or(old).and_then(|(demangled, _)| demangled.clone());
            change(key, demangled, name, old.map(|(_, size)| *size), new.map(|(_, size)| *size))
        })
        .collect();
    let total = |parts: &[Part]| {
        let mut sizes: BTreeMap<String, u64> = BTreeMap::new();
        parts.iter().for_each(|part| *sizes.entry(part.name.clone()).or_default() += part.size);
        sizes
    };
    let (old_parts, new_parts) = (total(&old.parts), total(&new.parts));
    let mut parts: Vec<_> =
        joined(&old_parts, &new_parts).into_iter().map(|(name, old, new)| Change::new(name, old.copied(), new.copied())).collect();

    let differs = |change: &Change| change.fate != Fate::Same;
    parts.retain(differs);
    sections.retain(|section| differs(&section.change));
    kernels.retain(|kernel| differs(&kernel.image.change) || !kernel.resources.is_empty());
    variables.retain(|variable| differs(&variable.change));
    // Of equal growth, the order of names.
    parts.sort_by_key(|part| Reverse(part.growth));
    images.sort_by_key(|image| Reverse(image.change.growth));
    sections.sort_by_key(|section| Reverse(section.change.growth));
    kernels.sort_by_key(|kernel| Reverse(kernel.image.change.growth));
    variables.sort_by_key(|variable| Reverse(variable.change.growth));
    Diff { schema: 1, old: side(old), new: side(new), totals, parts, images, sections, kernels, variables }
}

/// What two versions of a kernel need differently; nothing if one of them is not there.
fn resources(old: Option<&KernelFacts>, new: Option<&KernelFacts>) -> Vec<ResourceChange> {
    let (Some(old), Some(new)) = (old, new) else { return Vec::new() };
    let pairs = old.resources.iter().zip(&new.resources).filter(|(old, new)| old != new);
    pairs.map(|(old, new)| ResourceChange { name: old.0, old: old.1, new: new.1 }).collect()
}

/// As many rows of a table as help without `--wide`.
const ROWS: usize = 20;

/// Writes what differs as tables.
pub(crate) fn render(diff: &Diff, columns: Columns, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{BOLD}{}{BOLD:#} ({}) -> {BOLD}{}{BOLD:#} ({})\n", diff.old.path, diff.old.format, diff.new.path, diff.new.format)?;
    let heads = [("GROWTH", Right), ("", Right), ("OLD", Right), ("NEW", Right)];
    let mut totals = Table::new(&[&heads[..], &[("TOTAL", Left)]].concat(), Last::Names);
    for change in &diff.totals {
        totals.row(cells(change, None, &change.name));
    }
    totals.write(columns, out)?;

    let limit = if columns.is_some() { ROWS } else { usize::MAX };
    let images: Vec<_> = diff.images.iter().map(|image| (&image.change, None, image.change.name.clone(), String::new())).collect();
    list("images, as stored", "IMAGE", &images, limit, columns, out)?;
    let parts: Vec<_> = diff.parts.iter().map(|part| (part, None, part.name.clone(), String::new())).collect();
    let what = if diff.new.format.contains("archive") { "members of the archive" } else { "sections of the file" };
    list(what, if what.starts_with('m') { "MEMBER" } else { "SECTION" }, &parts, limit, columns, out)?;
    let place = |image: &ImageChange| Some(format!("{} {}", image.arch, image.kind));
    let name = |image: &ImageChange| image.demangled.as_ref().unwrap_or(&image.change.name).clone();
    let sections: Vec<_> = diff.sections.iter().map(|section| (&section.change, place(section), name(section), String::new())).collect();
    list("sections of the images, decompressed", "SECTION", &sections, limit, columns, out)?;
    // What is in PTX has no size there: the row of the image says that all of it came or went.
    let whole = |image: &ImageChange| {
        let is_its = |of: &&ImageChange| of.arch == image.arch && of.kind == image.kind;
        let fate = diff.images.iter().find(is_its).map(|of| of.change.fate);
        image.change.growth == 0 && fate == Some(image.change.fate) && matches!(fate, Some(Fate::Appeared | Fate::Vanished))
    };
    let kernels: Vec<_> = diff
        .kernels
        .iter()
        .filter(|kernel| !whole(&kernel.image))
        .map(|kernel| (&kernel.image.change, place(&kernel.image), name(&kernel.image), words(kernel)))
        .collect();
    list("kernels, machine code", "KERNEL", &kernels, limit, columns, out)?;
    let variables: Vec<_> = diff
        .variables
        .iter()
        .filter(|variable| !whole(variable))
        .map(|variable| (&variable.change, place(variable), name(variable), String::new()))
        .collect();
    list("variables", "VARIABLE", &variables, limit, columns, out)
}

/// A row of a list: what changed, in which image, its name, and more to say about it.
type Row<'d> = (&'d Change, Option<String>, String, String);

/// A table with a heading, or nothing if there is nothing to list.
fn list(title: &str, column: &str, rows: &[Row], limit: usize, columns: Columns, out: &mut dyn Write) -> io::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let (grown, shrunk) = rows.iter().fold((0i64, 0i64), |(grown, shrunk), (change, ..)| match change.growth {
        growth if growth > 0 => (grown.saturating_add(growth), shrunk),
        growth => (grown, shrunk.saturating_add(growth)),
    });
    writeln!(out, "\n{BOLD}{title}{BOLD:#}: {} grown, {} shrunk", signed(grown), signed(shrunk))?;
    let has_place = rows.iter().any(|(_, place, ..)| place.is_some());
    let has_words = rows.iter().any(|(.., words)| !words.is_empty());
    let mut heads = vec![("GROWTH", Right), ("", Right), ("OLD", Right), ("NEW", Right)];
    heads.extend(has_place.then_some(("IMAGE", Left)));
    heads.extend(has_words.then_some(("NEEDS", Left)));
    heads.push((column, Left));
    let mut table = Table::new(&heads, Last::Names);
    // What shrank most stands at the end: the middle is what is left out.
    let (head, tail) = if rows.len() > limit { (limit - limit / 4, limit / 4) } else { (rows.len(), 0) };
    for (index, (change, place, name, words)) in rows.iter().enumerate() {
        if index >= head && index + tail < rows.len() {
            continue;
        }
        let mut row = cells(change, place.clone(), name);
        if has_words {
            let at = row.len() - 1;
            row.insert(at, words.clone().into());
        }
        table.row(row);
    }
    table.write(columns, out)?;
    if head + tail < rows.len() {
        writeln!(out, "  {} more between these; --wide shows all", rows.len() - head - tail)?;
    }
    Ok(())
}

fn cells(change: &Change, place: Option<String>, name: &str) -> Vec<Cell> {
    let style = match change.growth {
        0 => PLAIN,
        growth if growth > 0 => BAD,
        _ => GOOD,
    };
    let percent = match (change.fate, change.percent) {
        (Fate::Appeared, _) => "new".to_owned(),
        (Fate::Vanished, _) => "gone".to_owned(),
        (_, Some(percent)) if percent >= 1000.0 => format!("{:.0} x", change.new as f64 / change.old as f64),
        (_, Some(percent)) => format!("{percent:+.1} %"),
        (_, None) => String::new(),
    };
    let number = |size: u64, there: bool| if there { size.to_string() } else { "-".to_owned() };
    let mut row: Vec<Cell> = vec![
        (signed(change.growth), style).into(),
        percent.into(),
        number(change.old, change.fate != Fate::Appeared).into(),
        number(change.new, change.fate != Fate::Vanished).into(),
    ];
    row.extend(place.map(Cell::from));
    row.push(name.into());
    row
}

fn signed(growth: i64) -> String {
    if growth == 0 { "0".to_owned() } else { format!("{growth:+}") }
}

/// What a kernel needs differently: `32 -> 40 registers, 0 -> 8 spill_stores`.
fn words(kernel: &KernelChange) -> String {
    let short = |name: &str| match name {
        "registers" => "regs".to_owned(),
        "spill_stores" => "spilled".to_owned(),
        "spill_loads" => "reloaded".to_owned(),
        "constants" => "const".to_owned(),
        "parameters" => "params".to_owned(),
        other => other.to_owned(),
    };
    let number = |value: Option<u64>| value.map_or("?".to_owned(), |value| value.to_string());
    // The constant bank is mostly the parameters, which say the same better.
    let has_parameters = kernel.resources.iter().any(|change| change.name == "parameters");
    let told = kernel.resources.iter().filter(|change| !(has_parameters && change.name == "constants"));
    told.map(|change| format!("{} {}->{}", short(change.name), number(change.old), number(change.new))).collect::<Vec<_>>().join(", ")
}
