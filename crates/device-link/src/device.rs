//! From device images to finished ones, for all architectures: runs the phases select, lto and assemble, several jobs at once.

use crate::assemble::{self, DeviceImage, Stage};
use crate::diagnostics::Diagnostics;
use crate::error::{Context, Error, Result, bail};
use crate::extract::{DeviceInput, Entry, ImageClass, classify};
use crate::jobs;
use crate::lto;
use crate::options::{DeviceLib, Options};
use crate::select::{self, Failure, Fault, LinkJob, UnitState, merge_faults};
use crate::temps::Temps;
use crate::timing::Timing;
use crate::toolchain::Env;
use crate::toolchain::cuda::Toolkit;
use crate::undefined::Explainer;

/// What all jobs of a link share.
#[derive(Clone, Copy)]
pub struct Setting<'a> {
    /// The user's toolkit.
    pub toolkit: &'a Toolkit,
    /// The user's options.
    pub options: &'a Options,
    /// The environment.
    pub env: Env<'a>,
    /// Intermediate files.
    pub temps: &'a Temps,
    /// The clock.
    pub timing: &'a Timing,
    /// Messages.
    pub diagnostics: &'a Diagnostics,
    /// Knows what could have defined an undefined symbol.
    pub explainer: &'a Explainer<'a>,
    /// What the device linker was given that only nvlink can read.
    pub device_libs: &'a [DeviceLib],
    /// Device symbols that host code refers to beside those of its entries.
    pub host_references: &'a [String],
}

/// A job for every architecture, and what is wrong with it.
pub struct Selection<'i> {
    /// In the order of the architectures.
    pub jobs: Vec<LinkJob<'i>>,
    faults: Vec<(fatbin::Arch, Fault)>,
}

/// Selection for all architectures, so that one run shows all errors.
pub fn select<'i, 'a>(inputs: &'i [DeviceInput<'a>], states: &[UnitState], entries: &[Entry], setting: &Setting) -> Result<Selection<'i>> {
    let Setting { options, env, timing, diagnostics, explainer, host_references, device_libs, .. } = *setting;
    let archs = select::architectures(inputs, states, options);
    let chosen = select::choose(inputs, states, &archs, diagnostics)?;
    let work: Vec<_> = archs.iter().cloned().zip(chosen).collect();
    let resolved = jobs::run_all(work, options, env, |index, ((triple, arch), candidates)| {
        timing.stage("select", index + 1, &arch.to_string(), || {
            let roots = entries.iter().map(|entry| &entry.name).chain(host_references).cloned().collect();
            select::resolve(&triple, arch, candidates, roots, !device_libs.is_empty(), options, diagnostics, explainer)
        })
    })?;
    let mut selection = Selection { jobs: Vec::new(), faults: Vec::new() };
    for (job, faults) in resolved {
        selection.faults.extend(faults.into_iter().map(|fault| (job.arch, fault)));
        selection.jobs.push(job);
    }
    Ok(selection)
}

/// The images of all architectures: LTO and assembly, several architectures at once.
pub fn images(selection: Selection, setting: &Setting) -> Result<Vec<DeviceImage>> {
    let Setting { toolkit, options, env, temps, timing, diagnostics, explainer, device_libs, .. } = *setting;
    Error::all(merge_faults(selection.faults))?;
    let ready = selection.jobs;

    let merged = jobs::run_all(ready, options, env, |index, mut job| {
        let result = llvm_lto::working_on(&lto::describe(&job), || lto::merge(&mut job, timing, index + 1));
        result.map(|()| job).map_err(|failure| (Vec::new(), failure))
    })?;
    let ready = all_or_errors(merged)?;

    // Architectures whose code differs in nothing but the architecture are compiled once.
    let groups = group_by_code(ready, options, env)?;
    let external = !device_libs.is_empty();
    let compiled = jobs::run_all(groups, options, env, |_, mut group| {
        let archs: Vec<_> = group.iter().map(|(_, job)| job.arch).collect();
        let Some((row, first)) = group.first_mut() else { return Ok(Vec::new()) };
        let name = lto::describe(first);
        let ptx = llvm_lto::working_on(&name, || {
            lto::run(first, options, external, temps, timing, *row, diagnostics, explainer).map_err(|failure| (archs, failure))
        })?;
        let others: Vec<_> = group.iter().skip(1).map(|(_, job)| ptx.as_ref().map(|ptx| lto::for_arch(ptx, job.arch))).collect();
        Ok(group.into_iter().zip(std::iter::once(ptx).chain(others)).collect::<Vec<_>>())
    })?;
    let work: Vec<_> = all_or_errors(compiled)?.into_iter().flatten().collect();
    let assembled = jobs::run_all(work, options, env, |_, ((row, job), ptx)| {
        assemble::run(&job, ptx, &Stage { options, toolkit, temps, timing, row, diagnostics, device_libs, explainer })
            .map_err(|error| (vec![job.arch], Failure::from(error)))
    })?;
    let mut images = all_or_errors(assembled)?;
    images.sort_by_key(|image| image.arch);
    Ok(images)
}

/// The results of all jobs, or the errors of those that failed; what several architectures have in common is said once.
fn all_or_errors<T>(results: Vec<std::result::Result<T, (Vec<fatbin::Arch>, Failure)>>) -> Result<Vec<T>> {
    let mut good = Vec::new();
    let mut errors = Vec::new();
    let mut faults = Vec::new();
    for result in results {
        match result {
            Ok(value) => good.push(value),
            Err((_, Failure::Error(error))) => errors.push(error),
            Err((archs, Failure::Faults(list))) => {
                faults.extend(list.into_iter().flat_map(|fault| archs.iter().map(move |&arch| (arch, fault.clone()))));
            }
        }
    }
    errors.extend(merge_faults(faults));
    Error::all(errors)?;
    Ok(good)
}

/// Jobs with their rows in the time trace that one compilation serves.
type Group<'a> = Vec<(usize, LinkJob<'a>)>;

/// Merged jobs with their rows in the time trace, those that one compilation serves together, the oldest architecture first.
fn group_by_code<'a>(ready: Vec<LinkJob<'a>>, options: &Options, env: Env) -> Result<Vec<Group<'a>>> {
    let several = ready.len() > 1;
    let keyed = jobs::run_all(ready, options, env, |index, mut job| {
        let key = if several { lto::shared_key(&mut job) } else { None };
        (key, index + 1, job)
    })?;
    let mut groups: Vec<(Option<Vec<u8>>, Group)> = Vec::new();
    for (key, row, job) in keyed {
        let fits = groups
            .iter_mut()
            .find(|(known, group)| key.is_some() && *known == key && group.first().is_some_and(|(_, first)| first.roots == job.roots));
        match fits {
            Some((_, group)) => group.push((row, job)),
            None => groups.push((key, vec![(row, job)])),
        }
    }
    Ok(groups.into_iter().map(|(_, group)| group).collect())
}

/// `--override-image=cuda=FILE`: finished images given by hand.
pub fn overriding_images(options: &Options) -> Result<Vec<DeviceImage>> {
    let mut images = Vec::new();
    for (kind, path) in &options.override_image {
        if kind != "cuda" {
            bail!("{}: --override-image of kind {kind}; warplink links CUDA images", path.display());
        }
        let bytes = std::fs::read(path).context(|| path.display().to_string())?;
        let named = |error: fatbin::Error| Error::new(format!("{}: {error}", path.display()));
        let image = match classify(&bytes) {
            ImageClass::Cubin => {
                let arch = fatbin::cubin::Cubin::parse(&bytes).map_err(named)?.arch();
                DeviceImage { arch, cubin: Some(bytes), ptx: None, debug: false, ptxas_options: String::new() }
            }
            ImageClass::Ptx => {
                let arch = fatbin::ptx::Header::parse(&bytes).map_err(named)?.target;
                DeviceImage { arch, cubin: None, ptx: Some(bytes), debug: false, ptxas_options: String::new() }
            }
            _ => bail!("{}: is neither a cubin nor PTX", path.display()),
        };
        images.push(image);
    }
    images.sort_by_key(|image| image.arch);
    Ok(images)
}
