//! LLVM's answers: PTX of one part of a program. A part is written in a form that says nothing but what it means, so equal bytes are the same
//! code, whichever objects it came from and in which order.

use llvm_lto::{Definition, SymbolKind};

use super::{Cache, Fields, Hash, Key, Kind, Warning};

/// Everything that the PTX of a part depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CodeKey<'k> {
    /// Our own identity, LLVM's included.
    pub warplink: Hash,
    /// LLVM's options, `-mllvm`.
    pub llvm_options: &'k [String],
    /// Target, levels and what is done first.
    pub recipe: &'k str,
    /// The part.
    pub bitcode: &'k [u8],
}

impl CodeKey<'_> {
    /// The key.
    pub fn key(&self) -> Key {
        let CodeKey { warplink, llvm_options, recipe, bitcode } = self;
        let mut fields = Fields::new(Kind::Code);
        fields
            .hash("warplink", "warplink itself", *warplink)
            .value("LLVM's options", llvm_options)
            .value("recipe", recipe)
            .bytes("bitcode", bitcode);
        fields.key()
    }
}

/// What became of a part.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Compiled {
    /// The PTX.
    pub text: Vec<u8>,
    /// Symbols that it refers to and does not define.
    pub undefined: Vec<String>,
    /// What LLVM warned of.
    pub warnings: Vec<String>,
    /// What LTO left, with sizes, for the record of a link.
    pub definitions: Vec<Definition>,
    /// What the optimiser remarked, in YAML, where a report asked.
    pub remarks: Option<String>,
}

/// A line for each definition: what it is, whether others can refer to it, its size, its name.
fn written(definitions: &[Definition]) -> String {
    let line = |definition: &Definition| {
        let kind = match definition.kind {
            SymbolKind::Kernel => 'k',
            SymbolKind::Function => 'f',
            SymbolKind::Variable => 'v',
        };
        format!("{kind}{}{} {}\n", if definition.internal { 'i' } else { 'e' }, definition.size, definition.name)
    };
    definitions.iter().map(line).collect()
}

fn read(text: &str) -> Option<Vec<Definition>> {
    let line = |line: &str| {
        let mut chars = line.chars();
        let kind = match chars.next()? {
            'k' => SymbolKind::Kernel,
            'f' => SymbolKind::Function,
            'v' => SymbolKind::Variable,
            _ => return None,
        };
        let internal = chars.next()? == 'i';
        let (size, name) = chars.as_str().split_once(' ')?;
        Some(Definition { name: name.to_owned(), kind, internal, size: size.parse().ok()? })
    };
    text.split_terminator('\n').map(line).collect()
}

/// One part for LLVM.
pub struct Code<'c> {
    cache: &'c Cache<'c>,
    key: Key,
}

/// Stands before remarks: there may have been none to be made, or nobody who asked.
const REMARKS: &str = "remarks\n";

/// What stands in for the name of a warning: those of LLVM have none.
const UNNAMED: &str = "optimizer";

impl<'c> Code<'c> {
    /// None where the cache is off.
    pub fn new(cache: &'c Cache<'c>, llvm_options: &[String], recipe: &str, bitcode: &[u8]) -> Option<Code<'c>> {
        if !cache.is_on() {
            return None;
        }
        let key = CodeKey { warplink: cache.own_identity()?, llvm_options, recipe, bitcode }.key();
        Some(Code { cache, key })
    }

    /// What was made before; none, too, where it was made without the remarks that are wanted.
    pub fn known(&self, with_remarks: bool) -> Option<Compiled> {
        let mut entry = self.cache.get(Kind::Code, &self.key)?;
        let names = String::from_utf8(entry.section(1).to_vec()).ok()?;
        let definitions = read(std::str::from_utf8(entry.section(2)).ok()?)?;
        let remarks = match with_remarks {
            true => Some(std::str::from_utf8(entry.section(3)).ok()?.strip_prefix(REMARKS)?.to_owned()),
            false => None,
        };
        let warnings = std::mem::take(&mut entry.warnings).into_iter().map(|warning| warning.text).collect();
        let text = entry.take(0);
        fatbin::ptx::Header::parse(&text).ok()?;
        Some(Compiled { text, undefined: names.split_terminator('\n').map(str::to_owned).collect(), warnings, definitions, remarks })
    }

    /// Keeps what has been made.
    pub fn keep(&self, compiled: &Compiled) {
        let Compiled { text, undefined, warnings, definitions, remarks } = compiled;
        let names: String = undefined.iter().map(|name| format!("{name}\n")).collect();
        let remarks = remarks.as_ref().map_or_else(String::new, |remarks| format!("{REMARKS}{remarks}"));
        let warnings: Vec<Warning> = warnings.iter().map(|text| Warning { name: UNNAMED.to_owned(), text: text.clone() }).collect();
        self.cache.put(Kind::Code, &self.key, &[text, names.as_bytes(), written(definitions).as_bytes(), remarks.as_bytes()], &warnings);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cache::tests::{line, open};
    use crate::diagnostics::Diagnostics;

    #[test]
    fn every_field_counts() {
        let options = ["-inline-threshold=9".to_owned()];
        let key = CodeKey { warplink: Hash::of(b"1"), llvm_options: &options, recipe: "sm_90 O2", bitcode: b"BC" };
        let others = [
            CodeKey { warplink: Hash::of(b"2"), ..key.clone() },
            CodeKey { llvm_options: &[], ..key.clone() },
            CodeKey { recipe: "sm_90 O3", ..key.clone() },
            CodeKey { bitcode: b"BD", ..key.clone() },
        ]
        .map(|other| other.key());
        let different: std::collections::BTreeSet<_> = others.into_iter().chain([key.key()]).collect();
        assert_eq!(different.len(), 5);
        assert_eq!(key.key(), key.clone().key());
    }

    #[test]
    fn what_was_kept_is_known() {
        let dir = tempfile::tempdir().unwrap();
        let mut options = line(&[], &[]);
        options.cache.dir = Some(dir.path().join("c"));
        let diagnostics = Diagnostics::new(&options);
        let cache = open(&options, &diagnostics);
        let make = |bitcode: &[u8]| Code::new(&cache, &[], "sm_90", bitcode).unwrap();
        assert_eq!(make(b"a").known(false), None);
        let text = b".version 7.8\n.target sm_90\n.address_size 64\n".to_vec();
        for (bitcode, undefined, warnings) in
            [(b"a", vec![], vec![]), (b"b", vec!["f".to_owned(), "g".to_owned()], vec!["loop not unrolled".to_owned()])]
        {
            let kinds = [("k", SymbolKind::Kernel, false), ("f<a>", SymbolKind::Function, true), ("v", SymbolKind::Variable, false)];
            let definitions = kinds.map(|(name, kind, internal)| Definition { name: name.to_owned(), kind, internal, size: 7 }).into();
            let compiled = Compiled { text: text.clone(), undefined, warnings, definitions, remarks: None };
            make(bitcode).keep(&compiled);
            assert_eq!((make(bitcode).known(false), make(bitcode).known(true)), (Some(compiled.clone()), None));
            for remarks in ["", "--- !Passed\n"] {
                let with = Compiled { remarks: Some(remarks.to_owned()), ..compiled.clone() };
                make(bitcode).keep(&with);
                assert_eq!((make(bitcode).known(false), make(bitcode).known(true)), (Some(compiled.clone()), Some(with)));
            }
        }
        let nothing =
            Compiled { text: b"no PTX".to_vec(), undefined: Vec::new(), warnings: Vec::new(), definitions: Vec::new(), remarks: None };
        make(b"c").keep(&nothing);
        assert_eq!(make(b"c").known(false), None);
        assert!(Code::new(&Cache::off(&diagnostics), &[], "sm_90", b"a").is_none());
    }
}
