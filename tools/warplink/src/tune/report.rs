//! What `warplink tune` found out, and how it is written. The serialized form is the `--json` output: fields may be added, not renamed or removed.

use std::io::{self, Write};

use serde::Serialize;

use crate::inspect::table::{Align, Last, Table};

/// All files.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) schema: u32,
    pub(super) files: Vec<File>,
}

#[derive(Debug, Serialize)]
pub(super) struct File {
    pub(super) path: String,
    pub(super) images: Vec<Image>,
    pub(super) problems: Vec<String>,
}

/// The kernels of one cubin, or of PTX that there is no cubin of.
#[derive(Debug, Serialize)]
pub(super) struct Image {
    pub(super) origin: String,
    pub(super) arch: String,
    /// None where nobody says what this architecture has.
    pub(super) multiprocessor: Option<Multiprocessor>,
    pub(super) kernels: Vec<Kernel>,
}

#[derive(Debug, Serialize)]
pub(super) struct Multiprocessor {
    pub(super) warps: u32,
    pub(super) blocks: u32,
    pub(super) registers: u32,
    pub(super) shared: u32,
}

#[derive(Debug, Serialize)]
pub(super) struct Kernel {
    pub(super) name: String,
    pub(super) demangled: Option<String>,
    pub(super) registers: Option<u32>,
    pub(super) spill_stores: Option<u64>,
    pub(super) spill_loads: Option<u64>,
    /// Of the block that occupancy is counted for.
    pub(super) threads: u32,
    pub(super) threads_from: ThreadsFrom,
    /// Bytes of a block.
    pub(super) shared: u64,
    /// The fewest registers first.
    pub(super) steps: Vec<Step>,
    /// The PTX that ptxas was asked about.
    pub(super) ptx: Option<String>,
    /// What ptxas makes of it without a limit, where that is not what the file has.
    pub(super) ptxas_registers: Option<u32>,
}

/// Who says how large a block is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum ThreadsFrom {
    /// The code fixes it.
    Required,
    /// The launch bounds, which are the most.
    LaunchBounds,
    /// `--block`.
    Given,
    /// Nobody.
    Assumed,
}

#[derive(Debug, Serialize)]
pub(super) struct Step {
    pub(super) maxnreg: u32,
    pub(super) blocks: u32,
    pub(super) warps: u32,
    pub(super) occupancy: f64,
    /// The kernel is here.
    pub(super) now: bool,
    /// With this limit.
    pub(super) registers: Option<u32>,
    pub(super) spill_stores: Option<u64>,
    pub(super) spill_loads: Option<u64>,
}

/// The report for people.
pub(super) fn render(report: &Report, columns: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let mut first = true;
    for file in &report.files {
        for image in &file.images {
            writeln!(out, "{}{}: {}", if first { "" } else { "\n" }, image.origin, heading(image))?;
            first = false;
            for kernel in &image.kernels {
                render_kernel(kernel, columns, out)?;
            }
        }
        if file.images.is_empty() && file.problems.is_empty() {
            writeln!(out, "{}: no kernels", file.path)?;
        }
        for problem in &file.problems {
            writeln!(out, "{}{problem}", if first { "" } else { "\n" })?;
            first = false;
        }
    }
    out.flush()
}

fn heading(image: &Image) -> String {
    match &image.multiprocessor {
        Some(sm) => format!(
            "{}, whose multiprocessors hold {} warps, {} blocks, {} registers and {} KB of shared memory",
            image.arch,
            sm.warps,
            sm.blocks,
            sm.registers,
            sm.shared / 1024
        ),
        None => format!("{}, of which it is not known what its multiprocessors hold", image.arch),
    }
}

fn render_kernel(kernel: &Kernel, columns: Option<usize>, out: &mut dyn Write) -> io::Result<()> {
    let threads = match kernel.threads_from {
        ThreadsFrom::Required => "as the code fixes it",
        ThreadsFrom::LaunchBounds => "the most that its launch bounds allow",
        ThreadsFrom::Given => "as given",
        ThreadsFrom::Assumed => "assumed; --block says otherwise",
    };
    let shown = kernel.demangled.as_deref().unwrap_or(&kernel.name);
    let registers = kernel.registers.map_or("an unknown number of".to_owned(), |registers| registers.to_string());
    let spills = match (kernel.spill_stores, kernel.spill_loads) {
        (Some(0), Some(0)) => ", no spills".to_owned(),
        (Some(stores), Some(loads)) => format!(", {stores}/{loads} bytes of spills"),
        _ => String::new(),
    };
    writeln!(out, "\n{shown}\n  {registers} registers{spills}, blocks of {} threads ({threads})", kernel.threads)?;
    if let (Some(alone), Some(registers)) = (kernel.ptxas_registers, kernel.registers) {
        writeln!(out, "  ptxas alone makes {alone} registers of its PTX, not {registers}: other options or another toolkit made the file")?;
    }
    if kernel.steps.is_empty() {
        return Ok(());
    }
    let numbers = ["MAXNREG", "BLOCKS", "WARPS", "OCCUPANCY", "REGS", "SPILL STORES", "SPILL LOADS"].map(|head| (head, Align::Right));
    let mut table = Table::new(&[&numbers[..], &[("", Align::Left)]].concat(), Last::Text);
    let number = |number: Option<u64>| number.map_or("-".to_owned(), |number| number.to_string());
    for step in &kernel.steps {
        table.row([
            step.maxnreg.to_string().into(),
            step.blocks.to_string().into(),
            step.warps.to_string().into(),
            format!("{:.0} %", step.occupancy * 100.0).into(),
            number(step.registers.map(u64::from)).into(),
            number(step.spill_stores).into(),
            number(step.spill_loads).into(),
            if step.now { "now" } else { "" }.into(),
        ]);
    }
    table.write(columns, out)?;
    let name = kernel.demangled.as_deref().map_or(kernel.name.as_str(), device_link::kernels::plain);
    if let Some(step) = kernel.steps.iter().rev().find(|step| !step.now && step.blocks > kernel.blocks_now()) {
        writeln!(out, "  to try one: -Wl,--warplink-kernel={name}:maxnreg={}", step.maxnreg)?;
    }
    Ok(())
}

impl Kernel {
    fn blocks_now(&self) -> u32 {
        self.steps.iter().find(|step| step.now).map_or(0, |step| step.blocks)
    }
}
