//! Device LTO of one architecture, in process: merge, close, optimise, print PTX.

use fatbin::Arch;
use fatbin::ptx::Version;
use llvm_lto::{CallFacts, Severity, TargetSpec};

use crate::diagnostics::Diagnostics;
use crate::error::Error;
use crate::options::{DeviceEmit, OptLevel, Options, PtxasMode};
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
#[derive(Debug)]
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
        job.session.link(&ids).map_err(|(origin, error)| {
            // Bodies are read only here.
            let text = crate::extract::unreadable(&[], &error.to_string());
            Error::new(format!("{origin}: {text}, while merging device code for {arch}"))
        })?;
        job.session.internalize(&job.roots).map_err(|error| name(error.to_string()))?;
        job.session.define_traps(&["__cxa_pure_virtual", "__cxa_deleted_virtual"]).map_err(|error| name(error.to_string()))
    })?;
    Ok(())
}

/// What two merged jobs must have in common for one to be compiled for both: their code but for the architecture, and everything that steers
/// LTO. None where code generation depends on the architecture.
///
/// PTX made for an older architecture is valid for every newer one, so what is shared is right in any case; that it is also what the newer
/// one would have got follows from the limits of [`llvm_lto::Session::is_architecture_neutral`], and a test compares.
pub fn shared_key(job: &mut LinkJob) -> Option<Vec<u8>> {
    let neutral = job.arch.suffix.is_none() && (75..100).contains(&job.arch.sm) && job.objects.is_empty() && !job.members.is_empty();
    if !neutral || !job.session.is_architecture_neutral().ok()? {
        return None;
    }
    job.session.retarget("", "").ok()?;
    let mut key = format!("{:?} {:?}", job.level, job.ptx_version).into_bytes();
    key.extend(job.session.bitcode().ok()?);
    Some(key)
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
    diagnostics: &Diagnostics,
    explainer: &Explainer,
) -> std::result::Result<Option<Ptx>, Failure> {
    let arch = job.arch;
    let external = external || job.is_opaque();
    if job.members.is_empty() {
        return Ok(None);
    }
    let stem = stem(job);
    let name = |text: String| Error::new(format!("{arch}: {text}"));
    let features = features(arch, job.ptx_version, options);
    job.session.retarget(&arch.to_string(), &features).map_err(|error| name(error.to_string()))?;
    temps.keep(&format!("{stem}.merged.bc"), || job.session.bitcode().map_err(|error| name(error.to_string())))?;

    let all_optnone = job.members.iter().all(|member| member.info.functions == member.info.optnone_functions);
    let level = job.level.unwrap_or(if all_optnone { OptLevel::O0 } else { OptLevel::O2 });
    let spec = TargetSpec { triple: job.triple.clone(), cpu: arch.to_string(), features: features.clone(), level: llvm_level(level) };
    let explicit = options.opt_level.is_some_and(|level| level != OptLevel::O0);
    timing.stage("optimize", row, &stem, || {
        // Debugging by source line survives optimisation, stepping through variables does not; a level on the line asks for the former.
        if explicit || options.device_debug == Some(crate::options::DebugRequest::LineTables) {
            job.session.keep_line_tables().map_err(|error| name(error.to_string()))?;
        }
        job.session.run_passes(&spec, &format!("lto<O{}>", spec.level.digit())).map_err(|error| name(error.to_string()))
    })?;

    job.session.merge_constants().map_err(|error| name(error.to_string()))?;
    let demoted = job.session.demote_constants(CONSTANT_BANK, &job.roots).map_err(|error| name(error.to_string()))?;
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
        check_undefined(job, arch, explainer)?;
    }
    temps.keep(&format!("{stem}.optimized.bc"), || job.session.bitcode().map_err(|error| name(error.to_string())))?;

    let facts = job.session.call_facts().map_err(|error| name(error.to_string()))?;
    let whole = choose_whole(options.ptxas_mode, &facts, external || !job.objects.is_empty());
    let line_tables = job.members.iter().any(|member| member.info.has_debug_info);
    if options.device_emit == Some(DeviceEmit::Bitcode) || options.embed_bitcode {
        return Err(Error::new(format!("{arch}: bitcode cannot be embedded for CUDA; the driver takes cubins and PTX")).into());
    }

    let session = std::mem::take(&mut job.session);
    let (mut text, messages) =
        timing.stage("codegen", row, &stem, || session.emit(&spec).map_err(|error| Error::new(format!("{}: {error}", describe(job)))))?;
    for message in messages {
        if message.severity == Severity::Warning {
            let text = message.text.trim_start_matches("<unknown>:0:0: ");
            diagnostics.warn("optimizer", &format!("{arch}: {}", diagnostics.names(text)));
        }
    }
    if let Some(version) = fatbin::ptx::lowest_version(arch) {
        set_version(&mut text, version);
    }
    let debug = fatbin::ptx::Header::parse(&text).is_ok_and(|header| header.debug);
    if debug && job.members.iter().any(|member| !member.info.has_debug_info) && !all_optnone {
        let origin = job.members.iter().find(|member| member.info.has_debug_info).map_or("", |member| &member.origin);
        diagnostics.warn(
            "debug-optimized",
            &format!("{origin}: was compiled for device debugging (-g -O0), so ptxas optimises none of the code for {arch}"),
        );
    }
    Ok(Some(Ptx { text, debug, line_tables: line_tables && !debug, whole, facts, level: ptxas_level(options, job.level, all_optnone) }))
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
fn check_undefined(job: &LinkJob, arch: Arch, explainer: &Explainer) -> std::result::Result<(), Failure> {
    let undefined = job.session.undefined().map_err(|error| Error::new(format!("{arch}: {error}")))?;
    let provided: std::collections::HashSet<&str> = job
        .objects
        .iter()
        .flat_map(|object| crate::device_object::symbols(object.class, object.image).unwrap_or_default())
        .filter(|symbol| symbol.is_defined())
        .map(|symbol| symbol.name)
        .collect();
    let faults: Vec<_> = undefined
        .into_iter()
        .filter(|symbol| !DEVICE_RUNTIME.contains(&symbol.name.as_str()) && !provided.contains(symbol.name.as_str()))
        .map(|symbol| explainer.undefined(&symbol.name, job))
        .collect();
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
