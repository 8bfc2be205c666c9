//! The report as text for people: aligned tables, then the sentences that say where the code runs.

use super::gather::count;
use super::gpus::Gpu;
use super::report::{Container, ContainerKind, Entry, File, GpuVerdict, Image, ImageKind, Kernel, Resources, Runs, Variable};
use super::table::Align::{Left, Right};
use super::table::{Cell, Last, PLAIN, Table};
use super::verdict::{join, why_nothing};
use super::{Columns, names};
use anstyle::{AnsiColor, Style};
use std::io::{self, Write};

pub(crate) const BOLD: Style = Style::new().bold();
pub(crate) const GOOD: Style = AnsiColor::Green.on_default();
pub(crate) const BAD: Style = AnsiColor::Red.on_default().bold();

/// Writes all that is known of `file`.
pub(crate) fn file(file: &File, columns: Columns, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out, "{BOLD}{}{BOLD:#}: {}", file.path, file.format)?;
    for container in &file.containers {
        self::container(container, columns, out)?;
    }
    entries(file, columns, out)?;
    for problem in &file.problems {
        writeln!(out, "\n{BAD}problem{BAD:#}: {problem}")?;
    }
    summary(file, columns, out)
}

fn container(container: &Container, columns: Columns, out: &mut dyn Write) -> io::Result<()> {
    let kind = match container.kind {
        ContainerKind::Fatbin => "fat binary",
        ContainerKind::RelocatableFatbin => "fat binary of relocatable code",
        ContainerKind::Offload => "offload binary",
        ContainerKind::Image => "",
    };
    if container.kind != ContainerKind::Image {
        let member = container.member.as_ref().map_or(String::new(), |member| format!("{member}: "));
        let offset = if container.offset == 0 { String::new() } else { format!(" + {:#x}", container.offset) };
        let place = match &container.section {
            Some(section) => format!("{section}{offset}: "),
            None if container.offset == 0 => String::new(),
            None => format!("at {:#x}: ", container.offset),
        };
        writeln!(out, "\n{BOLD}{member}{place}{kind}, {}{BOLD:#}", count(container.images.len(), "image"))?;
    } else {
        writeln!(out)?;
    }
    images(container, columns, out)?;
    for (index, image) in container.images.iter().enumerate() {
        // PTX says no more than the names, and those are mostly a cubin's.
        let twin = container.images.iter().take(index).find(|other| other.defined == image.defined);
        match twin {
            Some(twin) if image.kind == ImageKind::Ptx && image.defined.is_some() => {
                writeln!(out, "\n  {BOLD}{}{BOLD:#}: the names of the {}", image.title(), twin.title())?;
            }
            _ => contents(image, columns, out)?,
        }
    }
    Ok(())
}

fn images(container: &Container, columns: Columns, out: &mut dyn Write) -> io::Result<()> {
    let mut table =
        Table::new(&[("IMAGE", Left), ("ARCH", Left), ("STORED", Right), ("BYTES", Right), ("AS", Left), ("", Left)], Last::Text);
    for image in &container.images {
        let notes = notes(image).join("; ");
        let notes_style = if image.problem.is_some() { BAD } else { PLAIN };
        table.row([
            image.kind.to_string().into(),
            image.arch.clone().into(),
            // What is packed together with others has no size of its own.
            if image.stored_size == 0 { "-".into() } else { image.stored_size.to_string().into() },
            image.size.to_string().into(),
            image.compression.into(),
            (notes, notes_style).into(),
        ]);
    }
    table.write(columns, out)
}

/// What there is to say of an image besides its kind, architecture and sizes.
fn notes(image: &Image) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(image.problem.clone());
    if let Some(ptx) = &image.ptx {
        let cuda = ptx.cuda.map_or("newer than this program knows".to_owned(), |cuda| match ptx.driver {
            Some(driver) => format!("CUDA {cuda}, driver r{driver} or newer"),
            None => format!("CUDA {cuda} or newer"),
        });
        notes.push(format!("ISA {}: {cuda}", ptx.version));
    }
    if let Some(offload) = &image.offload {
        let producers = if offload.producers.is_empty() { "none".to_owned() } else { offload.producers.join("+") };
        notes.push(format!("{producers} {}", offload.triple));
        notes.extend(offload.metadata.iter().map(|(key, value)| format!("{key}={value}")));
    }
    if image.relocatable && image.kind == ImageKind::Cubin {
        notes.push("relocatable".to_owned());
    }
    if image.debug {
        notes.push("debug".to_owned());
    }
    notes.extend(image.ident.as_ref().map(|ident| format!("ident {ident}")));
    notes.extend(image.options.as_ref().map(|options| format!("options {}", options.trim())));
    notes
}

/// The kernels and variables of an image.
fn contents(image: &Image, columns: Columns, out: &mut dyn Write) -> io::Result<()> {
    if image.kernels.is_empty() && image.variables.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n  {BOLD}{}{BOLD:#}", image.title())?;
    if image.kernels.iter().any(|kernel| kernel.resources.is_some()) {
        let right = ["REGS", "SPILL", "STACK", "SHARED", "CONST", "CODE"].map(|name| (name, Right));
        let mut table = Table::new(&[&right[..], &[("THREADS", Left), ("KERNEL", Left)]].concat(), Last::Names);
        for kernel in &image.kernels {
            if let Some(resources) = &kernel.resources {
                let constants: u64 = resources.constants.iter().map(|(_, size)| size).sum();
                table.row([
                    resources.registers.map_or("-".to_owned(), |registers| registers.to_string()).into(),
                    match (resources.spill_stores, resources.spill_loads) {
                        (Some(0), Some(0)) => "0".into(),
                        (Some(stores), Some(loads)) => (format!("{stores}/{loads}"), BAD).into(),
                        _ => "-".into(),
                    },
                    resources.stack.to_string().into(),
                    resources.shared.to_string().into(),
                    constants.to_string().into(),
                    resources.code.to_string().into(),
                    threads(resources).into(),
                    kernel_name(kernel).into(),
                ]);
            }
        }
        table.write(columns, out)?;
    } else if !image.kernels.is_empty() {
        let mut table = Table::new(&[("KERNEL", Left)], Last::Names);
        image.kernels.iter().for_each(|kernel| table.row([kernel_name(kernel).into()]));
        table.write(columns, out)?;
    }
    if !image.variables.is_empty() {
        let mut table = Table::new(&[("MEMORY", Left), ("BYTES", Right), ("VARIABLE", Left)], Last::Names);
        for variable in &image.variables {
            table.row([
                variable.memory.into(),
                variable.size.map_or("-".to_owned(), |size| size.to_string()).into(),
                variable_name(variable).into(),
            ]);
        }
        table.write(columns, out)?;
    }
    Ok(())
}

fn kernel_name(kernel: &Kernel) -> String {
    kernel.demangled.as_ref().unwrap_or(&kernel.name).clone()
}

fn variable_name(variable: &Variable) -> String {
    variable.demangled.as_ref().unwrap_or(&variable.name).clone()
}

/// The launch bounds: `<=128x2`, `=32` if no other block is allowed, `any` if there are none, with the cluster if one is fixed.
fn threads(resources: &Resources) -> String {
    let block = |[x, y, z]: [u32; 3]| match (y, z) {
        (1, 1) => x.to_string(),
        (_, 1) => format!("{x}x{y}"),
        _ => format!("{x}x{y}x{z}"),
    };
    let mut text = match (resources.required_threads, resources.max_threads) {
        (Some(required), _) => format!("={}", block(required)),
        (None, Some(most)) => format!("<={}", block(most)),
        (None, None) => "any".to_owned(),
    };
    if let Some(cluster) = resources.cluster {
        text.push_str(&format!(" cluster {}", block(cluster)));
    }
    text
}

fn entries(file: &File, columns: Columns, out: &mut dyn Write) -> io::Result<()> {
    if file.entries.is_empty() {
        return Ok(());
    }
    writeln!(out, "\n{BOLD}host entries: what the program asks for by name{BOLD:#}")?;
    let images = |entry: &Entry, found: bool| {
        let named = entry.images.iter().filter(|image| image.found == found).filter_map(|at| {
            let container = file.containers.get(at.container)?;
            Some(container.images.get(at.image)?.title())
        });
        let mut names: Vec<_> = named.collect();
        names.dedup();
        names
    };
    // Where everything is in order, one word says so; what is missing is named.
    let compared = file.entries.iter().any(|entry| !entry.images.is_empty());
    let heads: &[_] = if compared { &[("FOUND", Left)] } else { &[] };
    let mut table = Table::new(&[&[("ENTRY", Left), ("BYTES", Right)], heads, &[("NAME", Left)]].concat(), Last::Names);
    for entry in &file.entries {
        let mut row: Vec<Cell> = vec![entry.kind.into(), if entry.kind == "kernel" { "-".into() } else { entry.size.to_string().into() }];
        if compared {
            let (found, missing) = (images(entry, true), images(entry, false));
            row.push(match (&found[..], &missing[..]) {
                ([], []) => "-".into(),
                (_, []) => ("in all images".to_owned(), GOOD).into(),
                ([], _) => ("MISSING in all images".to_owned(), BAD).into(),
                (_, missing) => (format!("MISSING in {}", missing.join(", ")), BAD).into(),
            });
        }
        row.push(entry.demangled.as_ref().unwrap_or(&entry.name).clone().into());
        table.row(row);
    }
    table.write(columns, out)?;
    let missing = file.entries.iter().filter(|entry| entry.is_missing()).count();
    if missing > 0 {
        writeln!(
            out,
            "\n{BAD}{} of {} missing{BAD:#}: the program fails when it uses them on a GPU that takes such an image",
            missing,
            count(file.entries.len(), "host name"),
        )?;
    }
    Ok(())
}

fn summary(file: &File, columns: Columns, out: &mut dyn Write) -> io::Result<()> {
    writeln!(out)?;
    let images: usize = file.containers.iter().map(|container| container.images.len()).sum();
    if images == 0 {
        return writeln!(out, "No device code.");
    }
    if file.gpus.is_empty() {
        let mut archs: Vec<String> =
            file.containers.iter().flat_map(|container| &container.images).map(|image| image.arch.clone()).collect();
        archs.sort();
        archs.dedup();
        archs.retain(|arch| !arch.is_empty());
        let targets = if archs.is_empty() { String::new() } else { format!(" for {}", join(&archs, "and")) };
        return sentence(
            PLAIN,
            "",
            &format!("Device code{targets} that still has to be linked: it runs on no GPU as it is."),
            columns,
            out,
        );
    }
    let gpus = |runs: Runs| {
        let named = file.gpus.iter().filter(|gpu| gpu.runs == runs).map(gpu_name);
        named.collect::<Vec<_>>()
    };
    let native = gpus(Runs::Native);
    if !native.is_empty() {
        sentence(GOOD, "Runs natively", &format!("on {}.", join(&native, "and")), columns, out)?;
    }
    let jit = gpus(Runs::Jit);
    if !jit.is_empty() {
        let driver = file.gpus.iter().filter(|gpu| gpu.runs == Runs::Jit).filter_map(|gpu| gpu.driver).max();
        let driver = driver.map_or(String::new(), |driver| format!(" of branch r{driver} or newer"));
        let rest = format!("of its PTX by a driver{driver} on {}.", join(&jit, "and"));
        sentence(GOOD, "Runs after JIT compilation", &rest, columns, out)?;
    }
    let partly = gpus(Runs::Partly);
    if !partly.is_empty() {
        let rest = format!("on {}: some of its fat binaries have no image for them.", join(&partly, "and"));
        sentence(BAD, "Runs only in part", &rest, columns, out)?;
    }
    let nowhere = gpus(Runs::No);
    if !nowhere.is_empty() {
        let mut finals = file.containers.iter().filter(|container| container.is_final());
        let reason = match (finals.next(), finals.next()) {
            (Some(only), None) => why_nothing(only),
            _ => "no image is for them".to_owned(),
        };
        sentence(BAD, "Does not run", &format!("on {}: {reason}.", join(&nowhere, "or")), columns, out)?;
    }
    Ok(())
}

/// A sentence that opens with words in a style, in lines that fit.
fn sentence(style: Style, opening: &str, rest: &str, columns: Columns, out: &mut dyn Write) -> io::Result<()> {
    let whole = if opening.is_empty() { rest.to_owned() } else { format!("{opening} {rest}") };
    let text = columns.map_or(whole.clone(), |columns| names::wrap(&whole, columns).join("\n  "));
    let rest = text.strip_prefix(opening).unwrap_or(&text);
    writeln!(out, "{style}{opening}{style:#}{rest}")
}

fn gpu_name(gpu: &GpuVerdict) -> String {
    match Gpu::parse(&gpu.arch) {
        Ok(gpu) => gpu.to_string(),
        Err(_) => gpu.arch.clone(),
    }
}

/// Writes which image runs on the GPU of `verdict`, or why none does: a line for each container that matters.
pub(crate) fn verdict(file: &File, gpu: Gpu, verdict: Option<&GpuVerdict>, out: &mut dyn Write) -> io::Result<()> {
    let path = &file.path;
    let Some(verdict) = verdict else {
        let what = if file.containers.iter().all(|container| container.images.is_empty()) {
            "it has no device code"
        } else {
            "its device code still has to be linked"
        };
        return writeln!(out, "{path}: {BAD}does not run{BAD:#} on {gpu}: {what}");
    };
    for choice in &verdict.choices {
        let Some(container) = file.containers.get(choice.container) else { continue };
        let place = place(container, verdict.choices.len());
        match choice.image.and_then(|image| container.images.get(image)) {
            Some(image) if image.kind == ImageKind::Cubin => {
                writeln!(out, "{path}{place}: {GOOD}runs{GOOD:#} on {gpu}: the driver loads the {}", image.title())?;
            }
            Some(image) => {
                let driver = image.ptx.as_ref().and_then(|ptx| ptx.driver);
                let driver = driver.map_or("the driver".to_owned(), |driver| format!("a driver of branch r{driver} or newer"));
                writeln!(out, "{path}{place}: {GOOD}runs{GOOD:#} on {gpu}: {driver} compiles the {}", image.title())?;
            }
            None => {
                writeln!(out, "{path}{place}: {BAD}does not run{BAD:#} on {gpu}: {}", why_nothing(container))?;
            }
        }
    }
    Ok(())
}

/// Which container of several this is.
fn place(container: &Container, of: usize) -> String {
    let member = container.member.as_ref().map_or(String::new(), |member| format!("({member})"));
    match &container.section {
        Some(section) if of > 1 => format!("{member}: {section} + {:#x}", container.offset),
        None if of > 1 && container.offset != 0 => format!("{member}: at {:#x}", container.offset),
        _ => member,
    }
}
