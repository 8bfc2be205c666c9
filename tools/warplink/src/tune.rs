//! `warplink tune`: for each kernel the registers, the blocks that fit with them, the steps at which another one would, and what ptxas says of
//! spills at each: what a person needs to choose a `--warplink-kernel=PATTERN:maxnreg=N`.

mod code;
mod report;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;

use device_link::jobs;
use device_link::kernels::KernelSetting;
use device_link::link_line;
use device_link::options::Options;
use device_link::temps::Temps;
use device_link::toolchain::Env;
use device_link::toolchain::cuda::Toolkit;
use device_link::tune::{Measured, Program, assemble, measure};
use fatbin::cubin::{self, Cubin};
use fatbin::occupancy::{self, Multiprocessor};
use fatbin::{Arch, Spills};

use crate::inspect::gpus::Gpu;
use code::{Code, Text};
use report::{File, Image, Kernel, Report, Step, ThreadsFrom};

/// Threads of a block where nobody says how many.
const ASSUMED: u32 = 256;
/// Steps that are shown with more blocks than now, and with fewer.
const NEAR: (usize, usize) = (3, 1);

/// The options of `warplink tune`.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Args {
    /// Programs, shared objects, objects, archives, fat binaries, cubins or PTX
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Only kernels of this name, as --warplink-kernel has it; repeatable
    #[arg(long, value_name = "PATTERN")]
    kernel: Vec<String>,
    /// Only code for this GPU, such as sm_90, 9.0 or H200
    #[arg(long, value_name = "GPU")]
    gpu: Option<String>,
    /// Threads of a block, where the code does not fix it
    #[arg(long, value_name = "THREADS", value_parser = clap::value_parser!(u32).range(1..=1024))]
    block: Option<u32>,
    /// Bytes of shared memory that a block is given at launch, beyond those in the code
    #[arg(long, value_name = "BYTES", default_value_t = 0)]
    shared: u64,
    /// Show every step, not only those near the present number of registers
    #[arg(long)]
    all: bool,
    /// PTX of the program, such as --save-temps leaves; repeatable. Otherwise that of the file, or of FILE.sm_NN.ptx beside it
    #[arg(long, value_name = "FILE")]
    ptx: Vec<PathBuf>,
    /// The CUDA toolkit whose ptxas is asked
    #[arg(long, value_name = "DIR")]
    cuda_path: Option<PathBuf>,
    /// One more argument for ptxas; repeatable
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    ptxas_argument: Vec<OsString>,
    /// Write JSON, as docs/tune.md describes it
    #[arg(long)]
    json: bool,
}

/// Writes what is known of the kernels of all files to `out`. False where there is no kernel that was asked for.
///
/// # Errors
/// An argument that makes no sense, a file that cannot be read, a failure to write. What ptxas says is in the report.
pub(crate) fn run(args: &Args, columns: Option<usize>, env: Env, out: &mut dyn Write) -> Result<bool, String> {
    let tuner = Tuner::new(args, env)?;
    let mut files = Vec::new();
    for path in &args.files {
        let mut code = code::read(path)?;
        let mut given: Vec<(PathBuf, bool)> = args.ptx.iter().map(|path| (path.clone(), true)).collect();
        let archs: Vec<Arch> = code.cubins.iter().filter_map(|(_, bytes)| Some(Cubin::parse(bytes).ok()?.arch())).collect();
        for arch in archs {
            // As --save-temps names it.
            let mut beside = path.clone().into_os_string();
            beside.push(format!(".{arch}.ptx"));
            given.push((beside.into(), false));
        }
        for (text, must_be) in given {
            match std::fs::read(&text) {
                Ok(bytes) => code.add_text(&text.display().to_string(), &bytes),
                Err(error) if must_be => return Err(format!("{}: {error}", text.display())),
                Err(_) => {}
            }
        }
        files.push(tuner.file(path.display().to_string(), &code));
    }
    let report = Report { schema: 1, files };
    let written = if args.json {
        serde_json::to_writer_pretty(&mut *out, &report)
            .map_err(std::io::Error::from)
            .and_then(|()| writeln!(out))
            .and_then(|()| out.flush())
    } else {
        report::render(&report, columns, out)
    };
    match written {
        // Whoever reads may stop.
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => Err(format!("cannot write the report: {error}")),
        _ => Ok(report.files.iter().any(|file| !file.images.is_empty())),
    }
}

/// What is the same for all files.
struct Tuner<'a> {
    args: &'a Args,
    patterns: Vec<KernelSetting>,
    gpu: Option<Arch>,
    options: Options,
    env: Env<'a>,
    toolkit: Result<Toolkit, String>,
}

/// A kernel and the steps that ptxas shall be asked about.
struct Asked<'c> {
    kernel: Kernel,
    found: Option<Found>,
    text: Option<&'c Text>,
}

/// What a cubin says of a kernel.
#[derive(Clone, Copy)]
struct Found {
    registers: Option<u32>,
    /// Something keeps ptxas from using more.
    limited: bool,
}

impl<'a> Tuner<'a> {
    fn new(args: &'a Args, env: Env<'a>) -> Result<Tuner<'a>, String> {
        let mut options = link_line::parse(vec![OsString::from("ld")], &|_| None).map_err(|error| error.to_string())?.options;
        options.cuda_path.clone_from(&args.cuda_path);
        let named = |pattern: &String| KernelSetting { pattern: pattern.clone(), limits: Default::default() };
        Ok(Tuner {
            patterns: args.kernel.iter().map(named).collect(),
            gpu: args.gpu.as_deref().map(Gpu::parse).transpose()?.map(|gpu| gpu.arch),
            toolkit: Toolkit::find(&options, env).map_err(|error| error.to_string()),
            options,
            env,
            args,
        })
    }

    fn wants(&self, arch: Arch, kernel: &str) -> bool {
        self.gpu.is_none_or(|gpu| gpu.sm == arch.sm)
            && (self.patterns.is_empty() || self.patterns.iter().any(|pattern| pattern.names(kernel)))
    }

    fn file(&self, path: String, code: &Code) -> File {
        let mut file = File { path, images: Vec::new(), problems: code.problems.clone() };
        let mut without_text = false;
        for (origin, bytes) in &code.cubins {
            match self.cubin(origin, bytes, code) {
                Ok(Some((image, problems, complete))) => {
                    file.images.push(image);
                    file.problems.extend(problems);
                    without_text |= !complete;
                }
                Ok(None) => {}
                Err(error) => file.problems.push(format!("{origin}: {error}")),
            }
        }
        if code.cubins.is_empty() {
            for text in &code.texts {
                match self.text(text) {
                    Ok(image) => file.images.extend(image),
                    Err(error) => file.problems.push(format!("{}: {error}", text.origin)),
                }
            }
        }
        if without_text {
            file.problems.push(format!(
                "{}: has no PTX of these kernels, so ptxas cannot be asked about other numbers of registers; link it with --warplink-ptx=all or \
                 with --save-temps, or name its PTX with --ptx=FILE",
                file.path
            ));
        }
        if code.cubins.is_empty() && code.texts.is_empty() && code.bitcode {
            file.problems
                .push(format!("{}: holds bitcode only, which has no registers before it is linked; look at the program", file.path));
        }
        file.problems.sort();
        file.problems.dedup();
        file
    }

    /// The kernels of a cubin, if any are wanted: with what went wrong, and whether there was PTX for all of them.
    #[allow(clippy::type_complexity)]
    fn cubin(&self, origin: &str, bytes: &[u8], code: &Code) -> Result<Option<(Image, Vec<String>, bool)>, String> {
        let cubin = Cubin::parse(bytes).map_err(|error| error.to_string())?;
        let arch = cubin.arch();
        let mut asked = Vec::new();
        for kernel in cubin.kernels().map_err(|error| error.to_string())?.into_iter().filter(|kernel| self.wants(arch, kernel.name)) {
            let text = text_of(kernel.name, arch, &code.texts);
            // Launch bounds leave a limit of their own, which binds only where all of it is used.
            let limited = kernel.spills != Some(Spills::default())
                || kernel
                    .max_registers
                    .is_some_and(|most| most < occupancy::MOST_REGISTERS && kernel.registers.is_some_and(|now| now >= most));
            let found = Found { registers: kernel.registers, limited };
            asked.push(Asked { kernel: self.kernel(&kernel, arch), found: Some(found), text });
        }
        if asked.is_empty() {
            return Ok(None);
        }
        let complete = asked.iter().all(|asked| asked.text.is_some());
        let problems = self.ask(arch, &mut asked).err();
        let problems = problems.into_iter().map(|error| format!("{origin}: {error}")).collect();
        Ok(Some((image(origin, arch, asked), problems, complete)))
    }

    /// PTX alone: what ptxas makes of it is the present state.
    fn text(&self, text: &Text) -> Result<Option<Image>, String> {
        let arch = self.gpu.filter(|gpu| serves(text.target, *gpu)).unwrap_or(text.target);
        let program = self.program(text, arch)?;
        let made = assemble(&program, &BTreeMap::new(), &Temps::new(None, false), "alone").map_err(|error| error.to_string())?;
        let code = Code { texts: vec![text.clone()], ..Code::default() };
        self.cubin(&text.origin, &made, &code).map(|found| found.map(|(image, ..)| image))
    }

    fn program<'t>(&'t self, text: &'t Text, arch: Arch) -> Result<Program<'t>, String> {
        let toolkit = self.toolkit.as_ref().map_err(Clone::clone)?;
        let ptxas = toolkit.ptxas.as_deref();
        let ptxas = ptxas.ok_or_else(|| toolkit.missing("asking about other numbers of registers").to_string())?;
        Ok(Program { text: &text.bytes, arch, ptxas, arguments: &self.args.ptxas_argument })
    }

    /// What the cubin says, and the steps near it.
    fn kernel(&self, kernel: &cubin::Kernel, arch: Arch) -> Kernel {
        let product = |sides: [u32; 3]| sides.iter().fold(1_u32, |all, side| all.saturating_mul(*side));
        let (threads, threads_from) = match (kernel.required_threads, self.args.block, kernel.max_threads) {
            (Some(required), ..) => (product(required), ThreadsFrom::Required),
            (None, Some(given), _) => (given, ThreadsFrom::Given),
            (None, None, Some(most)) => (product(most), ThreadsFrom::LaunchBounds),
            (None, None, None) => (ASSUMED, ThreadsFrom::Assumed),
        };
        let shared = kernel.shared.saturating_add(self.args.shared);
        let steps = match (Multiprocessor::of(arch), kernel.registers) {
            (Some(sm), Some(registers)) => near(sm, threads, shared, registers, self.args.all),
            _ => Vec::new(),
        };
        Kernel {
            name: kernel.name.to_owned(),
            demangled: device_link::names::demangled(kernel.name),
            registers: kernel.registers,
            spill_stores: kernel.spills.map(|spills| spills.stores),
            spill_loads: kernel.spills.map(|spills| spills.loads),
            threads,
            threads_from,
            shared,
            steps,
            ptx: None,
            ptxas_registers: None,
        }
    }

    /// Has ptxas assemble every step of the kernels that there is PTX for: each run takes the next step of every kernel.
    fn ask(&self, arch: Arch, asked: &mut [Asked]) -> Result<(), String> {
        let mut by_text: HashMap<*const Text, (&Text, Vec<usize>)> = HashMap::new();
        for (index, asked) in asked.iter().enumerate() {
            if let Some(text) = asked.text {
                by_text.entry(text).or_insert((text, Vec::new())).1.push(index);
            }
        }
        let mut runs: Vec<(&Text, BTreeMap<String, u32>)> = Vec::new();
        for (text, kernels) in by_text.into_values() {
            // Without a limit, to see that it is the same program.
            runs.push((text, BTreeMap::new()));
            let most = kernels.iter().filter_map(|&index| Some(asked.get(index)?.steps_to_ask().len())).max().unwrap_or(0);
            for number in 0..most {
                let limit = |&index: &usize| {
                    let asked = asked.get(index)?;
                    Some((asked.kernel.name.clone(), *asked.steps_to_ask().get(number)?))
                };
                runs.push((text, kernels.iter().filter_map(limit).collect()));
            }
        }
        let temps = Temps::new(None, false);
        let measured = jobs::run_all(runs, &self.options, self.env, |number, (text, limits)| {
            let program = self.program(text, arch)?;
            let results = measure(&program, &limits, &temps, &number.to_string()).map_err(|error| error.to_string())?;
            Ok::<_, String>((text.origin.clone(), limits, results))
        })
        .map_err(|error| error.to_string())?;
        let mut errors = Vec::new();
        for result in measured {
            match result {
                Ok((origin, limits, results)) => asked.iter_mut().for_each(|asked| asked.learn(&origin, &limits, &results)),
                Err(error) => errors.push(error),
            }
        }
        for asked in asked {
            asked.conclude();
        }
        errors.into_iter().next().map_or(Ok(()), Err)
    }
}

impl Asked<'_> {
    /// The limits that could change something: those below what the kernel has, and all where something limits it already.
    fn steps_to_ask(&self) -> Vec<u32> {
        let Some(Found { registers: Some(registers), limited }) = self.found else { return Vec::new() };
        let steps = self.kernel.steps.iter().map(|step| step.maxnreg);
        steps.filter(|&step| step < registers || limited && step > registers).collect()
    }

    /// Takes what one run of ptxas made.
    fn learn(&mut self, origin: &str, limits: &BTreeMap<String, u32>, results: &BTreeMap<String, Measured>) {
        let Some(result) = results.get(&self.kernel.name).filter(|_| self.text.is_some_and(|text| text.origin == origin)) else { return };
        self.kernel.ptx = Some(origin.to_owned());
        match limits.get(&self.kernel.name) {
            Some(limit) => {
                for step in self.kernel.steps.iter_mut().filter(|step| step.maxnreg == *limit) {
                    step.fill(result.registers, result.spills);
                }
            }
            None if limits.is_empty() => {
                self.kernel.ptxas_registers = Some(result.registers).filter(|&registers| Some(registers) != self.kernel.registers);
            }
            None => {}
        }
    }

    /// With a limit that binds nowhere, a kernel is what it is.
    fn conclude(&mut self) {
        let asked = self.steps_to_ask();
        let (Some(registers), Some(stores), Some(loads)) = (self.kernel.registers, self.kernel.spill_stores, self.kernel.spill_loads)
        else {
            return;
        };
        for step in self.kernel.steps.iter_mut().filter(|step| step.maxnreg >= registers && !asked.contains(&step.maxnreg)) {
            step.fill(registers, Some(Spills { stores, loads }));
        }
    }
}

impl Step {
    fn fill(&mut self, registers: u32, spills: Option<Spills>) {
        self.registers = Some(registers);
        self.spill_stores = spills.map(|spills| spills.stores);
        self.spill_loads = spills.map(|spills| spills.loads);
    }
}

/// The steps near a number of registers.
fn near(sm: Multiprocessor, threads: u32, shared: u64, registers: u32, all: bool) -> Vec<Step> {
    let steps = sm.steps(threads, shared);
    let Some(now) = steps.iter().position(|step| step.registers >= registers) else { return Vec::new() };
    let shown = if all { 0..=steps.len() } else { now.saturating_sub(NEAR.0)..=now + NEAR.1 };
    let of = |(index, step): (usize, &occupancy::Step)| Step {
        maxnreg: step.registers,
        blocks: step.blocks,
        warps: step.blocks * sm.warps_of(threads),
        occupancy: sm.occupancy(threads, step.blocks),
        now: index == now,
        registers: None,
        spill_stores: None,
        spill_loads: None,
    };
    steps.iter().enumerate().filter(|(index, _)| shown.contains(index)).map(of).collect()
}

/// Whether PTX for one target can be assembled for another: that of an `a` or `f` variant serves nothing else.
fn serves(target: Arch, arch: Arch) -> bool {
    target == arch || target.suffix.is_none() && target.ptx_runs_on(arch)
}

/// The PTX that a kernel's machine code was made from: that for its architecture, otherwise the newest that serves it.
fn text_of<'c>(kernel: &str, arch: Arch, texts: &'c [Text]) -> Option<&'c Text> {
    let defines = |text: &&Text| {
        fatbin::ptx::symbols(&text.bytes)
            .iter()
            .any(|symbol| symbol.name == kernel && symbol.defined && symbol.kind == fatbin::ptx::SymbolKind::Entry)
    };
    let serves = |text: &&Text| serves(text.target, arch);
    texts.iter().filter(serves).filter(defines).max_by_key(|text| (text.target == arch, text.target))
}

fn image(origin: &str, arch: Arch, asked: Vec<Asked>) -> Image {
    Image {
        origin: origin.to_owned(),
        arch: arch.to_string(),
        multiprocessor: Multiprocessor::of(arch).map(|sm| report::Multiprocessor {
            warps: sm.warps,
            blocks: sm.blocks,
            registers: sm.registers(),
            shared: sm.shared,
        }),
        kernels: asked.into_iter().map(|asked| asked.kernel).collect(),
    }
}
