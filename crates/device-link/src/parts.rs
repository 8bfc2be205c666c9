//! Large device programs: cut into parts that are optimised, compiled and assembled several at once, then joined by nvlink. What is equal for
//! several architectures is compiled once. See `llvm_lto::Cut` for what a part is.

use std::collections::HashMap;
use std::sync::Arc;

use llvm_lto::{Cut, Definition, Session};

use crate::assemble::{self, DeviceImage, Stage};
use crate::cache::code::{Code, Compiled};
use crate::device::{Setting, all_or_errors};
use crate::error::{Error, Result};
use crate::jobs;
use crate::lto::{self, Printed, Ptx, Recipe, Stages};
use crate::memory;
use crate::names;
use crate::record::{self, BeforeLto, remarks};
use crate::select::{Failure, LinkJob};

/// A job whose module has been cut.
pub struct CutJob<'a> {
    /// Its row in the time trace.
    pub row: usize,
    /// The job. Its session has no merged module any more.
    pub job: LinkJob<'a>,
    /// The module.
    pub cut: Arc<Cut>,
    /// What is recorded of the module before it was cut.
    pub before: BeforeLto,
}

/// One part of one job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Place {
    job: usize,
    part: usize,
}

/// The same code, wherever it is wanted. The oldest architecture comes first: what is compiled for it is valid for the others.
struct Group {
    bitcode: Vec<u8>,
    places: Vec<Place>,
    weight: usize,
}

impl Group {
    /// The job that it is compiled for.
    fn leader(&self) -> Option<usize> {
        self.places.first().map(|place| place.job)
    }
}

/// What is recorded of a part, in all places that it was compiled for. What is shown is only known where it was compiled now: nothing that
/// shows remarks takes parts from the cache.
#[derive(Default)]
struct Trace {
    places: Vec<Place>,
    definitions: Vec<Definition>,
    remarks: String,
    shown: Vec<String>,
    warnings: Vec<String>,
}

/// What became of a part in one job.
struct Done {
    place: Place,
    ptx: Ptx,
}

type Outcome<T> = std::result::Result<T, (Vec<fatbin::Arch>, Failure)>;

/// The images of jobs that have been cut.
pub fn images(mut cut_jobs: Vec<CutJob>, setting: &Setting) -> Result<Vec<DeviceImage>> {
    let Setting { options, env, timing, recorder, .. } = *setting;
    cut_jobs.sort_by_key(|cut| cut.job.arch);
    let recipes: Vec<Recipe> = cut_jobs.iter().map(|cut| lto::recipe(&cut.job, options)).collect();
    for cut in &cut_jobs {
        let part = |index| record::Part {
            name: stem(cut, index),
            first: cut.cut.name(index).to_owned(),
            demangled: names::demangled(cut.cut.name(index)),
            instructions: cut.cut.weight(index) as u64,
        };
        recorder.parts(cut.job.arch, (0..cut.cut.len()).map(part).collect());
    }
    let groups = groups(&cut_jobs, &recipes, setting)?;
    let leaders: Vec<Vec<usize>> = (0..cut_jobs.len())
        .map(|job| groups.iter().filter(|g| g.places.iter().any(|p| p.job == job)).filter_map(Group::leader).collect())
        .collect();
    for stage in ["optimize", "codegen"] {
        timing.expect(stage, groups.len());
    }
    timing.expect("ptxas", groups.iter().map(|group| group.places.len()).sum());
    timing.expect("nvlink", cut_jobs.len());
    let need = |group: &Group| memory::of_llvm(group.bitcode.len());
    let compiled = jobs::run_within_memory(groups, options, env, need, |_, group| compile(group, &cut_jobs, &recipes, setting))?;
    let (compiled, traces): (Vec<Vec<Done>>, Vec<Trace>) = all_or_errors(compiled)?.into_iter().unzip();
    write_down(&cut_jobs, &leaders, traces, setting);

    // By far the most time is ptxas's: each part of each architecture is a task of its own, so that no core is left with a tail.
    let mut compiled: Vec<Done> = compiled.into_iter().flatten().collect();
    compiled.sort_by_key(|done| (std::cmp::Reverse(done.ptx.text.len()), done.place));
    let need = |done: &Done| memory::of_ptxas(done.ptx.text.len());
    let assembled = jobs::run_within_memory(compiled, options, env, need, |_, mut done| {
        let Some(cut) = cut_jobs.get(done.place.job) else { return Ok(done) };
        assemble::part(&cut.job, &stem(cut, done.place.part), &mut done.ptx, &stage(setting, cut.row))
            .map(|()| done)
            .map_err(|error| (vec![cut.job.arch], Failure::from(error)))
    })?;
    let mut done = all_or_errors(assembled)?;
    // Variables come before the code that uses them: the part of the variables is a cut's last.
    done.sort_by_key(|done| (done.place.job, std::cmp::Reverse(done.place.part)));

    let mut work: Vec<(CutJob, Vec<(String, Ptx)>)> = cut_jobs.into_iter().map(|cut| (cut, Vec::new())).collect();
    for Done { place, ptx } in done {
        if let Some((cut, parts)) = work.get_mut(place.job) {
            parts.push((stem(cut, place.part), ptx));
        }
    }
    let joined = jobs::run_all(work, options, env, |_, (cut, parts)| {
        assemble::join(&cut.job, &parts, &stage(setting, cut.row)).map_err(|error| (vec![cut.job.arch], Failure::from(error)))
    })?;
    all_or_errors(joined)
}

/// Writes down what LTO did and warns of, in the order of jobs and parts. `leaders` are the jobs that each job's parts were compiled for.
fn write_down(cut_jobs: &[CutJob], leaders: &[Vec<usize>], mut traces: Vec<Trace>, setting: &Setting) {
    let Setting { recorder, diagnostics, .. } = *setting;
    traces.sort_by_key(|trace| trace.places.first().copied());
    let mut left: Vec<Vec<Definition>> = cut_jobs.iter().map(|_| Vec::new()).collect();
    for Trace { places, definitions, remarks, shown, warnings } in traces {
        let archs: Vec<_> = places.iter().filter_map(|place| Some(cut_jobs.get(place.job)?.job.arch)).collect();
        for text in warnings {
            let arch = archs.first().map_or_else(String::new, |arch| format!("{arch}: "));
            diagnostics.warn("optimizer", &format!("{arch}{}", diagnostics.names(&text)));
        }
        recorder.remarks(&archs, remarks);
        shown.iter().for_each(|text| diagnostics.remark(&remarks::shown(text, diagnostics)));
        for place in places {
            left.get_mut(place.job).into_iter().for_each(|left| left.extend(definitions.iter().cloned()));
        }
    }
    for (job, (own, left)) in leaders.iter().zip(left).enumerate() {
        let leader = own.first().copied().filter(|leader| own.iter().all(|other| other == leader)).unwrap_or(job);
        let (Some(cut), Some(leader)) = (cut_jobs.get(job), cut_jobs.get(leader)) else { continue };
        if leader.job.arch != cut.job.arch {
            recorder.shares_lto(cut.job.arch, leader.job.arch);
            continue;
        }
        // A twin that has some parts to itself is still made of its leader's module.
        let original = cut_jobs.iter().find(|other| Arc::ptr_eq(&other.cut, &cut.cut)).unwrap_or(cut);
        recorder.after_parts(cut.job.arch, original.before.clone(), left);
    }
}

/// What a part's files and stages are called.
fn stem(cut: &CutJob, part: usize) -> String {
    format!("{}.part{part}", cut.job.arch)
}

fn stage<'a>(setting: &Setting<'a>, row: usize) -> Stage<'a> {
    let Setting { options, toolkit, temps, timing, recorder, diagnostics, device_libs, explainer, cache, .. } = *setting;
    Stage { options, toolkit, temps, timing, row, recorder, diagnostics, device_libs, explainer, cache }
}

/// The bitcode of all parts, what is equal once, the heaviest first: what takes longest must not start last.
fn groups(cut_jobs: &[CutJob], recipes: &[Recipe], setting: &Setting) -> Result<Vec<Group>> {
    let Setting { options, env, timing, .. } = *setting;
    let places: Vec<Place> =
        cut_jobs.iter().enumerate().flat_map(|(job, cut)| (0..cut.cut.len()).map(move |part| Place { job, part })).collect();
    let several = cut_jobs.len() > 1;
    timing.expect("part", places.len());
    let written = jobs::run_all(places, options, env, |_, place| {
        let Some(cut) = cut_jobs.get(place.job) else { return Err((Vec::new(), Failure::Error(Error::new("a part has no job")))) };
        let failed = |error: llvm_lto::Error| (Vec::new(), Failure::from(Error::new(format!("{}: {error}", cut.job.arch))));
        timing.stage("part", cut.row, &stem(cut, place.part), || {
            let mut session = cut.cut.part(place.part).map_err(failed)?;
            let shared = several && lto::may_share(cut.job.arch) && session.is_architecture_neutral().map_err(failed)?;
            session.retarget("", "").map_err(failed)?;
            Ok((place, session.bitcode().map_err(failed)?, shared))
        })
    })?;
    let mut groups: Vec<Group> = Vec::new();
    let mut known: HashMap<(Vec<u8>, String), usize> = HashMap::new();
    for (place, bitcode, shared) in all_or_errors(written)? {
        let weight = cut_jobs.get(place.job).map_or(0, |cut| cut.cut.weight(place.part));
        if !shared {
            groups.push(Group { bitcode, places: vec![place], weight });
            continue;
        }
        // Everything else that steers LTO.
        let steering = recipes.get(place.job).map_or_else(String::new, |recipe| {
            let version = cut_jobs.get(place.job).and_then(|cut| cut.job.ptx_version);
            format!("{:?} {:?} {version:?} {}", recipe.spec.level, recipe.level, recipe.only_lines)
        });
        match known.get(&(bitcode.clone(), steering.clone())).and_then(|&index| groups.get_mut(index)) {
            Some(group) => group.places.push(place),
            None => {
                known.insert((bitcode.clone(), steering), groups.len());
                groups.push(Group { bitcode, places: vec![place], weight });
            }
        }
    }
    groups.sort_by_key(|group| (std::cmp::Reverse(group.weight * group.places.len()), group.places.first().copied()));
    Ok(groups)
}

/// Compiles what a group has in common: PTX for each of its architectures.
fn compile(group: Group, cut_jobs: &[CutJob], recipes: &[Recipe], setting: &Setting) -> Outcome<(Vec<Done>, Trace)> {
    let archs: Vec<_> = group.places.iter().filter_map(|place| cut_jobs.get(place.job)).map(|cut| cut.job.arch).collect();
    let with_archs = |failure: Failure| (archs.clone(), failure);
    let Some((&first, cut, recipe)) =
        group.places.first().and_then(|place| Some((place, cut_jobs.get(place.job)?, recipes.get(place.job)?)))
    else {
        return Err((archs, Failure::from(Error::new("a part has no place"))));
    };
    let name = stem(cut, first.part);
    let (Compiled { text, undefined, warnings, definitions, remarks }, mut trace) =
        code(&name, &group.bitcode, cut, recipe, setting).map_err(with_archs)?;
    drop(group.bitcode);
    let facts = llvm_lto::CallFacts::default();
    let ptx = Ptx { text, debug: false, line_tables: recipe.debug_info, whole: false, facts, level: recipe.level };
    (trace.definitions, trace.warnings) = (definitions, warnings);
    trace.remarks = remarks.unwrap_or_default();
    trace.places.clone_from(&group.places);
    let mut all = Vec::with_capacity(group.places.len());
    for place in group.places {
        let Some(cut) = cut_jobs.get(place.job) else { continue };
        if setting.device_libs.is_empty() && !cut.job.is_opaque() {
            let undefined = undefined.iter().filter(|name| !cut.cut.defines(name)).cloned();
            lto::check_undefined(&cut.job, undefined, setting.explainer).map_err(with_archs)?;
        }
        all.push(Done { place, ptx: if place == first { ptx.clone() } else { lto::for_arch(&ptx, cut.job.arch) } });
    }
    Ok((all, trace))
}

/// What becomes of a part's bitcode, by now or earlier.
fn code(name: &str, bitcode: &[u8], cut: &CutJob, recipe: &Recipe, setting: &Setting) -> std::result::Result<(Compiled, Trace), Failure> {
    let Setting { options, cache, diagnostics, recorder, timing, .. } = *setting;
    lto::refuse_bitcode(cut.job.arch, options)?;
    let Recipe { spec, only_lines, level: _, debug_info: _, all_optnone: _ } = recipe;
    // Remarks that somebody chose are no part of an answer; those of a report are always the same.
    let cached = Code::new(cache, &options.mllvm, &format!("{spec:?} {only_lines}"), bitcode).filter(|_| options.remarks.is_empty());
    if let Some(known) = cached.as_ref().and_then(|cached| cached.known(recorder.has_remarks())) {
        if options.verbose {
            diagnostics.verbose(&format!("cache: hit: code, {name}"));
        }
        ["optimize", "codegen"].iter().for_each(|stage| timing.cached(stage, cut.row, name));
        return Ok((known, Trace::default()));
    }
    let (compiled, trace) = compile_part(name, bitcode, cut, recipe, setting, cached.is_some())?;
    if let Some(cached) = cached {
        cached.keep(&compiled);
    }
    Ok((compiled, trace))
}

/// Compiles a part now. What it defines is looked at where there is a record, or a cache that later ones are made from (`kept`).
fn compile_part(
    name: &str,
    bitcode: &[u8],
    cut: &CutJob,
    recipe: &Recipe,
    setting: &Setting,
    kept: bool,
) -> std::result::Result<(Compiled, Trace), Failure> {
    let Setting { temps, timing, options, recorder, .. } = *setting;
    let arch = cut.job.arch;
    let named = |error: llvm_lto::Error| Error::new(format!("{arch}: {error}"));
    let origin = lto::describe(&cut.job);
    llvm_lto::working_on(&origin, || {
        let session = Session::whole(name, bitcode).map_err(named)?;
        let stages = Stages { stem: name, origin: &origin, temps, timing, row: cut.row, options, recorder };
        let Printed { mut text, warnings, shown, remarks, seen: (undefined, definitions) } =
            lto::compile(session, recipe, &stages, |session| {
                let undefined = session.undefined().map_err(named)?.into_iter().map(|symbol| symbol.name).collect();
                let definitions = if kept { session.inventory(true).map_err(named)? } else { recorder.inventory(session) };
                Ok((undefined, definitions))
            })?;
        if let Some(version) = fatbin::ptx::lowest_version(arch) {
            lto::set_version(&mut text, version);
        }
        // Those that somebody chose go to a file of theirs, whether there is a report or not.
        let remarks = (recorder.has_remarks() || !remarks.is_empty()).then_some(remarks);
        Ok((Compiled { text, undefined, warnings, definitions, remarks }, Trace { shown, ..Trace::default() }))
    })
}
