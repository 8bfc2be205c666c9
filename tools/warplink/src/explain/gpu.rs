//! `warplink explain --gpu`: which image the driver takes, or why none, and what to do about it.

use device_link::record::Record;
use fatbin::Arch;
use serde_json::{Value, json};

use super::{Known, Outcome, line};
use crate::inspect::gpus::Gpu;
use crate::inspect::render;
use crate::inspect::report::{Container, File, Runs};
use crate::inspect::verdict::{judge, why_nothing};

/// Explains what happens on the GPU that `name` means.
pub(super) fn explain(known: &Known, name: &str, out: &mut Vec<u8>) -> Result<(Outcome, Value), String> {
    let gpu = Gpu::parse(name)?;
    let verdict = judge(&known.file, gpu);
    render::verdict(&known.file, gpu, verdict.as_ref(), out).map_err(|error| error.to_string())?;
    let runs = verdict.as_ref().map_or(Runs::No, |verdict| verdict.runs);
    let good = matches!(runs, Runs::Native | Runs::Jit);
    let facts = facts(known.record.as_ref());
    let mut advice = Vec::new();
    let mut reasons = Vec::new();
    if !good {
        reasons = known.file.containers.iter().filter(|container| container.is_final()).map(why_nothing).collect();
        facts.iter().for_each(|fact| line(out, format_args!("  {fact}")));
        advice = self::advice(&known.file, known.record.as_ref(), gpu.arch);
        for (index, way) in advice.iter().enumerate() {
            line(out, format_args!("  {} {way}", if index == 0 { "what to do:" } else { "        or:" }));
        }
    }
    let json = json!({
        "gpu": gpu.arch.to_string(), "runs": runs, "verdict": verdict, "reasons": reasons, "facts": facts, "advice": advice,
    });
    Ok((if good { Outcome::Good } else { Outcome::Nothing }, json))
}

/// What the link knows of architectures and PTX.
fn facts(record: Option<&Record>) -> Vec<String> {
    let Some(record) = record else { return Vec::new() };
    let mut compiled: Vec<Arch> = record
        .inputs
        .iter()
        .filter(|input| input.taken)
        .flat_map(|input| &input.images)
        .filter_map(|image| image.arch.parse().ok())
        .collect();
    compiled.sort();
    compiled.dedup();
    let names = |archs: &[String]| if archs.is_empty() { "none".to_owned() } else { archs.join(", ") };
    let compiled: Vec<String> = compiled.iter().map(Arch::to_string).collect();
    let embedded: Vec<String> = record.architectures.iter().filter(|arch| arch.ptx_embedded).map(|arch| arch.arch.clone()).collect();
    vec![format!("the objects were compiled for {}; PTX was embedded for {}", names(&compiled), names(&embedded))]
}

/// What makes the program run on a GPU that it has nothing for.
fn advice(file: &File, record: Option<&Record>, gpu: Arch) -> Vec<String> {
    let mut ways = vec![format!("compile all objects with --offload-arch={gpu} as well, and link again")];
    let made_for = |container: &Container| container.images.iter().filter_map(|image| image.target).collect::<Vec<_>>();
    let linked: Vec<Arch> = match record {
        Some(record) => record.architectures.iter().filter_map(|arch| arch.arch.parse().ok()).collect(),
        None => file.containers.iter().filter(|container| container.is_final()).flat_map(made_for).collect(),
    };
    // PTX of the nearest older architecture makes the best code; that of an `a` or `f` variant runs nowhere else.
    let older = linked.iter().filter(|arch| arch.suffix.is_none() && arch.sm <= gpu.sm).max();
    if let Some(older) = older {
        ways.push(format!(
            "link again with -Wl,--warplink-ptx={older}: the driver compiles PTX for {older} when the program starts on a later GPU"
        ));
    }
    ways
}
