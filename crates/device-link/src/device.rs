//! From device images to finished ones, for all architectures: runs the phases select, lto and assemble, several jobs at once.

use std::sync::Arc;

use crate::assemble::{self, DeviceImage, Stage};
use crate::cache::Cache;
use crate::command;
use crate::diagnostics::Diagnostics;
use crate::error::{Context, Error, Result, bail};
use crate::extract::{DeviceInput, Entry, ImageClass, classify};
use crate::jobs;
use crate::kernels;
use crate::lto;
use crate::memory;
use crate::options::{DeviceLib, Options};
use crate::parts::{self, CutJob};
use crate::ptx_choice;
use crate::record::{BeforeLto, Recorder};
use crate::select::{self, Candidates, Failure, Fault, LinkJob, UnitState, merge_faults};
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
    /// What is written down of the link.
    pub recorder: &'a Recorder,
    /// Messages.
    pub diagnostics: &'a Diagnostics,
    /// Knows what could have defined an undefined symbol.
    pub explainer: &'a Explainer<'a>,
    /// What the device linker was given that only nvlink can read.
    pub device_libs: &'a [DeviceLib],
    /// Device symbols that host code refers to beside those of its entries.
    pub host_references: &'a [String],
    /// What was made before.
    pub cache: &'a Cache<'a>,
}

/// A job for every architecture, and what is wrong with it.
pub struct Selection<'i> {
    /// In the order of the architectures.
    pub jobs: Vec<LinkJob<'i>>,
    faults: Vec<(fatbin::Arch, Fault)>,
}

impl<'i> Selection<'i> {
    /// The jobs, if nothing is wrong with any.
    ///
    /// # Errors
    /// All that is.
    pub(crate) fn without_faults(self) -> Result<Vec<LinkJob<'i>>> {
        Error::all(merge_faults(self.faults))?;
        Ok(self.jobs)
    }
}

/// Selection for all architectures, so that one run shows all errors.
pub fn select<'i, 'a>(inputs: &'i [DeviceInput<'a>], states: &[UnitState], entries: &[Entry], setting: &Setting) -> Result<Selection<'i>> {
    let Setting { options, env, timing, diagnostics, explainer, host_references, device_libs, .. } = *setting;
    let archs = select::architectures(inputs, states, options);
    ptx_choice::warn_of_unknown(options.ptx.as_ref(), &archs, diagnostics);
    let chosen = select::choose(inputs, states, &archs, diagnostics)?;
    // What is known to be the same code is loaded once.
    let mut leaders: Vec<((String, fatbin::Arch), Candidates)> = Vec::new();
    let mut twins: Vec<(usize, fatbin::Arch, Candidates)> = Vec::new();
    for ((triple, arch), candidates) in archs.iter().cloned().zip(chosen) {
        let same = |((other, leader), found): &((String, fatbin::Arch), Candidates)| {
            *other == triple && lto::may_share(arch) && lto::may_share(*leader) && candidates.same_code(found)
        };
        match leaders.iter().position(same) {
            Some(leader) => twins.push((leader, arch, candidates)),
            None => leaders.push(((triple, arch), candidates)),
        }
    }
    let roots = || entries.iter().map(|entry| &entry.name).chain(host_references).cloned().collect();
    let resolve = |row: usize, triple: &str, arch: fatbin::Arch, candidates| {
        timing.stage("select", row, &arch.to_string(), || {
            select::resolve(triple, arch, candidates, roots(), !device_libs.is_empty(), options, diagnostics, explainer)
        })
    };
    let mut resolved =
        jobs::run_all(leaders, options, env, |index, ((triple, arch), candidates)| resolve(index + 1, &triple, arch, candidates))?;
    for (leader, arch, candidates) in twins {
        let Some((job, faults)) = resolved.get(leader) else { continue };
        let found = match select::twin(job, arch, &candidates, options, diagnostics) {
            Some(twin) => (twin, faults.clone()),
            None => resolve(resolved.len() + 1, &job.triple.clone(), arch, candidates),
        };
        resolved.push(found);
    }
    resolved.sort_by_key(|(job, _)| job.arch);
    let mut selection = Selection { jobs: Vec::new(), faults: Vec::new() };
    for (job, faults) in resolved {
        selection.faults.extend(faults.into_iter().map(|fault| (job.arch, fault)));
        selection.jobs.push(job);
    }
    Ok(selection)
}

/// The images of all architectures: LTO and assembly, several architectures at once.
pub fn images(selection: Selection, setting: &Setting) -> Result<Vec<DeviceImage>> {
    let Setting { toolkit, options, env, temps, timing, recorder, diagnostics, explainer, device_libs, cache, .. } = *setting;
    Error::all(merge_faults(selection.faults))?;
    let external = !device_libs.is_empty();
    let (twins, ready): (Vec<_>, Vec<_>) = selection.jobs.into_iter().enumerate().partition(|(_, job)| job.twin_of.is_some());
    timing.expect("merge", ready.len());

    let merged = jobs::run_within_memory(
        ready,
        options,
        env,
        |(_, job)| bitcode_need(job),
        |_, (index, mut job)| {
            let result = llvm_lto::working_on(&lto::describe(&job), || {
                lto::merge(&mut job, timing, index + 1)?;
                kernels::apply(&mut job, &options.kernels, diagnostics)?;
                timing.stage("cut", index + 1, &lto::stem(&job), || lto::cut(&mut job, options, external, recorder))
            });
            result.map(|cut| (index + 1, job, cut)).map_err(|failure| (Vec::new(), failure))
        },
    )?;
    let (mut ready, mut large) = (Vec::new(), Vec::new());
    for (row, job, cut) in all_or_errors(merged)? {
        match cut {
            Some((cut, before)) => large.push(CutJob { row, job, cut: Arc::new(cut), before }),
            None => ready.push((row, job)),
        }
    }
    let mut followers = Vec::new();
    for (index, twin) in twins {
        match large.iter().find(|large| Some(large.job.arch) == twin.twin_of).map(|leader| leader.cut.clone()) {
            Some(cut) => large.push(CutJob { row: index + 1, job: twin, cut, before: BeforeLto::default() }),
            None => followers.push((index + 1, twin)),
        }
    }
    let mut images = if large.is_empty() { Vec::new() } else { parts::images(large, setting)? };

    // Architectures whose code differs in nothing but the architecture are compiled once.
    let groups = group_by_code(ready, followers, options, env)?;
    for stage in ["optimize", "codegen"] {
        timing.expect(stage, groups.len());
    }
    let need = |group: &Group| group.first().map_or(0, |(_, job)| bitcode_need(job));
    let compiled = jobs::run_within_memory(groups, options, env, need, |_, mut group| {
        let archs: Vec<_> = group.iter().map(|(_, job)| job.arch).collect();
        let Some((row, first)) = group.first_mut() else { return Ok(Vec::new()) };
        let (name, first_arch) = (lto::describe(first), first.arch);
        let ptx = llvm_lto::working_on(&name, || {
            lto::run(first, options, external, temps, timing, *row, recorder, diagnostics, explainer).map_err(|failure| (archs, failure))
        })?;
        group.iter().skip(1).for_each(|(_, job)| recorder.shares_lto(job.arch, first_arch));
        let others: Vec<_> = group.iter().skip(1).map(|(_, job)| ptx.as_ref().map(|ptx| lto::for_arch(ptx, job.arch))).collect();
        Ok(group.into_iter().zip(std::iter::once(ptx).chain(others)).collect::<Vec<_>>())
    })?;
    let work: Vec<_> = all_or_errors(compiled)?.into_iter().flatten().collect();
    timing.expect("ptxas", work.len());
    let needs_nvlink =
        |((_, job), ptx): &((usize, LinkJob), Option<lto::Ptx>)| !job.objects.is_empty() || ptx.as_ref().is_none_or(|ptx| !ptx.whole);
    if !options.nvlink_args.is_empty() && !work.iter().any(needs_nvlink) {
        let words: Vec<String> = options.nvlink_args.iter().map(|word| command::quote(word)).collect();
        diagnostics.warn(
            "unused-option",
            &format!(
                "-Xoffload-linker {}: is no option of warplink's device link, and nvlink, which would get it, has nothing to link here",
                words.join(" ")
            ),
        );
    }
    let need = |(_, ptx): &(_, Option<lto::Ptx>)| ptx.as_ref().map_or(0, |ptx| memory::of_ptxas(ptx.text.len()));
    let assembled = jobs::run_within_memory(work, options, env, need, |_, ((row, job), ptx)| {
        assemble::run(&job, ptx, &Stage { options, toolkit, temps, timing, row, recorder, diagnostics, device_libs, explainer, cache })
            .map_err(|error| (vec![job.arch], Failure::from(error)))
    })?;
    images.extend(all_or_errors(assembled)?);
    images.sort_by_key(|image| image.arch);
    Ok(images)
}

/// The results of all jobs, or the errors of those that failed; what several architectures have in common is said once.
pub fn all_or_errors<T>(results: Vec<std::result::Result<T, (Vec<fatbin::Arch>, Failure)>>) -> Result<Vec<T>> {
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

/// What LLVM will take for a job's code.
fn bitcode_need(job: &LinkJob) -> u64 {
    memory::of_llvm(job.members.iter().map(|member| member.image.len()).sum())
}

/// Merged jobs with their rows in the time trace, those that one compilation serves together, the oldest architecture first. Twins join their
/// leader, or get its code where it is not for everyone.
fn group_by_code<'a>(
    ready: Vec<(usize, LinkJob<'a>)>,
    followers: Vec<(usize, LinkJob<'a>)>,
    options: &Options,
    env: Env,
) -> Result<Vec<Group<'a>>> {
    let several = ready.len() > 1;
    let keyed = jobs::run_all(ready, options, env, |_, (row, mut job)| {
        let leads = followers.iter().any(|(_, twin)| twin.twin_of == Some(job.arch));
        let shared = (several || leads) && lto::is_shareable(&mut job);
        let key = if several && shared { lto::shared_key(&mut job) } else { None };
        (key, shared, row, job)
    })?;
    let mut groups: Vec<(Option<Vec<u8>>, Group)> = Vec::new();
    let mut followers = followers;
    for (key, shared, row, mut job) in keyed {
        let (own, others) = followers.into_iter().partition(|(_, twin)| twin.twin_of == Some(job.arch));
        followers = others;
        let mut alone: Vec<Group> = Vec::new();
        let mut members: Group = Vec::new();
        for (row, mut twin) in own {
            if shared {
                members.push((row, twin));
            } else {
                lto::take_code(&mut twin, &mut job)?;
                alone.push(vec![(row, twin)]);
            }
        }
        members.insert(0, (row, job));
        let fits = groups.iter_mut().find(|(known, group)| {
            let roots = |group: &Group| group.first().map(|(_, first)| first.roots.clone());
            key.is_some() && *known == key && roots(group) == roots(&members)
        });
        match fits {
            Some((_, group)) => group.extend(members),
            None => groups.push((key, members)),
        }
        groups.extend(alone.into_iter().map(|group| (None, group)));
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
