//! The device link pipeline of warplink: from a link line to a linked program, one file per phase. [`link`] is the table of contents.
//!
//! | phase | file | gives |
//! |---|---|---|
//! | options | `link_line`, `options`, `response` | what the line asks for, and the host linker's own line |
//! | inputs | `inputs`, `script`, `resolve` | every file of the link as the host linker finds it, and which archive members it takes |
//! | extract | `extract`, `extract::nvcc`, `device_files` | device images and host entries |
//! | select | `select`, `nvcc`, `device_object`, `ptx_choice` | one job per architecture; `device` runs them |
//! | lto | `lto`, `parts`, `kernels`, `undefined` | PTX |
//! | assemble | `assemble`, `assemble::nvlink` | cubins |
//! | bundle | `bundle` | the fat binary |
//! | wrap | `wrap`, `wrap::nvcc`, `wrap/cuda.ll`, `launch_guard`, `wrap/guard.ll` | the registration object |
//! | host link | `host_link` | the program |
//! | verify | `verify` | a warning for everything that the host would look for in vain |
//!
//! [`jit`] is the same for programs that link device code at run time. What a link did is written down by `record`. Everything else serves
//! these: `units`, `cache` (device code of earlier links), `command` (child processes), `changes`, `temps`, `toolchain`, `timing`, `progress`, `jobs`,
//! `memory`, `diagnostics`, `error`.
#![forbid(unsafe_code)]

pub mod assemble;
pub mod bundle;
pub mod cache;
mod changes;
pub mod command;
pub mod device;
pub mod device_files;
pub mod device_object;
pub mod diagnostics;
mod ending;
pub mod error;
pub mod extract;
pub mod host_link;
pub mod inputs;
pub mod jit;
pub mod jobs;
pub mod kernels;
pub mod launch_guard;
pub mod link_line;
pub mod lto;
pub mod map_file;
pub mod memory;
pub mod names;
pub mod nvcc;
pub mod options;
pub mod parts;
pub mod progress;
pub mod ptx_choice;
pub mod record;
pub mod repro;
pub mod resolve;
pub mod response;
pub mod script;
pub mod select;
pub mod temps;
pub mod timing;
pub mod toolchain;
pub mod tune;
pub mod undefined;
mod units;
pub mod verify;
pub mod wrap;

use std::collections::HashSet;
use std::path::Path;

use crate::assemble::DeviceImage;
use crate::cache::Cache;
use crate::command::CommandLine;
use crate::diagnostics::Diagnostics;
use crate::ending::{Ending, wanted_record};
use crate::error::{Context, Error, Result, bail};
use crate::extract::{Entry, Found};
use crate::link_line::LinkLine;
use crate::options::{Invocation, Options};
use crate::record::{Recorder, fill};
use crate::select::UnitState;
use crate::temps::Temps;
use crate::timing::Timing;
use crate::toolchain::cuda::Toolkit;
use crate::toolchain::{Env, HostLinker, host_linker};
use crate::undefined::Explainer;
use crate::units::{extract_all, taken_units, unit_states, units_taken, without_repeated_files};

pub use llvm_lto::{
    before_llvm, demangle, is_ignored, keep_freed_memory, llvm_version, on_crash, on_fatal_error, parse_llvm_options, read_host_bitcode,
};

/// How a link line ends.
#[derive(Debug)]
pub enum Outcome {
    /// The link is done; the program ends with this code.
    Done(i32),
    /// There was no device code. Nothing is left to do but the host link itself, which may take over this process.
    HostOnly(CommandLine, Temps),
}

/// The files of a link: what every line pays for, with or without device code.
#[derive(Debug)]
pub struct Opened {
    /// The host linker. None only where no host link was asked for and no linker named.
    pub linker: Option<HostLinker>,
    /// Its inputs in line order.
    pub files: Vec<inputs::InputFile>,
    /// An input of the line was not found.
    pub missing: bool,
}

/// Finds the host linker and maps every file of the link, as that linker finds them. `own` is this program's file.
pub fn open(line: &LinkLine, own: Option<&Path>, env: Env) -> Result<Opened> {
    let linker = match host_linker(&line.options, own, env) {
        Ok(linker) => Some(linker),
        // The peer, too, says this last: what is wrong with the device code comes first.
        Err(_) if line.options.emit_fatbin_only || line.options.invoked_as == Invocation::Wrapper && line.options.linker.is_none() => None,
        Err(error) => return Err(error),
    };
    let flavour = linker.as_ref().map_or(inputs::LinkerFlavour::Gnu, |linker| linker.kind);
    let files = inputs::load(&line.options, &line.host, flavour)?;
    let found: HashSet<usize> = files.iter().map(|file| file.position).collect();
    let missing = line.host.items.iter().any(|item| !found.contains(&item.position));
    Ok(Opened { linker, files, missing })
}

/// The host linker of a line whose inputs show at a glance that the host link is all it asks for; none where that takes more than a glance.
pub fn host_only_at_a_glance(line: &LinkLine, own: Option<&Path>, env: Env) -> Option<HostLinker> {
    if wants_device_images(&line.options) {
        return None;
    }
    let linker = host_linker(&line.options, own, env).ok()?;
    inputs::none_holds_device_code(&line.options, &line.host, linker.kind).then_some(linker)
}

/// Whether a line asks for device images of its own accord, whatever its inputs hold.
fn wants_device_images(options: &Options) -> bool {
    !options.override_image.is_empty() || options.emit_fatbin_only
}

/// The objects of a link, archive members included, and which of them may hold device code.
pub struct Scan<'a> {
    /// In line order.
    pub units: Vec<resolve::Unit<'a>>,
    /// One for each unit.
    pub holding: Vec<bool>,
}

/// Looks at the headers of every object. Calls nothing of LLVM.
pub fn scan(opened: &Opened) -> Result<Scan<'_>> {
    let units = resolve::units(&opened.files)?;
    let bare = units.iter().any(|unit| unit.kind == offload_object::FileKind::OffloadBinary);
    let holding = units.iter().map(|unit| extract::may_hold_device_code(unit) || bare && extract::has_entries(unit)).collect();
    Ok(Scan { units, holding })
}

impl Scan<'_> {
    /// Whether the host link is all that the line asks for.
    pub fn is_host_only(&self, options: &Options) -> bool {
        !self.holding.contains(&true) && !wants_device_images(options)
    }
}

/// Links what a line asks for.
///
/// # Errors
/// Among others, that an input is not the one any more that was opened: whatever came of such a link is not to be used, and whatever else
/// is wrong may follow from that.
pub fn link(line: &LinkLine, opened: &Opened, scan: &Scan, env: Env, diagnostics: &Diagnostics) -> Result<Outcome> {
    let result = link_opened(line, opened, scan, env, diagnostics);
    if result.is_err() {
        // Of a link that fails after the host linker has done its part.
        temps::discard_output();
    }
    if matches!(result, Ok(Outcome::HostOnly(..))) || line.options.dry_run {
        return result;
    }
    opened.unchanged(&line.options).inspect_err(|_| {
        if matches!(result, Ok(Outcome::Done(0))) {
            temps::remove_output(&line.options.output);
        }
    })?;
    result
}

fn link_opened(line: &LinkLine, opened: &Opened, scan: &Scan, env: Env, diagnostics: &Diagnostics) -> Result<Outcome> {
    let (options, host) = (&line.options, &line.host);
    let (linker, files) = (&opened.linker, &opened.files);
    let (units, holding) = (&scan.units, &scan.holding);
    let mut recorder = Recorder::new(wanted_record(options, env));
    let timing = Timing::new(options.time_trace.is_some() || recorder.is_full(), diagnostics.progress().clone());
    let temps = Temps::new(options.save_temps.then_some(options.output.as_path()), options.dry_run);
    let flavour = linker.as_ref().map_or(inputs::LinkerFlavour::Gnu, |linker| linker.kind);

    // Most link lines have no device code: they do not pay for ours.
    if scan.is_host_only(options) {
        return host_only(linker, line, temps, diagnostics);
    }

    let host = &host_link::without_device_files(host, files);

    // The host linker knows best what it misses and how to say it. Where it misses nothing after all, the link goes on.
    if opened.missing && !options.dry_run && !options.emit_fatbin_only {
        let command = host_link::plain_command(required(linker)?, host, &temps)?;
        let status = host_link::run(&command, options, diagnostics)?;
        if !status.success() {
            temps::release_output();
            return Ok(Outcome::Done(status.code().unwrap_or(1)));
        }
        // It lacks the device code.
        temps::discard_output();
        opened.still_missing(line)?;
    }

    // Which members of archives the host link takes; their device code takes part.
    let mut resolution = timing.stage("resolve", 0, "", || taken_units(units, holding, flavour, options, &[]))?;
    let mut states = unit_states(units, &resolution.taken);

    // Device images and host entries. Modules of nvcc's that somebody has linked already are not ours.
    let mut found = timing.stage("extract", 0, "", || extract_all(units, holding))?;
    let linked_by_nvcc = nvcc::leave_linked_alone(&mut found, units);
    // Entries of members that stay out are named, too: weakly, which costs nothing, and the host linker has the last word on who is in.
    let mut entry_symbols: Vec<String> = found.iter().flat_map(|found| &found.entries).map(|entry| entry.symbol.clone()).collect();
    let mut seen = std::collections::HashSet::new();
    let mut repeated_entries = Vec::new();
    entry_symbols.retain(|symbol| {
        let first = seen.insert(symbol.clone());
        if !first && !repeated_entries.contains(symbol) {
            repeated_entries.push(symbol.clone());
        }
        first
    });
    if wrapped_already(units, &states) && options.override_image.is_empty() {
        if found.iter().any(|found| !found.inputs.is_empty()) {
            diagnostics.warn(
                "already-wrapped",
                "device code has been linked already, by a clang-linker-wrapper that ran before this link; only the host is linked",
            );
        }
        return host_only(linker, line, temps, diagnostics);
    }
    if units_taken(&found, &states).all(|found| found.inputs.is_empty())
        && options.override_image.is_empty()
        && !options.emit_fatbin_only
        && options.should_extract.is_empty()
    {
        return host_only(linker, line, temps, diagnostics);
    }

    let toolkit = Toolkit::find(options, env)?;
    if !options.mllvm.is_empty() {
        parse_llvm_options(&options.mllvm).map_err(|error| Error::new(error.to_string()))?;
    }
    temps.warn_of_place(diagnostics);
    let cache = Cache::open(options, env, diagnostics).over(files).with_tools_of(&toolkit);
    // What only the device link gets: the device linker's own files, and NVIDIA's device runtime as soon as device code calls it.
    let given = device_files::load(&options.device_libs, &toolkit)?;
    let given_units = resolve::units(&given.files)?;
    let runtime = nvcc::DeviceRuntime::default();
    let mut inputs: Vec<_> = found.iter_mut().flat_map(|found| std::mem::take(&mut found.inputs)).collect();
    inputs = without_repeated_files(inputs, units, files);
    inputs.extend(device_files::inputs(&given_units, units.len())?);
    let shared = undefined::shared_objects(units);
    let mut drawing = Vec::new();
    let mut question = None;
    let mut asked = false;
    diagnostics.record();
    let mut stubs = Vec::new();
    let nvcc_launches = found.iter().any(|found| !found.modules.is_empty());
    let (code, entries, mut modules) = loop {
        // Host code that launches a kernel of the other compiler's needs the member that defines it.
        let more = if nvcc_launches { nvcc::stubs_to_draw(units, holding, &states, &drawing) } else { Vec::new() };
        if !more.is_empty() {
            drawing.extend(more.iter().cloned());
            stubs.extend(more);
            resolution = timing.stage("resolve", 0, "", || taken_units(units, holding, flavour, options, &drawing))?;
            states = unit_states(units, &resolution.taken);
            continue;
        }
        let entries: Vec<Entry> = units_taken(&found, &states).flat_map(|found| found.entries.iter().cloned()).collect();
        if !options.override_image.is_empty() {
            break (
                DeviceCode::Made(device::overriding_images(options)?),
                entries,
                nvcc::registered(&inputs, &[], &states, |unit| unit < units.len()),
            );
        }
        let host_references: Vec<String> = units_taken(&found, &states).flat_map(|found| found.host_references.iter().cloned()).collect();
        let mut all_states = states.clone();
        all_states.extend(given_units.iter().map(device_files::state));
        let runtime_from = all_states.len();
        all_states.extend(runtime.units().iter().map(device_files::state));
        // Where all of it has been linked before, neither LLVM nor ptxas is needed.
        if !std::mem::replace(&mut asked, true) {
            question = cache::link::Question::new(
                &cache,
                &cache::link::Asked {
                    options,
                    toolkit: &toolkit,
                    inputs: &inputs,
                    states: &all_states,
                    host_units: units.len(),
                    opaque: !given.others.is_empty(),
                    roots: entries.iter().map(|entry| &entry.name).chain(&host_references).map(String::as_str).collect(),
                },
            );
            if let Some(known) = timing.stage("cache", 0, "", || question.as_ref()?.known(options, &toolkit, recorder.wanted())) {
                if known.device_runtime {
                    runtime.find(&toolkit)?;
                    inputs.extend(device_files::inputs(runtime.units(), runtime_from)?);
                }
                if let Some(modules) = known.modules(&inputs) {
                    break (DeviceCode::from(known), entries, modules);
                }
                continue;
            }
        }
        let explainer = Explainer {
            inputs: &inputs,
            linked_by_nvcc: &linked_by_nvcc,
            no_device_runtime: runtime.missing(),
            units,
            shared: &shared,
            diagnostics,
            keep_seen: recorder.is_on(),
        };
        let setting = device::Setting {
            toolkit: &toolkit,
            options,
            env,
            temps: &temps,
            timing: &timing,
            recorder: &recorder,
            diagnostics,
            explainer: &explainer,
            device_libs: &given.others,
            host_references: &host_references,
            cache: &cache,
        };
        let selection = device::select(&inputs, &all_states, &entries, &setting)?;
        let wanted = nvcc::wanted(&selection.jobs, &inputs, &states, &drawing);
        if wanted.device_runtime && !runtime.is_asked_for() {
            runtime.find(&toolkit)?;
            inputs.extend(device_files::inputs(runtime.units(), runtime_from)?);
            continue;
        }
        if !wanted.host_symbols.is_empty() {
            // Device code of members that the host link does not take by itself: registered, they come in, and others with them.
            drawing.extend(wanted.host_symbols);
            resolution = timing.stage("resolve", 0, "", || taken_units(units, holding, flavour, options, &drawing))?;
            states = unit_states(units, &resolution.taken);
            continue;
        }
        // From here on the set of device inputs is fixed: archives have given what they give, and each image knows its unit.
        let on_host_line = |unit| unit < units.len() || unit >= runtime_from;
        let modules = nvcc::registered(&inputs, &selection.jobs, &all_states, on_host_line);
        let all_units = units.iter().chain(&given_units).chain(runtime.units()).collect();
        let because = &resolution.because;
        let recorded = fill::Inputs { units: all_units, host_units: units.len(), states: &all_states, because, inputs: &inputs };
        recorder.selection(&recorded, &selection.jobs);
        break (DeviceCode::Made(device::images(selection, &setting)?), entries, modules);
    };

    modules.awaited = nvcc::with_managed_variables(&found);

    // From here on all images are final. They are in the order of their architectures, whatever order they were made in.
    let (fatbin, images) = match code {
        DeviceCode::Known { fatbin, images, record } => {
            timing.cached("device link", 0, "");
            // How it was made is what the link that made it has written down.
            let because = &resolution.because;
            let now = fill::Inputs { units: units.iter().collect(), host_units: units.len(), states: &states, because, inputs: &inputs };
            if !recorder.made_before(&record, &now) && !recorder.is_full() {
                recorder = Recorder::new(record::Wanted::Nothing);
            }
            (fatbin, images)
        }
        DeviceCode::Made(images) if options.dry_run && images.iter().all(|image| image.cubin.as_ref().is_some_and(Vec::is_empty)) => {
            (Vec::new(), verify::present(&images))
        }
        DeviceCode::Made(images) => {
            let fatbin = timing.stage("bundle", 0, "", || bundle::bundle(&images, options, &toolkit))?;
            recorder.images(&images, &fatbin);
            let images = verify::present(&images);
            // What draws in members depends on host symbols, which the cache knows nothing of.
            if let Some(question) = question.filter(|_| drawing.is_empty()) {
                let record = &recorder.for_later();
                let device_runtime = runtime.is_asked_for();
                let made = cache::link::Made { fatbin: &fatbin, images: &images, modules: &modules, device_runtime, record };
                question.keep(&made, &toolkit, &diagnostics.recorded());
            }
            (fatbin, images)
        }
    };
    temps.keep("fatbin", || Ok(fatbin.clone()))?;
    recorder.tools(linker.as_ref().map(|linker| linker.path.as_path()), toolkit.root.as_deref());
    let ending = Ending { options, timing: &timing, recorder: &recorder, images: &images, env, diagnostics };
    if options.emit_fatbin_only {
        if !options.dry_run {
            temps::replace_file(&options.output, &fatbin, None)?;
        }
        return ending.finish(0);
    }
    let linker = required(linker)?;

    // The registration object, for the host that the objects are made for.
    let triple = host_triple(options, units_taken(&found, &states));
    if options.relocatable && wrap::is_coff(&triple) {
        bail!("{}: relocatable linking is not supported on COFF targets ({triple})", options.output.display());
    }
    let entry_symbols = if wrap::is_coff(&triple) { repeated_entries } else { entry_symbols };
    let guard = launch_guard::plan(options, wrap::is_coff(&triple), linker.kind, units, &found, &states, &inputs, &images, diagnostics);
    if options.print_wrapped_module {
        let module = wrap::printed_module(&triple, &fatbin, &entry_symbols, &modules, guard.as_ref())?;
        diagnostics.progress().hidden(|| eprint!("{module}"));
    }
    let object = if options.dry_run {
        temps.path("registration.o")?
    } else {
        let bytes =
            timing.stage("wrap", 0, "", || wrap::registration_object(&triple, &fatbin, &entry_symbols, &modules, guard.as_ref()))?;
        temps.write("registration.o", &bytes)?
    };
    let fatbin_size = fatbin.len();
    drop(fatbin);

    // The user's own link.
    let mut temporaries = vec![object];
    let has_modules = !modules.ids.is_empty();
    let nvcc_side = host_link::NvccSide {
        has_modules,
        // In a relocatable link as well: what comes after it sees host code only, and cannot know whose stub is missing.
        aliases: if has_modules { nvcc::stub_aliases(units, &states) } else { Vec::new() },
        drawn: stubs,
        library: runtime.library(&modules),
    };
    let command = host_link::command(
        linker,
        host,
        options,
        &mut temporaries,
        fatbin_size,
        &entries,
        &nvcc_side,
        guard.as_ref(),
        &temps,
        diagnostics,
    )?;
    if diagnostics.failed() {
        return ending.finish(1);
    }
    if options.verbose || options.dry_run {
        diagnostics.verbose(&format!(" {command}"));
    }
    if options.dry_run {
        return ending.finish(0);
    }
    let status = timing.stage("host link", 0, "", || host_link::run(&command, options, diagnostics))?;
    if let Some(path) = &options.dependency_file {
        host_link::clean_dependency_file(path, &temporaries)?;
    }
    if let Some(path) = &options.map_file {
        map_file::rename_temporaries(path, &options.output, &temporaries)?;
    }
    if let Some(code) = status.code().filter(|&code| code != 0) {
        // The linker has said what is wrong; its code is ours.
        temps::release_output();
        return ending.finish(code);
    }
    host_link::check_written(linker, host, options)?;

    // What the host will look for must be there.
    if options.relocatable {
        timing.stage("separate", 0, "", || host_link::separate(&options.output)).inspect_err(|_| temps::remove_output(&options.output))?;
    } else {
        timing.stage("verify", 0, "", || {
            let strays = units.iter().zip(&states).zip(holding).enumerate().filter(|(_, ((_, state), holding))| state.taken && !**holding);
            let strays = strays.flat_map(|(index, ((unit, _), _))| extract::stray_entries(index, unit));
            let expected: Vec<Entry> = entries.iter().cloned().chain(strays).collect();
            verify::verify(&options.output, &images, &expected, diagnostics);
        });
    }
    if diagnostics.failed() {
        // As linkers do under --fatal-warnings: what must not be used must not be there.
        temps::remove_output(&options.output);
    }
    temps::release_output();
    ending.finish(0)
}

/// Whether an object of the link registers device code of the others: a wrapper has been here before us.
fn wrapped_already(units: &[resolve::Unit], states: &[UnitState]) -> bool {
    units.iter().zip(states).any(|(unit, state)| {
        state.taken
            && matches!(unit.kind, offload_object::FileKind::ElfRelocatable | offload_object::FileKind::Coff)
            && offload_object::HostObject::parse(unit.data).is_ok_and(|object| object.is_registration_object())
    })
}

fn required(linker: &Option<HostLinker>) -> Result<&HostLinker> {
    linker.as_ref().context(|| "linker path missing, must pass 'linker-path'")
}

/// The host link alone.
pub fn host_only(linker: &Option<HostLinker>, line: &LinkLine, temps: Temps, diagnostics: &Diagnostics) -> Result<Outcome> {
    let command = host_link::plain_command(required(linker)?, &line.host, &temps)?;
    if line.options.verbose || line.options.dry_run {
        diagnostics.verbose(&format!(" {command}"));
    }
    if line.options.dry_run {
        return Ok(Outcome::Done(0));
    }
    Ok(Outcome::HostOnly(command, temps))
}

/// Device code of a link, made before or now.
enum DeviceCode {
    Known { fatbin: Vec<u8>, images: Vec<verify::Present>, record: Vec<u8> },
    Made(Vec<DeviceImage>),
}

impl From<cache::link::Known> for DeviceCode {
    fn from(known: cache::link::Known) -> DeviceCode {
        DeviceCode::Known { fatbin: known.fatbin, images: known.images, record: known.record }
    }
}

/// The host's triple: from the line, else from the objects, else this machine's.
fn host_triple<'f, 'a: 'f>(options: &Options, mut found: impl Iterator<Item = &'f Found<'a>>) -> String {
    options
        .host_triple
        .clone()
        .or_else(|| found.find_map(|found| found.host_triple.clone()))
        .unwrap_or_else(|| format!("{}-unknown-linux-gnu", std::env::consts::ARCH))
}

/// FNV-1a: tells outputs apart, and is the same everywhere.
fn content_hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &b| (hash ^ u64::from(b)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// Whether a line is meant for a linker (`ld a.o`) and not for the wrapper.
pub fn is_linker_line(options: &Options) -> bool {
    matches!(options.invoked_as, Invocation::Linker(_))
}
