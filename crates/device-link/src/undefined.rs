//! Why a device symbol is undefined: looks at everything on the line that could have defined it. Runs in the error path only.

use fatbin::Arch;
use llvm_lto::{Binding, Session};
use offload_object::{FileKind, HostObject};

use crate::device_object;
use crate::diagnostics::Diagnostics;
use crate::extract::{DeviceInput, ImageClass};
use crate::names::demangle;
use crate::nvcc;
use crate::resolve::Unit;
use crate::select::{Fault, LinkJob};

/// What hints can be drawn from.
pub struct Explainer<'a> {
    /// All device images of the line.
    pub inputs: &'a [DeviceInput<'a>],
    /// Units whose device code `nvcc -dlink` has linked, as messages call them.
    pub linked_by_nvcc: &'a [String],
    /// Why kernels cannot be launched from device code, where libcudadevrt was looked for.
    pub no_device_runtime: Option<&'a str>,
    /// The objects of the host link.
    pub units: &'a [Unit<'a>],
    /// Shared objects of the line: name and bytes.
    pub shared: &'a [(String, &'a [u8])],
    /// How names are shown.
    pub diagnostics: &'a Diagnostics,
    /// A record of the link is kept, for which every symbol is of interest.
    pub keep_seen: bool,
}

impl Explainer<'_> {
    /// The fault for a symbol that nothing defines: who refers to it, and what might help.
    pub fn undefined(&self, name: &str, job: &LinkJob) -> Fault {
        let mut references = Vec::new();
        let mut objects = Vec::new();
        for member in &job.members {
            // Optimisation has inlined the referring functions into others; what the user wrote is in the inputs.
            let mut session = Session::new();
            let Ok(id) = session.load(&member.origin, member.image) else { continue };
            for from in session.references(id, name).unwrap_or_default() {
                references.push((member.origin.clone(), from));
            }
        }
        for object in &job.objects {
            let symbols = device_object::symbols(object.class, object.image).unwrap_or_default();
            if symbols.iter().any(|symbol| symbol.name == name && !symbol.is_defined()) {
                objects.push(object.origin.as_str());
            }
        }
        let first = references.first().map(|(origin, _)| origin.as_str()).or(objects.first().copied());
        let first = first.map_or_else(|| crate::lto::describe(job), str::to_owned);
        let mut notes: Vec<String> =
            references.iter().take(3).map(|(origin, from)| format!("referenced by {origin}:({})", self.diagnostics.name(from))).collect();
        if references.len() > 3 {
            notes.push(format!("referenced {} more times", references.len() - 3));
        }
        notes.extend(objects.iter().take(3).map(|origin| format!("referenced by {origin}")));
        notes.extend(self.hints(name, job.arch));
        Fault { what: format!("{first}: undefined device symbol: {}", self.diagnostics.name(name)), notes, code: "undefined-symbol" }
    }

    /// Hints for one symbol, the most certain first.
    pub fn hints(&self, name: &str, arch: Arch) -> Vec<String> {
        if let Some(reason) = self.no_device_runtime.filter(|_| nvcc::is_device_runtime(name)) {
            return vec![reason.to_owned()];
        }
        let mut hints = Vec::new();
        let mut near: Vec<(String, String)> = Vec::new();
        let wanted = demangle(name);
        let mut others: Vec<(Arch, &str)> = Vec::new();
        for input in self.inputs {
            for symbol in defined_names(input) {
                if symbol == name {
                    if input.arch != arch {
                        others.push((input.arch, &input.origin));
                    }
                } else if is_near(&demangle(&symbol), &wanted) && !near.iter().any(|(known, _)| *known == symbol) {
                    near.push((symbol, input.origin.clone()));
                }
            }
        }
        if let Some((_, origin)) = others.first() {
            let mut archs: Vec<String> = others.iter().filter(|(_, o)| o == origin).map(|(arch, _)| arch.to_string()).collect();
            archs.dedup();
            hints.push(format!("defined in {origin}, but only for {}", archs.join(", ")));
        }
        for (library, bytes) in self.shared {
            if shared_defines(bytes, name) {
                hints.push(format!("defined in {library}; device code cannot be linked across shared libraries"));
            }
        }
        // Left to the host linker, which this link will not reach.
        let damaged = |unit: &&Unit| {
            !unit.lazy && matches!(unit.kind, FileKind::ElfRelocatable | FileKind::Coff) && HostObject::parse(unit.data).is_err()
        };
        if let Some(unit) = self.units.iter().find(damaged) {
            hints.push(format!("{} is damaged, so that its device code is not known; compile it again", unit.name));
        }
        if let Some(object) = self.linked_by_nvcc.first() {
            hints.push(format!("{object} holds device code that nvcc -dlink has linked already, which does not take part in this link"));
        }
        for (symbol, origin) in near.iter().take(2) {
            hints.push(format!("did you mean: {} in {origin}", self.diagnostics.name(symbol)));
        }
        hints
    }
}

fn defined_names(input: &DeviceInput) -> Vec<String> {
    let Ok(bytes) = input.image.bytes() else { return Vec::new() };
    match input.class {
        ImageClass::Bitcode => {
            let mut session = Session::new();
            let Ok(id) = session.load(&input.origin, bytes) else { return Vec::new() };
            session
                .symbols(id)
                .into_iter()
                .filter(|s| !matches!(s.binding, Binding::Undefined | Binding::UndefinedWeak))
                .map(|s| s.name)
                .collect()
        }
        class => device_object::symbols(class, bytes)
            .unwrap_or_default()
            .iter()
            .filter(|symbol| symbol.is_defined())
            .map(|symbol| symbol.name.to_owned())
            .collect(),
    }
}

fn cubin_names(bytes: &[u8]) -> Vec<String> {
    let Ok(cubin) = fatbin::cubin::Cubin::parse(bytes) else { return Vec::new() };
    cubin
        .symbols()
        .iter()
        .filter(|s| s.kind != fatbin::cubin::SymbolKind::Undefined && s.kind != fatbin::cubin::SymbolKind::Other)
        .map(|s| s.name.to_owned())
        .collect()
}

/// Whether a shared object's linked device code has a symbol of this name.
fn shared_defines(bytes: &[u8], name: &str) -> bool {
    let Ok(object) = HostObject::parse(bytes) else { return false };
    let Some(section) = object.section_named(fatbin::SECTION_FATBIN) else { return false };
    fatbin::section_containers(section).filter_map(|(_, container)| container.ok()).any(|container| {
        container.entries().unwrap_or_default().iter().any(|entry| {
            entry.kind == fatbin::Kind::Elf
                && entry.payload().is_ok_and(|cubin| {
                    let local = format!("${name}");
                    cubin_names(cubin.as_ref()).iter().any(|symbol| symbol == name || symbol.ends_with(&local))
                })
        })
    })
}

/// Whether two demangled names are one function with other parameters, or differ in a letter or two.
fn is_near(candidate: &str, wanted: &str) -> bool {
    let base = |name: &str| name.split('(').next().unwrap_or(name).to_owned();
    let last = |name: &str| base(name).rsplit("::").next().unwrap_or_default().to_owned();
    let (a, b) = (last(candidate), last(wanted));
    if a.is_empty() || b.len() < 3 {
        return false;
    }
    a == b || distance(a.as_bytes(), b.as_bytes(), 2)
}

/// Whether the edit distance is at most `limit`.
fn distance(a: &[u8], b: &[u8], limit: usize) -> bool {
    if a.len().abs_diff(b.len()) > limit || b.len() < 2 * limit + 1 {
        return false;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut diagonal = i;
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
        for (j, y) in b.iter().enumerate() {
            let above = row.get(j + 1).copied().unwrap_or(usize::MAX);
            let left = row.get(j).copied().unwrap_or(usize::MAX);
            let value = (diagonal + usize::from(x != y)).min(above + 1).min(left + 1);
            diagonal = above;
            if let Some(cell) = row.get_mut(j + 1) {
                *cell = value;
            }
        }
    }
    row.last().is_some_and(|&d| d <= limit)
}

/// The shared objects among the units, for [`Explainer::shared`].
pub fn shared_objects<'a>(units: &'a [Unit<'a>]) -> Vec<(String, &'a [u8])> {
    units.iter().filter(|unit| unit.kind == FileKind::ElfShared).map(|unit| (unit.name.to_string(), unit.data)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_are_other_overloads_and_slips() {
        for (candidate, wanted, near) in [
            ("reduce(float*, int)", "reduce(double*, int)", true),
            ("math::reduce(float*)", "reduce(float*)", true),
            ("redcue(float*)", "reduce(float*)", true),
            ("scale(float*)", "reduce(float*)", false),
            ("f(int)", "g(int)", false),
        ] {
            assert_eq!(is_near(candidate, wanted), near, "{candidate} {wanted}");
        }
    }
}
