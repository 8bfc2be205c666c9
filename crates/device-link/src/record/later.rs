//! What one link leaves for another that takes its device code from the cache: such a link makes nothing, and can still be explained.

use super::fill::Inputs;
use super::{Notes, Record, Recorder, SCHEMA, Wanted};

/// A letter before the packed JSON: how much was written down.
const LEVELS: [(Wanted, u8); 3] = [(Wanted::Brief, b'b'), (Wanted::Sizes, b's'), (Wanted::All, b'a')];

/// Whether what a link left serves one that wants so much of a record.
pub fn serves(left: &[u8], wanted: Wanted) -> bool {
    let level = LEVELS.iter().find(|(_, letter)| left.first() == Some(letter)).map_or(Wanted::Nothing, |(level, _)| *level);
    level >= wanted
}

impl Recorder {
    /// What a later link can say that takes the device code of this one from the cache, as [`Recorder::made_before`] reads it; empty where
    /// no record is made.
    pub fn for_later(&self) -> Vec<u8> {
        let Some((_, letter)) = LEVELS.iter().find(|(level, _)| *level == self.wanted) else { return Vec::new() };
        let mut left = vec![*letter];
        self.note(|notes| {
            let record = notes.settle(self.wanted);
            match serde_json::to_vec(&record).ok().and_then(|json| zstd::bulk::compress(&json, 1).ok()) {
                Some(packed) => left.extend(packed),
                None => left.clear(),
            }
            notes.settled = Some(record);
        });
        left
    }

    /// How much is taken down.
    pub fn wanted(&self) -> Wanted {
        self.wanted
    }

    /// The device code was made by an earlier link, which left this. Its inputs had the same device code, in objects that may have had other
    /// names and that the host link may have taken for other reasons. False where that says nothing about this link.
    pub fn made_before(&self, left: &[u8], from: &Inputs) -> bool {
        if !serves(left, self.wanted) {
            return false;
        }
        let Ok(json) = zstd::stream::read::Decoder::new(left.get(1..).unwrap_or_default()) else { return false };
        let Ok(mut record) = serde_json::from_reader::<_, Record>(std::io::BufReader::new(json)) else { return false };
        if !self.is_full() {
            // Not asked for now, and much of what a record takes in space.
            record.remarks.clear();
            record.removed.clear();
            record.architectures.iter_mut().for_each(|arch| arch.kernels.clear());
        }
        let mut is_known = false;
        self.note(|notes| {
            notes.take_inputs(from, &[]);
            let of_host = notes.input_of_unit.keys().filter(|&&unit| unit < from.host_units).count();
            let Some(known) = record.inputs.get_mut(..of_host).filter(|_| record.schema == SCHEMA) else { return };
            for (known, mut now) in known.iter_mut().zip(std::mem::take(&mut notes.record.inputs)) {
                if known.taken && !now.taken {
                    (now.taken, now.reason) = (true, known.reason.clone());
                }
                *known = now;
            }
            notes.settled = Some(record);
            is_known = true;
        });
        is_known
    }
}

impl Notes {
    /// Everything put together but what only the end of a link knows.
    pub(super) fn settle(&mut self, wanted: Wanted) -> Record {
        let mut record = match self.settled.take() {
            Some(settled) => settled,
            None => {
                self.summarise_lto(wanted >= Wanted::Sizes);
                self.merge_symbols();
                let remarks = if wanted >= Wanted::Sizes { super::remarks::parse_all(&self.remark_texts()) } else { Vec::new() };
                Record { remarks, ..std::mem::take(&mut self.record) }
            }
        };
        record.schema = SCHEMA;
        record
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use llvm_lto::{Binding, SymbolKind};

    use super::super::{Architecture, Input, Reason, Seen, Wanted};
    use super::*;
    use crate::extract::{DeviceInput, Image, ImageClass};
    use crate::resolve::{self, Because};
    use crate::select::UnitState;

    fn input(name: &str, taken: bool, reason: Reason) -> Input {
        Input { name: name.to_owned(), taken, reason, ..Input::default() }
    }

    #[test]
    fn a_link_from_the_cache_has_a_record() {
        let made = Recorder::new(Wanted::Brief);
        let device = Reason::DeviceSymbol { symbol: "f".to_owned(), demangled: None };
        made.note(|notes| {
            notes.record.architectures.push(Architecture { arch: "sm_90".to_owned(), inputs: vec![0, 1], ..Architecture::default() });
            notes.record.inputs = vec![
                input("old/a.o", true, Reason::OnTheLine),
                input("old/b.o", true, device.clone()),
                input("old/c.o", false, Reason::NotNeeded),
            ];
            notes.input_of_unit.insert(1, 1);
            let seen = Seen { name: "f".to_owned(), unit: 1, binding: Binding::Strong, kind: SymbolKind::Function };
            notes.symbols.push(("sm_90".to_owned(), vec![seen]));
        });
        let json = made.for_later();
        assert!(serves(&json, Wanted::Brief) && !serves(&json, Wanted::Sizes) && serves(b"", Wanted::Nothing));
        let full = Recorder::new(Wanted::All).for_later();
        assert!([Wanted::Brief, Wanted::Sizes, Wanted::All].into_iter().all(|wanted| serves(&full, wanted)));
        assert!(!serves(&Recorder::new(Wanted::Sizes).for_later(), Wanted::All));
        made.tools(Some(Path::new("/bin/ld")), None);
        let own = made.finish(Path::new("a"), Vec::new(), Vec::new());
        assert_eq!((own.architectures.len(), own.symbols.len(), own.host_linker.as_str()), (1, 1, "/bin/ld"));

        let dir = tempfile::tempdir().unwrap();
        let files: Vec<_> = ["a.o", "b.o", "c.o"]
            .iter()
            .map(|name| {
                let path = dir.path().join(name);
                std::fs::write(&path, b"\x10\xff\x10\xad").unwrap();
                crate::device_files::open(path).unwrap()
            })
            .collect();
        let units = resolve::units(&files).unwrap();
        let states = [true, false, true].map(|taken| UnitState { taken, lazy: !taken });
        let image = |unit| DeviceInput {
            unit,
            part: 0,
            module: None,
            origin: String::new(),
            triple: String::new(),
            arch: fatbin::Arch::new(90),
            class: ImageClass::Bitcode,
            ptx: None,
            image: Image::Plain(Vec::new().into()),
            launch_guard: None,
        };
        let inputs: Vec<DeviceInput> = (0..3).map(image).collect();
        let because: [Option<Because>; 0] = [];
        let now = |inputs| Inputs { units: units.iter().collect(), host_units: 3, states: &states, because: &because, inputs };
        let later = Recorder::new(Wanted::Brief);
        assert!(later.made_before(&json, &now(&inputs)));
        later.tools(Some(Path::new("/bin/lld")), None);
        let record = later.finish(Path::new("b"), Vec::new(), Vec::new());
        let names: Vec<_> = record.inputs.iter().map(|input| input.name.rsplit('/').next().unwrap()).collect();
        assert_eq!(names, ["a.o", "b.o", "c.o"]);
        assert_eq!(record.inputs.iter().map(|input| input.taken).collect::<Vec<_>>(), [true, true, true]);
        // What the device code needs is the same; what the host link takes is this link's own.
        assert_eq!([&record.inputs[1].reason, &record.inputs[2].reason], [&device, &Reason::OnTheLine]);
        assert_eq!((record.architectures, record.symbols, record.host_linker.as_str()), (own.architectures, own.symbols, "/bin/lld"));

        // What was left says nothing about another number of inputs, and nothing may have been left.
        let four: Vec<DeviceInput> = (0..2).map(image).collect();
        assert!(Recorder::new(Wanted::Brief).made_before(&json, &now(&four)));
        let more = made_of(&[input("a.o", true, Reason::OnTheLine)]);
        assert!(!Recorder::new(Wanted::Brief).made_before(&more, &now(&inputs)));
        for damaged in [&b""[..], b"b", b"b{}", &json[..json.len() - 1]] {
            assert!(!Recorder::new(Wanted::Brief).made_before(damaged, &now(&inputs)));
        }
        assert!(!Recorder::new(Wanted::Nothing).made_before(&json, &now(&inputs)));
        assert!(!Recorder::new(Wanted::Sizes).made_before(&json, &now(&inputs)));
        assert_eq!(Recorder::new(Wanted::Nothing).for_later(), b"");
    }

    fn made_of(inputs: &[Input]) -> Vec<u8> {
        let record = Record { schema: SCHEMA, inputs: inputs.to_vec(), ..Record::default() };
        [b"b".to_vec(), zstd::bulk::compress(&serde_json::to_vec(&record).unwrap(), 1).unwrap()].concat()
    }
}
