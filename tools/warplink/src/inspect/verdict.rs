//! On which GPUs a file's device code runs, and why not on the others.

use super::gpus::{Choice, Gpu, choose};
use super::report::{ChoiceReport, Container, File, GpuVerdict, Image, Runs};
use fatbin::Arch;

/// What the driver does with the file's code on `gpu`; `None` if there is no code that a driver could get.
pub(crate) fn judge(file: &File, gpu: Gpu) -> Option<GpuVerdict> {
    let (mut native, mut jit, mut nothing) = (0, 0, 0);
    let mut driver = None;
    let mut choices = Vec::new();
    for (index, container) in file.containers.iter().enumerate().filter(|(_, container)| container.is_final()) {
        let image = match choose(container, gpu) {
            Choice::Native(image) => {
                native += 1;
                Some(image)
            }
            Choice::Jit(image) => {
                jit += 1;
                driver = driver.max(image.ptx.as_ref().and_then(|ptx| ptx.driver));
                Some(image)
            }
            Choice::Nothing => {
                nothing += 1;
                None
            }
        };
        let image = image.and_then(|chosen| container.images.iter().position(|image| std::ptr::eq(image, chosen)));
        choices.push(ChoiceReport { container: index, image });
    }
    let runs = match (native, jit, nothing) {
        (0, 0, 0) => return None,
        (_, 0, 0) => Runs::Native,
        (_, _, 0) => Runs::Jit,
        (0, 0, _) => Runs::No,
        _ => Runs::Partly,
    };
    Some(GpuVerdict { arch: gpu.arch.to_string(), names: gpu.names(), runs, choices, driver })
}

/// Why nothing in `container` runs on a GPU, in words: what its images are for.
pub(crate) fn why_nothing(container: &Container) -> String {
    let of = |wanted: fn(&Image) -> bool, limits: fn(Arch) -> String| -> Vec<String> {
        let images = container.images.iter().filter(|image| wanted(image));
        images.map(|image| format!("{} ({})", image.arch, image.target.map_or("no gpu".to_owned(), limits))).collect()
    };
    let mut parts = Vec::new();
    match &of(Image::is_loadable_cubin, cubin_limits)[..] {
        [] => parts.push("no cubin".to_owned()),
        [one] => parts.push(format!("a cubin for {one}")),
        several => parts.push(format!("cubins for {}", join(several, "and"))),
    }
    match &of(Image::is_loadable_ptx, ptx_limits)[..] {
        [] => parts.push("no ptx".to_owned()),
        all => parts.push(format!("ptx for {}", join(all, "and"))),
    }
    let others = container.images.iter().filter(|image| !image.is_loadable_cubin() && !image.is_loadable_ptx());
    let others: Vec<_> = others.map(Image::title).collect();
    if !others.is_empty() {
        parts.push(format!("{} that no driver takes", join(&others, "and")));
    }
    // The parts have an "and" of their own.
    match parts.split_last() {
        Some((last, first)) => format!("it has {}, and {last}", first.join(", ")),
        None => "it is empty".to_owned(),
    }
}

/// On which GPUs a cubin runs.
fn cubin_limits(target: Arch) -> String {
    let major = target.major();
    // Whether a later GPU of the same generation takes it tells apart what is for one GPU only.
    if !target.cubin_runs_on(Arch::new(major * 10 + 9)) {
        return format!("{major}.{} GPUs only", target.minor());
    }
    match target.minor() {
        0 => format!("{major}.x GPUs only"),
        minor => format!("{major}.x GPUs from {major}.{minor} on"),
    }
}

/// On which GPUs a driver compiles PTX.
fn ptx_limits(target: Arch) -> String {
    match target.suffix {
        None => format!("GPUs from {}.{} on", target.major(), target.minor()),
        Some(_) => cubin_limits(target),
    }
}

/// `a, b and c`.
pub(crate) fn join(items: &[String], last: &str) -> String {
    match items {
        [] => String::new(),
        [only] => only.clone(),
        [first @ .., end] => format!("{} {last} {end}", first.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::report::ImageKind;

    #[test]
    fn limits_are_told_in_words() {
        for (arch, cubin, ptx) in [
            ("sm_80", "8.x GPUs only", "GPUs from 8.0 on"),
            ("sm_86", "8.x GPUs from 8.6 on", "GPUs from 8.6 on"),
            ("sm_87", "8.7 GPUs only", "GPUs from 8.7 on"),
            ("sm_90a", "9.0 GPUs only", "9.0 GPUs only"),
            ("sm_100f", "10.x GPUs only", "10.x GPUs only"),
            ("sm_121", "12.x GPUs from 12.1 on", "GPUs from 12.1 on"),
        ] {
            let target = arch.parse().expect(arch);
            assert_eq!(cubin_limits(target), cubin);
            assert_eq!(ptx_limits(target), ptx);
        }
    }

    #[test]
    fn reasons_name_what_there_is() {
        let image = |kind, arch: &str, relocatable| Image {
            kind,
            arch: arch.to_owned(),
            target: arch.parse().ok(),
            relocatable,
            ..Image::default()
        };
        use ImageKind::{Cubin, Nvvm, Ptx};
        for (images, expected) in [
            (vec![image(Cubin, "sm_80", false)], "it has a cubin for sm_80 (8.x GPUs only), and no ptx"),
            (
                vec![image(Cubin, "sm_80", false), image(Cubin, "sm_90a", false), image(Ptx, "sm_120", false)],
                "it has cubins for sm_80 (8.x GPUs only) and sm_90a (9.0 GPUs only), and ptx for sm_120 (GPUs from 12.0 on)",
            ),
            (
                vec![image(Cubin, "sm_90", true), image(Nvvm, "sm_90", false)],
                "it has no cubin, no ptx, and sm_90 cubin and sm_90 nvvm that no driver takes",
            ),
        ] {
            assert_eq!(why_nothing(&Container { images, ..Container::default() }), expected);
        }
    }
}
