//! Which GPUs there are by name, and which image of a fat binary the driver takes on one.

use super::report::{Container, Image};
use fatbin::{Arch, Suffix};
use std::cmp::Reverse;
use std::fmt;

/// GPUs that a reader knows by name, by the number of their architecture.
const GPUS: &[(u32, &[&str])] = &[
    (70, &["V100"]),
    (75, &["T4", "RTX 20"]),
    (80, &["A100"]),
    (86, &["A10", "RTX 30"]),
    (87, &["Jetson Orin"]),
    (89, &["L4", "L40", "RTX 40"]),
    (90, &["H100", "H200"]),
    (100, &["B200"]),
    (103, &["B300"]),
    (110, &["Jetson Thor"]),
    (120, &["RTX 50"]),
    (121, &["DGX Spark"]),
];

/// A GPU as the driver sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gpu {
    pub(crate) arch: Arch,
}

impl Gpu {
    /// The GPUs with a name, oldest first.
    pub(crate) fn known() -> impl Iterator<Item = Gpu> {
        GPUS.iter().map(|(sm, _)| Gpu { arch: Arch::new(*sm) })
    }

    /// Reads `sm_90`, `9.0` or the name of a GPU such as `H200`.
    ///
    /// # Errors
    /// If it is neither.
    pub(crate) fn parse(text: &str) -> Result<Gpu, String> {
        let named = GPUS.iter().find(|(_, names)| names.iter().any(|name| name.eq_ignore_ascii_case(text)));
        if let Some(sm) = named.map(|(sm, _)| *sm).or_else(|| geforce(text)) {
            return Ok(Gpu { arch: Arch::new(sm) });
        }
        let arch = text
            .parse::<Arch>()
            .map_err(|_| format!("'{text}' is neither a gpu architecture such as sm_90 nor the name of a gpu such as H200"))?;
        // A GPU has no suffix: sm_90a is code that runs on an sm_90 GPU.
        Ok(Gpu { arch: Arch::new(arch.sm) })
    }

    /// The names of this GPU, none if it is not in the table.
    pub(crate) fn names(self) -> &'static [&'static str] {
        GPUS.iter().find(|(sm, _)| *sm == self.arch.sm).map_or(&[], |(_, names)| names)
    }
}

/// The architecture of a GPU of the series GeForce RTX, from `RTX 3090` or `GeForce RTX 2080 Ti`. The round numbers (`RTX 4000`, `RTX 6000`)
/// are workstation GPUs of several architectures, and the 2050 is no Turing.
fn geforce(text: &str) -> Option<u32> {
    let text = text.to_ascii_uppercase();
    let text = text.strip_prefix("NVIDIA ").unwrap_or(&text);
    let model = text.strip_prefix("GEFORCE ").unwrap_or(text).strip_prefix("RTX")?.trim_start();
    let number = model.split(' ').next()?;
    let (series, class) = number.split_at_checked(2)?;
    match (series, class) {
        ("20", "50") => Some(86),
        ("20", "60" | "70" | "80") => Some(75),
        ("30", "50" | "60" | "70" | "80" | "90") => Some(86),
        ("40", "50" | "60" | "70" | "80" | "90") => Some(89),
        ("50", "50" | "60" | "70" | "80" | "90") => Some(120),
        _ => None,
    }
}

impl fmt::Display for Gpu {
    /// `sm_90 (H100/H200)`, or `sm_88` for a GPU without a name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.names() {
            [] => write!(f, "{}", self.arch),
            names => write!(f, "{} ({})", self.arch, names.join("/")),
        }
    }
}

/// How a container runs on a GPU.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Choice<'a> {
    /// This cubin is loaded.
    Native(&'a Image),
    /// This PTX is compiled.
    Jit(&'a Image),
    /// Nothing in it runs there.
    Nothing,
}

/// The image that the driver takes: cubins before PTX, the nearest architecture, code that is specific to it before code that is not,
/// cubins without Mercury code before those with it, then the first cubin and the last PTX.
///
/// NVIDIA documents what can run where, but not this order. That `a` comes first, whatever the order in the fat binary, was measured on an
/// H200 with driver 580; the rest on another GPU by github.com/bechirBOUALI/cuda-fatbin-precedence. That `f` comes between is a guess.
pub(crate) fn choose(container: &Container, gpu: Gpu) -> Choice<'_> {
    let images = || container.images.iter().filter_map(|image| Some((image, image.target?)));
    let specific = |arch: Arch| match arch.suffix {
        None => 0,
        Some(Suffix::Family) => 1,
        Some(Suffix::ArchSpecific) => 2,
    };
    let cubins = images().filter(|(image, arch)| image.is_loadable_cubin() && arch.cubin_runs_on(gpu.arch));
    // Of equals, `min_by_key` gives the first and `max_by_key` the last.
    if let Some((image, _)) = cubins.min_by_key(|(image, arch)| Reverse((arch.sm, specific(*arch), !image.mercury))) {
        return Choice::Native(image);
    }
    let ptx = images().filter(|(image, arch)| image.is_loadable_ptx() && arch.ptx_runs_on(gpu.arch));
    match ptx.max_by_key(|(_, arch)| (arch.sm, specific(*arch))) {
        Some((image, _)) => Choice::Jit(image),
        None => Choice::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::report::ImageKind;

    fn image(kind: ImageKind, arch: &str) -> Image {
        Image { kind, arch: arch.to_owned(), target: arch.parse().ok(), ..Image::default() }
    }

    fn chosen(images: Vec<Image>, gpu: &str) -> String {
        let container = Container { images, ..Container::default() };
        match choose(&container, Gpu::parse(gpu).expect(gpu)) {
            Choice::Native(image) => format!("cubin {}", image.arch),
            Choice::Jit(image) => format!("ptx {}", image.arch),
            Choice::Nothing => "nothing".to_owned(),
        }
    }

    #[test]
    fn the_drivers_choice() {
        use ImageKind::{Cubin, Ptx};
        for (images, gpu, expected) in [
            (&[(Cubin, "sm_80")][..], "A100", "cubin sm_80"),
            (&[(Cubin, "sm_80")], "H200", "nothing"),
            (&[(Cubin, "sm_80")], "8.7", "nothing"),
            (&[(Cubin, "sm_80"), (Ptx, "sm_80")], "H200", "ptx sm_80"),
            (&[(Ptx, "sm_90"), (Cubin, "sm_80"), (Ptx, "sm_80")], "h200", "ptx sm_90"),
            (&[(Ptx, "sm_90"), (Cubin, "sm_90")], "sm_90", "cubin sm_90"),
            (&[(Cubin, "sm_80"), (Cubin, "sm_86")], "sm_89", "cubin sm_86"),
            (&[(Cubin, "sm_90"), (Cubin, "sm_90a")], "sm_90a", "cubin sm_90a"),
            (&[(Cubin, "sm_90a"), (Cubin, "sm_90")], "sm_90", "cubin sm_90a"),
            (&[(Ptx, "sm_90a"), (Ptx, "sm_90")], "sm_90", "ptx sm_90a"),
            (&[(Cubin, "sm_90"), (Ptx, "sm_90a")], "sm_90", "cubin sm_90"),
            (&[(Cubin, "sm_80"), (Ptx, "sm_90a")], "sm_90", "ptx sm_90a"),
            (&[(Ptx, "sm_90a")], "B200", "nothing"),
            (&[(Cubin, "sm_100f")], "B300", "cubin sm_100f"),
            (&[(Cubin, "sm_100a")], "B300", "nothing"),
            (&[(ImageKind::Bitcode, "sm_90")], "sm_90", "nothing"),
            (&[], "sm_90", "nothing"),
        ] {
            let images = images.iter().map(|(kind, arch)| image(*kind, arch)).collect();
            assert_eq!(chosen(images, gpu), expected, "{gpu}");
        }
    }

    #[test]
    fn code_that_still_has_to_be_linked_is_not_loaded() {
        let relocatable = Image { relocatable: true, ..image(ImageKind::Cubin, "sm_90") };
        assert_eq!(chosen(vec![relocatable], "sm_90"), "nothing");
        let unreadable = Image { problem: Some("damaged".to_owned()), ..image(ImageKind::Cubin, "sm_90") };
        // The choice is made by the headers alone, so a damaged image is still chosen.
        assert_eq!(chosen(vec![unreadable, image(ImageKind::Ptx, "sm_90")], "sm_90"), "cubin sm_90");
    }

    #[test]
    fn the_driver_prefers_cubins_without_mercury_code() {
        let mercury = Image { mercury: true, arch: "first".to_owned(), ..image(ImageKind::Cubin, "sm_100") };
        let plain = image(ImageKind::Cubin, "sm_100");
        assert_eq!(chosen(vec![mercury, plain], "B200"), "cubin sm_100");
    }

    #[test]
    fn gpus_have_names() {
        assert_eq!(Gpu::parse("rtx 30").expect("gpu").to_string(), "sm_86 (A10/RTX 30)");
        assert_eq!(Gpu::parse("sm_90a").expect("gpu").to_string(), "sm_90 (H100/H200)");
        assert_eq!(Gpu::parse("8.8").expect("gpu").to_string(), "sm_88");
        assert!(Gpu::parse("Voodoo 2").is_err());
        let all =
            [("RTX 3090", 86), ("GeForce RTX 2080 Ti", 75), ("nvidia geforce rtx 4070 super", 89), ("rtx5060", 120), ("RTX 2050", 86)];
        for (name, sm) in all {
            assert_eq!(Gpu::parse(name).expect(name).arch.sm, sm, "{name}");
        }
        for name in ["RTX 6000", "RTX", "RTX ", "GTX 1080", "RTX 20", "RTX 2é90"] {
            assert_eq!(geforce(name), None, "{name}");
        }
        assert!(GPUS.is_sorted_by(|a, b| a.0 < b.0));
    }
}
