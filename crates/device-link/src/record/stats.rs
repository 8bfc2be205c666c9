//! `--warplink-stats`: a link in five lines.

use std::collections::BTreeMap;

use super::{Record, Stage};

/// The five lines.
pub fn lines(record: &Record) -> [String; 5] {
    [inputs(record), time(record), memory(record), code(record), fat_binary(record)]
}

fn inputs(record: &Record) -> String {
    let archs: Vec<&str> = record.architectures.iter().map(|arch| arch.arch.as_str()).collect();
    let taken = record.inputs.iter().filter(|input| input.taken).count();
    let left = record.inputs.len() - taken;
    let kernels = record.architectures.iter().map(|arch| arch.kernels.len()).max().unwrap_or(0);
    let left = if left == 0 { String::new() } else { format!(" ({left} not needed)") };
    format!(
        "{}: {} with device code{left} for {}, {}",
        file_name(&record.output),
        count(taken, "object"),
        archs.join(", "),
        count(kernels, "kernel")
    )
}

fn time(record: &Record) -> String {
    let usage = record.usage.unwrap_or_default();
    // Stages of several architectures run at once: what is summed up is what they cost, not how long they took.
    let mut cost: BTreeMap<&str, u64> = BTreeMap::new();
    for stage in &record.stages {
        *cost.entry(&stage.name).or_default() += cpu(stage);
    }
    let mut cost: Vec<_> = cost.into_iter().filter(|(_, cpu)| *cpu > 0).collect();
    cost.sort_by_key(|(name, cpu)| (std::cmp::Reverse(*cpu), *name));
    let most: Vec<String> = cost.iter().take(4).map(|(name, cpu)| format!("{name} {}", seconds(*cpu))).collect();
    let cached = record.stages.iter().filter(|stage| stage.cached).count();
    let cached = match record.stages.iter().any(|stage| stage.cached && stage.name == "device link") {
        true => "; the device link is from the cache".to_owned(),
        false if cached == 0 => String::new(),
        false => format!("; {} from the cache", count(cached, "stage")),
    };
    format!(
        "time: {} on the clock, {} of processors (own {}, children {}); most in {}{cached}",
        seconds(usage.wall),
        seconds(usage.cpu.saturating_add(usage.child_cpu)),
        seconds(usage.cpu),
        seconds(usage.child_cpu),
        most.join(", ")
    )
}

fn memory(record: &Record) -> String {
    let usage = record.usage.unwrap_or_default();
    let largest = record.stages.iter().filter(|stage| stage.child_peak_memory > 0).max_by_key(|stage| stage.child_peak_memory);
    let child = largest.map_or(String::new(), |stage| format!(", {} in {}", bytes(stage.child_peak_memory), stage.name));
    format!("memory: {} at most{child}", bytes(usage.peak_memory))
}

fn code(record: &Record) -> String {
    let archs = record.architectures.iter().map(|arch| {
        let cubin = bytes(arch.cubin_size);
        match arch.lto {
            Some(lto) => format!(
                "{} {} instructions -> {}, {} -> {}, cubin {cubin}",
                arch.arch,
                lto.before.instructions,
                lto.after.instructions,
                count(usize::try_from(lto.before.functions).unwrap_or(usize::MAX), "function"),
                lto.after.functions
            ),
            None => format!("{} no LTO, cubin {cubin}", arch.arch),
        }
    });
    format!("code: {}", archs.collect::<Vec<_>>().join("; "))
}

fn fat_binary(record: &Record) -> String {
    let Some(packed) = &record.fat_binary else { return "fat binary: none".to_owned() };
    let whole: u64 = packed.images.iter().map(|image| image.size).sum();
    let compression = packed.images.first().map_or("none", |image| &image.compression);
    format!("fat binary: {}, {compression}: {} -> {}", count(packed.images.len(), "image"), bytes(whole), bytes(packed.size))
}

fn cpu(stage: &Stage) -> u64 {
    stage.cpu.saturating_add(stage.child_user).saturating_add(stage.child_system)
}

fn file_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn count(number: usize, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

/// `0.123 s`.
fn seconds(micros: u64) -> String {
    format!("{:.3} s", micros as f64 / 1e6)
}

/// `712 B`, `12.3 KiB`, `4.5 MiB`.
pub fn bytes(number: u64) -> String {
    match number {
        0..1024 => format!("{number} B"),
        1024..0x10_0000 => format!("{:.1} KiB", number as f64 / 1024.0),
        _ => format!("{:.1} MiB", number as f64 / 1_048_576.0),
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Architecture, FatBinary, Input, Kernel, Lto, Module, PackedImage, ProcessUsage};
    use super::*;

    #[test]
    fn five_lines() {
        let module = |functions, instructions| Module { functions, instructions, ..Module::default() };
        let record = Record {
            output: "/b/app".to_owned(),
            architectures: vec![Architecture {
                arch: "sm_90".to_owned(),
                lto: Some(Lto { before: module(12, 340), after: module(2, 97) }),
                cubin_size: 5000,
                kernels: vec![Kernel::default()],
                ..Architecture::default()
            }],
            inputs: vec![Input { taken: true, ..Input::default() }, Input::default()],
            stages: vec![
                Stage { name: "ptxas".to_owned(), child_user: 30_000, child_peak_memory: 3 << 20, ..Stage::default() },
                Stage { name: "optimize".to_owned(), cpu: 2_000, ..Stage::default() },
                Stage { name: "ptxas".to_owned(), cached: true, ..Stage::default() },
            ],
            usage: Some(ProcessUsage { wall: 41_000, cpu: 9_000, child_cpu: 30_000, peak_memory: 100 << 20, child_peak_memory: 3 << 20 }),
            fat_binary: Some(FatBinary {
                size: 2000,
                images: vec![PackedImage { size: 5000, compression: "zstd".to_owned(), ..PackedImage::default() }],
            }),
            ..Record::default()
        };
        assert_eq!(
            lines(&record),
            [
                "app: 1 object with device code (1 not needed) for sm_90, 1 kernel",
                "time: 0.041 s on the clock, 0.039 s of processors (own 0.009 s, children 0.030 s); most in ptxas 0.030 s, optimize 0.002 s; 1 \
                 stage from the cache",
                "memory: 100.0 MiB at most, 3.0 MiB in ptxas",
                "code: sm_90 340 instructions -> 97, 12 functions -> 2, cubin 4.9 KiB",
                "fat binary: 1 image, zstd: 4.9 KiB -> 2.0 KiB",
            ]
        );
        // Nothing is known, nothing breaks.
        assert_eq!(lines(&Record::default())[4], "fat binary: none");
    }
}
