//! From the structures of the link to those of the record.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::path::Path;

use fatbin::Arch;
use llvm_lto::{Binding, Definition, Session, SymbolKind};

use super::{
    Architecture, BeforeLto, FatBinary, Fate, Input, InputImage, Kernel, Lto, LtoNotes, Module, Notes, PackedImage, Part, ProcessUsage,
    Reason, Record, Recorder, Removed, Seen, Stage, Symbol, Warning,
};
use crate::assemble::DeviceImage;
use crate::extract::{DeviceInput, ImageClass};
use crate::names;
use crate::resolve::{Because, Unit, UnitName};
use crate::select::{LinkJob, UnitState};

/// The objects of a link, as selection is about to see them.
pub struct Inputs<'u, 'a> {
    /// All units that can give device code, those of the host link first.
    pub units: Vec<&'u Unit<'a>>,
    /// How many of them are in the host link.
    pub host_units: usize,
    /// One for each unit.
    pub states: &'u [UnitState],
    /// Why the host link takes a lazy unit; one for each of its units, or none where nobody had to ask.
    pub because: &'u [Option<Because>],
    /// The device code in them.
    pub inputs: &'u [DeviceInput<'a>],
}

impl Recorder {
    /// The inputs, once the set of them is fixed, and the jobs made of them.
    pub fn selection(&self, inputs: &Inputs, jobs: &[LinkJob]) {
        self.note(|notes| {
            notes.take_inputs(inputs, jobs);
            for job in jobs {
                let used = |origins: &mut Vec<usize>, unit: usize| {
                    if let Some(&index) = notes.input_of_unit.get(&unit)
                        && !origins.contains(&index)
                    {
                        origins.push(index);
                    }
                };
                let mut members = Vec::new();
                job.units.iter().for_each(|&unit| used(&mut members, unit));
                let arch = job.arch.to_string();
                let older = members.iter().filter_map(|&index| Some((index, older(notes.record.inputs.get(index)?, &arch)?))).collect();
                notes.record.architectures.push(Architecture { arch: arch.clone(), inputs: members, older, ..Architecture::default() });
                notes.symbols.push((arch, job.seen.clone()));
            }
        });
    }

    /// Looks at a merged module before LTO.
    pub fn before_lto(&self, session: &Session) -> BeforeLto {
        if !self.is_on() {
            return BeforeLto::default();
        }
        // What cannot be looked at is not recorded; the link finds out by itself what is wrong.
        BeforeLto {
            definitions: session.inventory(self.is_full()).unwrap_or_default(),
            unreachable: session.unreachable().unwrap_or_default(),
        }
    }

    /// Looks at the same module after LTO.
    pub fn after_lto(&self, arch: Arch, before: BeforeLto, session: &Session) {
        if !self.is_on() {
            return;
        }
        let after = self.inventory(session);
        self.after_parts(arch, before, after);
    }

    /// The definitions of a module, where they are recorded.
    pub fn inventory(&self, session: &Session) -> Vec<Definition> {
        if self.is_on() { session.inventory(self.is_full()).unwrap_or_default() } else { Vec::new() }
    }

    /// What LTO left of a module that was cut into parts: the definitions of all of them.
    pub fn after_parts(&self, arch: Arch, before: BeforeLto, after: Vec<Definition>) {
        self.note(|notes| {
            notes.lto.insert(
                arch.to_string(),
                LtoNotes { before: before.definitions, after, unreachable: before.unreachable, ..LtoNotes::default() },
            );
        });
    }

    /// LTO of one architecture serves another one.
    pub fn shares_lto(&self, arch: Arch, with: Arch) {
        // Of interest for remarks as well, which need no record.
        if let Ok(mut notes) = self.notes.lock() {
            notes.shared.push((arch.to_string(), with.to_string()));
        }
        self.note(|notes| {
            let size = notes.architecture(&with.to_string()).map_or(0, |record| record.ptx_size);
            if let Some(record) = notes.architecture(&arch.to_string()) {
                record.shares_lto_with = Some(with.to_string());
                record.ptx_size = size;
            }
        });
    }

    /// The parts of an architecture's program.
    pub fn parts(&self, arch: Arch, parts: Vec<Part>) {
        self.note(|notes| {
            if let Some(record) = notes.architecture(&arch.to_string()) {
                record.parts = parts;
            }
        });
    }

    /// The size of the PTX that LTO made.
    pub fn ptx(&self, arch: Arch, size: usize) {
        self.note(|notes| {
            if let Some(record) = notes.architecture(&arch.to_string()) {
                record.ptx_size = size as u64;
            }
        });
    }

    /// Remarks that LTO made, in YAML, for all of these architectures at once.
    pub fn remarks(&self, archs: &[Arch], yaml: String) {
        if !yaml.is_empty()
            && let Ok(mut notes) = self.notes.lock()
        {
            notes.yaml.push((archs.iter().map(Arch::to_string).collect(), yaml));
        }
    }

    /// The remarks of all architectures so far, in the order of the architectures, each with all that share its LTO.
    pub fn remark_texts(&self) -> Vec<(Vec<String>, String)> {
        self.notes.lock().map(|notes| notes.remark_texts()).unwrap_or_default()
    }

    /// The finished images.
    pub fn images(&self, images: &[DeviceImage], container: &[u8]) {
        self.note(|notes| {
            let full = self.is_full();
            for image in images {
                let arch = image.arch.to_string();
                let kernels = if full { kernels(image, notes) } else { Vec::new() };
                // Images given by hand have not been selected.
                if notes.architecture(&arch).is_none() {
                    notes.record.architectures.push(Architecture { arch: arch.clone(), ..Architecture::default() });
                }
                let Some(record) = notes.architecture(&arch) else { continue };
                record.cubin_size = image.cubin.as_ref().map_or(0, |cubin| cubin.len() as u64);
                record.ptx_embedded = image.ptx.is_some();
                record.kernels = kernels;
            }
            let entries = fatbin::read(container).unwrap_or_default();
            let images = entries.iter().map(|entry| PackedImage {
                arch: entry.arch.to_string(),
                kind: if entry.kind.is_ptx() { "ptx" } else { "cubin" }.to_owned(),
                size: entry.uncompressed_size,
                stored: entry.stored.len() as u64,
                compression: entry.compression.name().to_owned(),
            });
            notes.record.fat_binary = Some(FatBinary { size: container.len() as u64, images: images.collect() });
        });
    }

    /// Tools and files of the link.
    pub fn tools(&self, host_linker: Option<&Path>, toolkit: Option<&Path>) {
        self.note(|notes| {
            let record = notes.settled.as_mut().unwrap_or(&mut notes.record);
            record.host_linker = host_linker.map(|path| path.display().to_string()).unwrap_or_default();
            record.toolkit = toolkit.map(|path| path.display().to_string()).unwrap_or_default();
        });
    }

    /// Everything that has been taken down, put together; nothing is left. Where stages were measured, with what the machine was used for.
    pub fn finish(&self, output: &Path, stages: Vec<Stage>, warnings: Vec<Warning>) -> Record {
        let mut notes = self.notes.lock().map(|mut notes| std::mem::take(&mut *notes)).unwrap_or_default();
        let mut record = notes.settle(self.wanted);
        record.warplink = env!("CARGO_PKG_VERSION").to_owned();
        record.output =
            output.canonicalize().or_else(|_| std::path::absolute(output)).unwrap_or_else(|_| output.to_owned()).display().to_string();
        record.directory = std::env::current_dir().map(|path| path.display().to_string()).unwrap_or_default();
        record.stamp = super::store::stamp(output);
        if self.is_full() {
            record.symbols.iter_mut().for_each(|symbol| symbol.demangled = names::demangled(&symbol.name));
            record.usage = Some(usage(&stages));
        }
        record.stages = stages;
        record.warnings = warnings;
        record
    }
}

impl Notes {
    fn architecture(&mut self, arch: &str) -> Option<&mut Architecture> {
        self.record.architectures.iter_mut().find(|record| record.arch == arch)
    }

    pub(super) fn remark_texts(&self) -> Vec<(Vec<String>, String)> {
        let number = |arch: &String| arch.parse::<Arch>().ok();
        let mut texts: Vec<(Vec<String>, String)> = self
            .yaml
            .iter()
            .map(|(archs, yaml)| {
                let others = self.shared.iter().filter(|(_, with)| archs.contains(with)).map(|(other, _)| other);
                let mut archs: Vec<String> = archs.iter().chain(others).cloned().collect();
                archs.sort_by_key(number);
                archs.dedup();
                (archs, yaml.clone())
            })
            .collect();
        texts.sort_by_key(|(archs, _)| archs.first().and_then(number));
        texts
    }

    pub(super) fn take_inputs(&mut self, from: &Inputs, jobs: &[LinkJob]) {
        // Selection may be done again with more inputs: the last one counts.
        *self = Notes {
            record: Record {
                host_linker: std::mem::take(&mut self.record.host_linker),
                toolkit: std::mem::take(&mut self.record.toolkit),
                ..Record::default()
            },
            ..Notes::default()
        };
        let mut images: BTreeMap<usize, Vec<InputImage>> = BTreeMap::new();
        for input in from.inputs {
            images.entry(input.unit).or_default().push(InputImage {
                arch: input.arch.to_string(),
                kind: class_name(input.class).to_owned(),
                size: input.image.size(),
            });
        }
        let drawn: HashMap<usize, &str> =
            jobs.iter().flat_map(|job| &job.drawn_for).map(|(unit, symbol)| (*unit, symbol.as_str())).collect();
        let units_in: HashSet<usize> = jobs.iter().flat_map(|job| job.units.iter().copied()).collect();
        for (index, images) in images {
            let Some(unit) = from.units.get(index) else { continue };
            let taken = from.states.get(index).is_some_and(|state| state.taken) || units_in.contains(&index);
            // A runtime library has a hundred members of which nobody has heard.
            if !taken && index >= from.host_units {
                continue;
            }
            let because = from.because.get(index).and_then(Option::as_ref);
            let host_took = from.states.get(index).is_some_and(|state| state.taken);
            let reason = match (because, drawn.get(&index)) {
                (Some(because), _) if host_took => Reason::HostSymbol {
                    symbol: because.symbol.clone(),
                    demangled: names::demangled(&because.symbol),
                    from: because.from.and_then(|unit| Some(from.units.get(unit)?.name.to_string())),
                },
                (_, Some(symbol)) => Reason::DeviceSymbol { symbol: (*symbol).to_owned(), demangled: names::demangled(symbol) },
                _ if host_took && unit.lazy && index < from.host_units => Reason::HostLink,
                _ if taken => Reason::OnTheLine,
                _ => Reason::NotNeeded,
            };
            self.input_of_unit.insert(index, self.record.inputs.len());
            self.record.inputs.push(Input {
                name: unit.name.to_string(),
                archive: match unit.name {
                    UnitName::File(_) => None,
                    UnitName::Member(path, _) => Some(path.display().to_string()),
                },
                size: unit.data.len() as u64,
                taken,
                reason,
                images,
            });
        }
    }

    /// What LTO did to each architecture, from the modules before and after.
    pub(super) fn summarise_lto(&mut self, full: bool) {
        let mut removed: Vec<(Removed, usize)> = Vec::new();
        for (index, arch) in self.record.architectures.iter_mut().enumerate() {
            let Some(lto) = self.lto.get(arch.shares_lto_with.as_ref().unwrap_or(&arch.arch)) else { continue };
            arch.lto = Some(Lto { before: module(&lto.before), after: module(&lto.after) });
            if !full {
                continue;
            }
            for definition in &lto.before {
                match lto.fate(&definition.name) {
                    None | Some(Fate::Kept) => {}
                    Some(fate) => removed.push((
                        Removed {
                            demangled: names::demangled(&definition.name),
                            name: definition.name.clone(),
                            kind: kind_name(definition.kind).to_owned(),
                            size: definition.size,
                            fate,
                            archs: Vec::new(),
                        },
                        index,
                    )),
                }
            }
        }
        let mut known: HashMap<(String, Fate, u64), usize> = HashMap::new();
        for (mut one, arch) in removed {
            let list = &mut self.record.removed;
            let at = *known.entry((one.name.clone(), one.fate, one.size)).or_insert(list.len());
            match list.get_mut(at) {
                Some(before) => before.archs.push(arch),
                None => {
                    one.archs.push(arch);
                    list.push(one);
                }
            }
        }
    }

    /// One table of symbols for all architectures: what is the same for several is said once.
    pub(super) fn merge_symbols(&mut self) {
        let mut merged: Vec<Symbol> = Vec::new();
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, (arch, seen)) in std::mem::take(&mut self.symbols).into_iter().enumerate() {
            let lto_of = self.record.architectures.get(index).and_then(|record| record.shares_lto_with.clone()).unwrap_or(arch);
            let lto = self.lto.get(&lto_of);
            for mut symbol in symbols_of(seen, &self.input_of_unit) {
                symbol.fate = lto.filter(|_| symbol.definition.is_some()).and_then(|lto| lto.fate(&symbol.name));
                let known = by_name.entry(symbol.name.clone()).or_default();
                let same = known.iter().copied().find(|&at| {
                    merged.get(at).is_some_and(|other| {
                        other.kind == symbol.kind
                            && other.definition == symbol.definition
                            && other.binding == symbol.binding
                            && other.others == symbol.others
                            && other.references == symbol.references
                            && other.fate == symbol.fate
                    })
                });
                match same.and_then(|at| merged.get_mut(at)) {
                    Some(other) => other.archs.push(index),
                    None => {
                        symbol.archs.push(index);
                        known.push(merged.len());
                        merged.push(symbol);
                    }
                }
            }
        }
        self.record.symbols = merged;
    }
}

impl LtoNotes {
    fn fate(&self, name: &str) -> Option<Fate> {
        if self.after_names().contains(name) {
            Some(Fate::Kept)
        } else if self.unreachable.contains(name) {
            Some(Fate::Unused)
        } else if self.before_names().contains(name) {
            Some(Fate::Inlined)
        } else {
            None
        }
    }

    fn after_names(&self) -> &HashSet<String> {
        self.names_after
            .get_or_init(|| self.after.iter().map(|definition| llvm_lto::name_before_cut(&definition.name).into_owned()).collect())
    }

    fn before_names(&self) -> &HashSet<String> {
        self.names_before.get_or_init(|| self.before.iter().map(|definition| definition.name.clone()).collect())
    }
}

/// The symbols of one architecture, each with its definitions and references, in the order in which they were met.
fn symbols_of(seen: Vec<Seen>, input_of_unit: &HashMap<usize, usize>) -> Vec<Symbol> {
    let mut symbols: Vec<Symbol> = Vec::new();
    let mut by_name: HashMap<String, usize> = HashMap::new();
    for Seen { name, unit, binding, kind } in seen {
        let Some(&input) = input_of_unit.get(&unit) else { continue };
        let at = match by_name.get(&name) {
            Some(&at) => at,
            None => {
                by_name.insert(name.clone(), symbols.len());
                symbols.push(Symbol { name, kind: kind_name(kind).to_owned(), ..Symbol::default() });
                symbols.len() - 1
            }
        };
        let Some(symbol) = symbols.get_mut(at) else { continue };
        let Some(binding) = binding_name(binding) else {
            if !symbol.references.contains(&input) {
                symbol.references.push(input);
            }
            continue;
        };
        // A reference does not know a kernel from a function.
        symbol.kind = kind_name(kind).to_owned();
        match symbol.definition {
            Some(first) if binding == "strong" && symbol.binding != "strong" => {
                symbol.others.push((first, std::mem::replace(&mut symbol.binding, binding.to_owned())));
                symbol.definition = Some(input);
            }
            Some(_) => symbol.others.push((input, binding.to_owned())),
            None => {
                symbol.definition = Some(input);
                symbol.binding = binding.to_owned();
            }
        }
    }
    symbols
}

/// The architecture whose code stands in for the one that an input lacks.
fn older(input: &Input, arch: &str) -> Option<String> {
    let wanted: Arch = arch.parse().ok()?;
    let has: Vec<Arch> = input.images.iter().filter_map(|image| image.arch.parse().ok()).collect();
    if has.contains(&wanted) {
        return None;
    }
    has.into_iter().filter(|arch| arch.suffix.is_none() && arch.sm <= wanted.sm).max().map(|arch| arch.to_string())
}

fn module(definitions: &[Definition]) -> Module {
    let mut module = Module::default();
    for definition in definitions {
        if definition.kind == SymbolKind::Variable {
            module.variables += 1;
            module.variable_bytes = module.variable_bytes.saturating_add(definition.size);
        } else {
            module.functions += 1;
            module.instructions += definition.size;
        }
    }
    module
}

fn kernels(image: &DeviceImage, notes: &Notes) -> Vec<Kernel> {
    let Some(cubin) = image.cubin.as_deref().and_then(|bytes| fatbin::cubin::Cubin::parse(bytes).ok()) else { return Vec::new() };
    let arch = image.arch.to_string();
    let lto_of = notes.record.architectures.iter().find(|record| record.arch == arch).and_then(|record| record.shares_lto_with.clone());
    let lto = notes.lto.get(&lto_of.unwrap_or_else(|| arch.clone()));
    let size = |list: &[Definition], name: &str| list.iter().find(|definition| definition.name == name).map(|definition| definition.size);
    let seen = notes.symbols.iter().find(|(of, _)| *of == arch).map(|(_, seen)| seen.as_slice()).unwrap_or_default();
    let definers: HashMap<&str, usize> =
        seen.iter().rev().filter(|seen| binding_name(seen.binding).is_some()).map(|seen| (seen.name.as_str(), seen.unit)).collect();
    let kernels = cubin.kernels().unwrap_or_default();
    kernels
        .into_iter()
        .map(|kernel| Kernel {
            name: kernel.name.to_owned(),
            demangled: names::demangled(kernel.name),
            input: definers.get(kernel.name).and_then(|unit| notes.input_of_unit.get(unit)).copied(),
            instructions_before: lto.and_then(|lto| size(&lto.before, kernel.name)),
            instructions_after: lto.and_then(|lto| size(&lto.after, kernel.name)),
            code: kernel.code,
            registers: kernel.registers,
            spills: kernel.spills.map(|spills| (spills.stores, spills.loads)),
            stack: kernel.stack,
            shared: kernel.shared,
            constant: kernel.constants.iter().fold(0, |sum, (_, size)| sum.saturating_add(*size)),
        })
        .collect()
}

fn usage(stages: &[Stage]) -> ProcessUsage {
    let micros = |time: std::time::Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    let own = llvm_lto::own_usage();
    ProcessUsage {
        wall: stages.iter().map(|stage| stage.start.saturating_add(stage.wall)).max().unwrap_or(0),
        cpu: micros(own.user.saturating_add(own.system)),
        child_cpu: stages.iter().fold(0, |sum, stage| sum.saturating_add(stage.child_user).saturating_add(stage.child_system)),
        peak_memory: own.peak_memory,
        child_peak_memory: stages.iter().map(|stage| stage.child_peak_memory).max().unwrap_or(0),
    }
}

fn class_name(class: ImageClass) -> &'static str {
    match class {
        ImageClass::Bitcode => "bitcode",
        ImageClass::Cubin => "cubin",
        ImageClass::Ptx => "ptx",
        ImageClass::LtoIr => "nvvm",
        ImageClass::Fatbin => "fatbin",
        ImageClass::Unknown => "unknown",
    }
}

fn kind_name(kind: SymbolKind) -> &'static str {
    match kind {
        SymbolKind::Kernel => "kernel",
        SymbolKind::Function => "function",
        SymbolKind::Variable => "variable",
    }
}

/// The binding of a definition; none for references.
fn binding_name(binding: Binding) -> Option<&'static str> {
    match binding {
        Binding::Strong => Some("strong"),
        Binding::Weak => Some("weak"),
        Binding::Common => Some("common"),
        Binding::Undefined | Binding::UndefinedWeak => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(name: &str, unit: usize, binding: Binding) -> Seen {
        Seen { name: name.to_owned(), unit, binding, kind: SymbolKind::Function }
    }

    #[test]
    fn symbols_know_who_defines_and_who_refers() {
        let inputs = HashMap::from([(4, 0), (7, 1), (9, 2)]);
        let list = vec![
            seen("f", 4, Binding::Undefined),
            seen("t", 4, Binding::Weak),
            seen("t", 7, Binding::Weak),
            seen("w", 7, Binding::Weak),
            seen("f", 7, Binding::Strong),
            seen("w", 9, Binding::Strong),
            seen("f", 9, Binding::Undefined),
            seen("f", 9, Binding::UndefinedWeak),
            // A unit that has no device code of its own.
            seen("x", 8, Binding::Strong),
        ];
        let symbols = symbols_of(list, &inputs);
        let of = |name: &str| symbols.iter().find(|symbol| symbol.name == name).unwrap();
        assert_eq!((of("f").definition, of("f").references.as_slice()), (Some(1), [0, 2].as_slice()));
        assert_eq!((of("t").definition, of("t").others.as_slice()), (Some(0), [(1, "weak".to_owned())].as_slice()));
        // The strong one wins, whatever the order.
        assert_eq!((of("w").definition, of("w").binding.as_str()), (Some(2), "strong"));
        assert_eq!(of("w").others, [(1, "weak".to_owned())]);
        assert_eq!(symbols.len(), 3);
    }

    #[test]
    fn remarks_are_of_all_that_share_an_lto() {
        // Nobody wants a record; remarks are another matter.
        let recorder = Recorder::new(crate::record::Wanted::Nothing);
        recorder.remarks(&[Arch::new(120)], "c".to_owned());
        recorder.remarks(&[Arch::new(86)], "a".to_owned());
        recorder.remarks(&[Arch::new(70)], String::new());
        recorder.shares_lto(Arch::new(90), Arch::new(86));
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        assert_eq!(recorder.remark_texts(), [(names(&["sm_86", "sm_90"]), "a".to_owned()), (names(&["sm_120"]), "c".to_owned())]);
        assert_eq!(recorder.finish(Path::new("no/such/output"), Vec::new(), Vec::new()).architectures, []);
    }

    #[test]
    fn fates() {
        let definition = |name: &str| Definition { name: name.to_owned(), kind: SymbolKind::Function, internal: true, size: 1 };
        let lto = LtoNotes {
            before: ["k", "inlined", "unused", "copied"].map(definition).into(),
            after: vec![definition("k"), definition("copied__part__0a46aeb6"), definition("copied__part__7a46aeb6")],
            unreachable: HashSet::from(["unused".to_owned()]),
            ..LtoNotes::default()
        };
        let fates = ["k", "inlined", "unused", "copied", "machine_code"].map(|name| lto.fate(name));
        assert_eq!(fates, [Some(Fate::Kept), Some(Fate::Inlined), Some(Fate::Unused), Some(Fate::Kept), None]);
    }
}
