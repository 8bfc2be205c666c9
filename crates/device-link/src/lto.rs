//! Device LTO of one architecture, in process: merge, close, optimise, print PTX.

use fatbin::Arch;
use fatbin::ptx::Version;
use llvm_lto::{CallFacts, Cut, CutLimits, Session, Severity, TargetSpec};

use crate::diagnostics::Diagnostics;
use crate::error::Error;
use crate::options::{DeviceEmit, OptLevel, Options, Partition, PtxasMode};
use crate::record::{BeforeLto, Recorder, remarks};
use crate::select::{Failure, LinkJob};
use crate::temps::Temps;
use crate::timing::Timing;
use crate::undefined::Explainer;

/// Bytes of the constant bank that a program's constants share.
const CONSTANT_BANK: u64 = 0x1_0000;

/// The highest PTX ISA that LLVM 22 writes, as `+ptxNN` has it.
const NEWEST_PTX_FEATURE: u32 = 90;

/// Functions that ptxas and the driver provide: a reference to one of these is not undefined.
pub const DEVICE_RUNTIME: [&str; 5] = ["vprintf", "malloc", "free", "__assertfail", "__nvvm_reflect"];

/// PTX of one architecture and what the next stage must know of it.
#[derive(Debug, Clone)]
pub struct Ptx {
    /// The text.
    pub text: Vec<u8>,
    /// It carries debug information for stepping through: ptxas must not optimise.
    pub debug: bool,
    /// It carries line tables.
    pub line_tables: bool,
    /// ptxas sees a whole program and makes a finished cubin; otherwise it makes a relocatable one for nvlink.
    pub whole: bool,
    /// What led to `whole`.
    pub facts: CallFacts,
    /// Level for ptxas.
    pub level: OptLevel,
}

/// Names of the files that `--save-temps` keeps and the trace shows.
pub fn stem(job: &LinkJob) -> String {
    job.arch.to_string()
}

/// Merges the members of a job and closes the program.
pub fn merge(job: &mut LinkJob, timing: &Timing, row: usize) -> std::result::Result<(), Failure> {
    let arch = job.arch;
    let name = |text: String| Error::new(format!("{arch}: {text}"));
    let ids: Vec<_> = job.members.iter().map(|member| member.id).collect();
    if ids.is_empty() {
        return Ok(());
    }
    timing.stage("merge", row, &stem(job), || {
        job.session.get_mut().link(&ids).map_err(|(origin, error)| {
            // Bodies are read only here.
            let text = crate::extract::unreadable(&[], &error.to_string());
            Error::new(format!("{origin}: {text}, while merging device code for {arch}"))
        })?;
        job.session.get_mut().internalize(&job.roots).map_err(|error| name(error.to_string()))?;
        if job.only_roots {
            job.session.get_mut().hide_kernels(&job.roots).map_err(|error| name(error.to_string()))?;
        }
        job.session.get_mut().define_traps(&["__cxa_pure_virtual", "__cxa_deleted_virtual"]).map_err(|error| name(error.to_string()))
    })?;
    Ok(())
}

/// What two merged jobs that are shareable must have in common for one to be compiled for both: their code but for the architecture, and
/// everything that steers LTO.
///
/// PTX made for an older architecture is valid for every newer one, so what is shared is right in any case; that it is also what the newer
/// one would have got follows from the limits of [`llvm_lto::Session::is_architecture_neutral`], and a test compares.
pub fn shared_key(job: &mut LinkJob) -> Option<Vec<u8>> {
    job.session.get_mut().retarget("", "").ok()?;
    let mut key = format!("{:?} {:?}", job.level, job.ptx_version).into_bytes();
    key.extend(job.session.get_mut().bitcode().ok()?);
    Some(key)
}

/// Whether the code of a merged job may serve other architectures as well: LLVM generates the same for all of them.
pub fn is_shareable(job: &mut LinkJob) -> bool {
    may_share(job.arch)
        && job.objects.is_empty()
        && !job.members.is_empty()
        && job.session.get_mut().is_architecture_neutral().unwrap_or(false)
}

/// Gives a twin a copy of its leader's merged code.
pub fn take_code(twin: &mut LinkJob, leader: &mut LinkJob) -> Result<(), Error> {
    let named = |error: llvm_lto::Error| Error::new(format!("{}: {error}", twin.arch));
    let bitcode = leader.session.get_mut().bitcode().map_err(named)?;
    *twin.session.get_mut() = Session::whole("device", &bitcode).map_err(named)?;
    Ok(())
}

/// Whether architecture-neutral code of this architecture can be another's as well.
pub fn may_share(arch: Arch) -> bool {
    arch.suffix.is_none() && (75..100).contains(&arch.sm)
}

/// The text of one architecture for another that shares it.
pub fn for_arch(ptx: &Ptx, arch: Arch) -> Ptx {
    let mut text = ptx.text.clone();
    let directive = b"\n.target sm_";
    if let Some(start) = text.windows(directive.len()).position(|window| window == directive) {
        let start = start + directive.len();
        let end = text[start..].iter().position(|b| !b.is_ascii_digit()).map_or(text.len(), |n| start + n);
        text.splice(start..end, arch.sm.to_string().into_bytes());
    }
    if let Some(version) = fatbin::ptx::lowest_version(arch) {
        set_version(&mut text, version);
    }
    Ptx { text, ..*ptx }
}

/// All but the code that decides what LTO and code generation make of it.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Architecture, features and level for LLVM.
    pub spec: TargetSpec,
    /// Debug information is reduced to source lines first.
    pub only_lines: bool,
    /// Level for ptxas.
    pub level: OptLevel,
    /// Objects carry debug information.
    pub debug_info: bool,
    /// No object was compiled with optimisation.
    pub all_optnone: bool,
}

/// What decides how a job is compiled.
pub fn recipe(job: &LinkJob, options: &Options) -> Recipe {
    let all_optnone = job.members.iter().all(|member| member.info.functions == member.info.optnone_functions);
    let level = job.level.unwrap_or(if all_optnone { OptLevel::O0 } else { OptLevel::O2 });
    let explicit = options.opt_level.is_some_and(|level| level != OptLevel::O0);
    Recipe {
        spec: TargetSpec {
            triple: job.triple.clone(),
            cpu: job.arch.to_string(),
            features: features(job.arch, job.ptx_version, options),
            level: llvm_level(level),
        },
        // Debugging by source line survives optimisation, stepping through variables does not; a level on the line asks for the former.
        only_lines: explicit || options.device_debug == Some(crate::options::DebugRequest::LineTables),
        level: ptxas_level(options, job.level, all_optnone),
        debug_info: job.members.iter().any(|member| member.info.has_debug_info),
        all_optnone,
    }
}

/// Cuts a merged job into parts, where it is large or the user wants it. Not where something takes part that only nvlink can read
/// (`external`): it may define kernels that ours launch.
pub fn cut(
    job: &mut LinkJob,
    options: &Options,
    external: bool,
    recorder: &Recorder,
) -> std::result::Result<Option<(Cut, BeforeLto)>, Failure> {
    let usual = CutLimits { constant_bank: CONSTANT_BANK, ..CutLimits::USUAL };
    let limits = match (options.partition, options.lto_partitions) {
        (Partition::Never, _) | (Partition::Auto, Some(1)) => return Ok(None),
        (Partition::Always, _) => CutLimits { smallest_module: 0, smallest_part: 0, ..usual },
        (Partition::Auto, Some(parts)) => CutLimits { smallest_module: 0, smallest_part: 0, parts: parts as usize, ..usual },
        (Partition::Auto, None) => usual,
    };
    let recipe = recipe(job, options);
    // Code that nobody optimises is debugged, and a debugger wants one program.
    let debugged = recipe.debug_info && job.members.iter().any(|member| member.info.optnone_functions > 0);
    if job.members.is_empty()
        || external
        || job.is_opaque()
        || debugged
        || recipe.spec.level == llvm_lto::OptLevel::O0
        || options.ptxas_mode == PtxasMode::Whole
    {
        return Ok(None);
    }
    let named = |error: llvm_lto::Error| Error::new(format!("{}: {error}", job.arch));
    let session = job.session.get_mut();
    if session.instructions().map_err(named)? < limits.smallest_module {
        return Ok(None);
    }
    let before = recorder.before_lto(session);
    Ok(session.cut(&recipe.spec, &limits).map_err(named)?.map(|cut| (cut, before)))
}

/// Optimises a module and, at the end, prints its PTX with the lowest version that the architecture has. `then` sees the optimised module.
pub fn compile<T>(
    mut session: Session,
    recipe: &Recipe,
    stages: &Stages,
    then: impl FnOnce(&mut Session) -> std::result::Result<T, Failure>,
) -> std::result::Result<Printed<T>, Failure> {
    let spec = &recipe.spec;
    let arch = &spec.cpu;
    let name = |error: llvm_lto::Error| Error::new(format!("{arch}: {error}"));
    session.retarget(arch, &spec.features).map_err(name)?;
    stages.temps.keep(&format!("{}.merged.bc", stages.stem), || session.bitcode().map_err(name))?;
    let shows_remarks = remarks::ask(&mut session, stages.options, stages.recorder)?;
    stages.timing.stage("optimize", stages.row, stages.stem, || {
        if recipe.only_lines {
            session.keep_line_tables().map_err(name)?;
        }
        session.run_passes(spec, &format!("lto<O{}>", spec.level.digit())).map_err(name)
    })?;
    session.merge_constants().map_err(name)?;
    let seen = then(&mut session)?;
    stages.temps.keep(&format!("{}.optimized.bc", stages.stem), || session.bitcode().map_err(name))?;
    let (text, messages) = stages.timing.stage("codegen", stages.row, stages.stem, || {
        session.emit_and_keep(spec).map_err(|error| Error::new(format!("{}: {error}", stages.origin)))
    })?;
    let remarks = session.take_remarks();
    let shown = messages.iter().filter(|message| message.severity == Severity::Remark && shows_remarks);
    let shown = shown.map(|message| message.text.clone()).collect();
    Ok(Printed { text, warnings: warnings(&messages), shown, remarks, seen })
}

/// What LLVM printed of a module.
pub struct Printed<T> {
    /// PTX.
    pub text: Vec<u8>,
    /// What it warned of.
    pub warnings: Vec<String>,
    /// Remarks that the user wants to see.
    pub shown: Vec<String>,
    /// Remarks for files and reports, in YAML.
    pub remarks: String,
    /// What the caller found in the optimised module.
    pub seen: T,
}

/// What compiling one module is called, and where it leaves its traces.
#[derive(Clone, Copy)]
pub struct Stages<'a> {
    /// Names of files and of stages.
    pub stem: &'a str,
    /// The objects, for messages.
    pub origin: &'a str,
    /// Intermediate files.
    pub temps: &'a Temps,
    /// The clock.
    pub timing: &'a Timing,
    /// Row in the time trace.
    pub row: usize,
    /// The user's options.
    pub options: &'a Options,
    /// What becomes of the record of the link.
    pub recorder: &'a Recorder,
}

/// What LLVM warns of.
fn warnings(messages: &[llvm_lto::Diagnostic]) -> Vec<String> {
    let warnings = messages.iter().filter(|message| message.severity == Severity::Warning);
    warnings.map(|message| message.text.trim_start_matches("<unknown>:0:0: ").to_owned()).collect()
}

/// Bitcode cannot be embedded for CUDA.
pub fn refuse_bitcode(arch: Arch, options: &Options) -> std::result::Result<(), Failure> {
    if options.device_emit == Some(DeviceEmit::Bitcode) || options.embed_bitcode {
        return Err(Error::new(format!("{arch}: bitcode cannot be embedded for CUDA; the driver takes cubins and PTX")).into());
    }
    Ok(())
}

/// Optimises a merged job and prints its PTX. `external` says that nvlink will get libraries whose symbols we do not know; `row` is its row
/// in the time trace.
#[allow(clippy::too_many_arguments)]
pub fn run(
    job: &mut LinkJob,
    options: &Options,
    external: bool,
    temps: &Temps,
    timing: &Timing,
    row: usize,
    recorder: &Recorder,
    diagnostics: &Diagnostics,
    explainer: &Explainer,
) -> std::result::Result<Option<Ptx>, Failure> {
    let arch = job.arch;
    let external = external || job.is_opaque();
    if job.members.is_empty() {
        return Ok(None);
    }
    let (stem, origin) = (stem(job), describe(job));
    let name = |error: llvm_lto::Error| Error::new(format!("{arch}: {error}"));
    let recipe = recipe(job, options);
    let session = std::mem::take(job.session.get_mut());
    let stages = Stages { stem: &stem, origin: &origin, temps, timing, row, options, recorder };
    let before = recorder.before_lto(&session);
    let Printed { mut text, warnings, shown, remarks: yaml, seen: (facts, launched) } = compile(session, &recipe, &stages, |session| {
        let demoted = session.demote_constants(CONSTANT_BANK, &job.roots).map_err(name)?;
        if !demoted.is_empty() {
            let bytes: u64 = demoted.iter().map(|d| d.size).sum();
            let largest = demoted.iter().max_by_key(|d| d.size).map(|d| diagnostics.name(&d.name)).unwrap_or_default();
            diagnostics.warn(
                "constant-bank",
                &format!(
                    "{arch}: constants exceed the 64 KB constant bank; {} of the compiler's own ({bytes} bytes, the largest is {largest}) are \
                     moved to global memory",
                    demoted.len()
                ),
            );
        }
        if !external {
            check_undefined(job, session.undefined().map_err(name)?.into_iter().map(|symbol| symbol.name), explainer)?;
        }
        refuse_bitcode(arch, options)?;
        recorder.after_lto(arch, before, session);
        // What defines the kernels that are launched cannot be looked into.
        let launched = if external { session.launched().map_err(name)? } else { Default::default() };
        Ok((session.call_facts().map_err(name)?, launched))
    })?;
    job.kernels.extend(launched);
    recorder.ptx(arch, text.len());
    recorder.remarks(&[arch], yaml);
    shown.iter().for_each(|text| diagnostics.remark(&remarks::shown(text, diagnostics)));
    let whole = choose_whole(options.ptxas_mode, &facts, external || !job.objects.is_empty());
    for text in warnings {
        diagnostics.warn("optimizer", &format!("{arch}: {}", diagnostics.names(&text)));
    }
    if let Some(version) = fatbin::ptx::lowest_version(arch) {
        set_version(&mut text, version);
    }
    let debug = fatbin::ptx::Header::parse(&text).is_ok_and(|header| header.debug);
    if debug && job.members.iter().any(|member| !member.info.has_debug_info) && !recipe.all_optnone {
        let origin = job.members.iter().find(|member| member.info.has_debug_info).map_or("", |member| &member.origin);
        diagnostics.warn(
            "debug-optimized",
            &format!("{origin}: was compiled for device debugging (-g -O0), so ptxas optimises none of the code for {arch}"),
        );
    }
    Ok(Some(Ptx { text, debug, line_tables: recipe.debug_info && !debug, whole, facts, level: recipe.level }))
}

/// ptxas's level is its own best unless somebody asked for another: LTO's default is O2, ptxas's O3.
fn ptxas_level(options: &Options, job: Option<OptLevel>, all_optnone: bool) -> OptLevel {
    match options.opt_level.or(job) {
        Some(OptLevel::O0) => OptLevel::O0,
        Some(OptLevel::O1) => OptLevel::O1,
        Some(OptLevel::O2 | OptLevel::Os | OptLevel::Oz) if options.opt_level.is_some() => OptLevel::O2,
        None if all_optnone => OptLevel::O0,
        _ => OptLevel::O3,
    }
}

/// Which members a message about all of them names.
pub fn describe(job: &LinkJob) -> String {
    let members = job.members.iter().map(|member| member.origin.as_str());
    let objects = job.objects.iter().map(|object| object.origin.as_str());
    let names: Vec<&str> = members.chain(objects).take(3).collect();
    let more = (job.members.len() + job.objects.len()).saturating_sub(names.len());
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    format!("{}{more} ({})", names.join(", "), job.arch)
}

fn llvm_level(level: OptLevel) -> llvm_lto::OptLevel {
    match level {
        OptLevel::O0 => llvm_lto::OptLevel::O0,
        OptLevel::O1 => llvm_lto::OptLevel::O1,
        OptLevel::O2 | OptLevel::Os | OptLevel::Oz => llvm_lto::OptLevel::O2,
        OptLevel::O3 => llvm_lto::OptLevel::O3,
    }
}

/// The target features: what the line says, or the highest PTX version among the objects and the lowest that the architecture has.
fn features(arch: Arch, objects: Option<u32>, options: &Options) -> String {
    let lowest = fatbin::ptx::lowest_version(arch).map_or(0, |version| u32::from(version.major) * 10 + u32::from(version.minor));
    let version = objects.unwrap_or(0).min(NEWEST_PTX_FEATURE).max(lowest);
    let mut features = format!("+ptx{version},+{arch}");
    for feature in &options.device_features {
        features = format!("{features},{feature}");
    }
    features
}

/// Whether ptxas sees the whole program. It then makes a copy of every function for every kernel that calls it, so that registers need not
/// follow the calling convention: good where each function has one kernel, ruinous in time, memory and size where many share it or a
/// function is called through a pointer.
fn choose_whole(mode: PtxasMode, facts: &CallFacts, has_objects: bool) -> bool {
    match mode {
        _ if has_objects => false,
        PtxasMode::Whole => true,
        PtxasMode::Relocatable => false,
        PtxasMode::Auto => facts.shared_functions == 0 && facts.address_taken == 0,
    }
}

/// What is still undefined when all that can be removed is gone, is undefined.
pub fn check_undefined(job: &LinkJob, undefined: impl Iterator<Item = String>, explainer: &Explainer) -> std::result::Result<(), Failure> {
    let undefined: Vec<String> = undefined.filter(|name| !DEVICE_RUNTIME.contains(&name.as_str())).collect();
    if undefined.is_empty() {
        return Ok(());
    }
    let provided: std::collections::HashSet<&str> = job
        .objects
        .iter()
        .flat_map(|object| crate::device_object::symbols(object.class, object.image).unwrap_or_default())
        .filter(|symbol| symbol.is_defined())
        .map(|symbol| symbol.name)
        .collect();
    let faults: Vec<_> =
        undefined.iter().filter(|name| !provided.contains(name.as_str())).map(|name| explainer.undefined(name, job)).collect();
    if faults.is_empty() { Ok(()) } else { Err(Failure::Faults(faults)) }
}

/// Replaces the number behind `.version`.
pub fn set_version(text: &mut Vec<u8>, version: Version) {
    let directive = b".version ";
    let Some(start) = text.windows(directive.len()).position(|window| window == directive) else { return };
    let start = start + directive.len();
    let end = text[start..].iter().position(|&b| b == b'\n').map_or(text.len(), |n| start + n);
    text.splice(start..end, format!("{}.{}", version.major, version.minor).into_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_replaced_and_nothing_else() {
        let mut text = b"//\n// LLVM\n//\n\n.version 8.8\n.target sm_90\n".to_vec();
        set_version(&mut text, Version { major: 7, minor: 8 });
        assert_eq!(text, b"//\n// LLVM\n//\n\n.version 7.8\n.target sm_90\n");
    }

    #[test]
    fn shared_text_gets_its_own_header() {
        let text = b"//\n.version 7.0\n.target sm_80\n.address_size 64\n".to_vec();
        let ptx = Ptx { text, debug: false, line_tables: true, whole: true, facts: CallFacts::default(), level: OptLevel::O3 };
        let other = for_arch(&ptx, Arch::new(90));
        assert_eq!(other.text, b"//\n.version 7.8\n.target sm_90\n.address_size 64\n");
        assert!(other.line_tables && other.whole && !other.debug);
        let debug = Ptx { text: b".version 7.0\n.target sm_80, debug\n".to_vec(), ..ptx };
        assert_eq!(for_arch(&debug, Arch::new(89)).text, b".version 7.8\n.target sm_89, debug\n");
    }

    #[test]
    fn whole_program_only_without_shared_code() {
        let facts = |shared_functions, address_taken| CallFacts { shared_functions, address_taken, ..CallFacts::default() };
        for (mode, facts, objects, expected) in [
            (PtxasMode::Auto, facts(0, 0), false, true),
            (PtxasMode::Auto, facts(1, 0), false, false),
            (PtxasMode::Auto, facts(0, 1), false, false),
            (PtxasMode::Auto, facts(0, 0), true, false),
            (PtxasMode::Whole, facts(9, 9), false, true),
            (PtxasMode::Whole, facts(0, 0), true, false),
            (PtxasMode::Relocatable, facts(0, 0), false, false),
        ] {
            assert_eq!(choose_whole(mode, &facts, objects), expected, "{mode:?} {facts:?} {objects}");
        }
    }
}
