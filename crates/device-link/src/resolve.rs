//! Which lazy units, that is archive members and objects between `--start-lib` and `--end-lib`, the host link takes.
//!
//! A host object's device code takes part in the device link when the host link takes the object, so the host's symbol resolution is
//! replayed here, from symbol tables alone. The linkers do it in three ways ([`gnu`], [`lld`], [`mold`]); what they agree on:
//! a strong undefined reference takes the unit that defines the symbol, a weak one takes nothing, and what is taken brings its own
//! references along.
//!
//! The tests compare this with the linkers themselves on random programs.

mod gnu;
mod lld;
mod mold;

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::path::Path;

use offload_object::{Archive, FileKind, HostObject, SymbolKind, file_kind};
use rayon::prelude::*;

use crate::error::{Context, Result};
pub use crate::inputs::LinkerFlavour;
use crate::inputs::{InputFile, damaged_archive};
use crate::options::{ItemState, Options};
use crate::script::{self, Command};

/// One object, shared object or archive member of the host link.
#[derive(Debug, Clone)]
pub struct Unit<'a> {
    /// Index of its file among the inputs.
    pub input: usize,
    /// Index in the host's `argv` of the word that brought its file in.
    pub position: usize,
    /// Where in the archive it stands; `None` for a file of its own.
    pub member: Option<MemberRef>,
    /// As messages name it: `libk.a(reduce.o)`.
    pub name: UnitName<'a>,
    /// Its bytes.
    pub data: &'a [u8],
    /// What it is.
    pub kind: FileKind,
    /// Only taken if something needs it.
    pub lazy: bool,
    /// What the options before its file say about it.
    pub state: ItemState,
}

/// A member's place in its archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MemberRef {
    /// Counted from 0, special members left out.
    pub index: usize,
    /// Offset of its header in the archive.
    pub header_offset: u64,
}

/// What messages call a unit. Put into words only when somebody asks: a static C library has thousands of members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnitName<'a> {
    /// An object that is a file of its own.
    File(&'a Path),
    /// A member of an archive.
    Member(&'a Path, &'a [u8]),
}

/// `a.o`, `libk.a(reduce.o)`.
impl fmt::Display for UnitName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            UnitName::File(path) => write!(f, "{}", path.display()),
            UnitName::Member(path, name) => write!(f, "{}({})", path.display(), String::from_utf8_lossy(name)),
        }
    }
}

/// A symbol of a unit.
pub type UnitSymbol<'a> = (Cow<'a, [u8]>, SymbolKind);

/// Takes the inputs apart into units, in order: members of archives one by one.
///
/// # Errors
/// When an archive is malformed.
pub fn units(files: &[InputFile]) -> Result<Vec<Unit<'_>>> {
    let mut units = Vec::new();
    for (input, file) in files.iter().enumerate() {
        let member_unit = |index, header_offset, name, data| Unit {
            input,
            position: file.position,
            member: Some(MemberRef { index, header_offset }),
            name: UnitName::Member(&file.path, name),
            data,
            kind: file_kind(data),
            lazy: !file.state.whole_archive,
            state: file.state,
        };
        match file.kind {
            FileKind::Archive => {
                let damaged = |error| damaged_archive(&file.path, error);
                for (index, member) in Archive::parse(&file.data).map_err(damaged)?.members().enumerate() {
                    let member = member.map_err(damaged)?;
                    let Some(data) = member.data else { continue };
                    units.push(member_unit(index, member.header_offset, member.name, data));
                }
            }
            FileKind::ThinArchive => {
                for (index, member) in file.thin_members.iter().enumerate() {
                    units.push(member_unit(index, member.header_offset, &member.name, member.data()));
                }
            }
            kind => {
                let object = matches!(kind, FileKind::ElfRelocatable | FileKind::Coff | FileKind::Bitcode);
                let lazy = object && file.state.start_lib.is_some() && !file.state.whole_archive;
                units.push(Unit {
                    input,
                    position: file.position,
                    member: None,
                    name: UnitName::File(&file.path),
                    data: &file.data,
                    kind,
                    lazy,
                    state: file.state,
                });
            }
        }
    }
    Ok(units)
}

/// Which of the units the host link takes, in the order of `units`. What is not lazy is taken.
///
/// `symbols_of` reads a unit's symbol table ([`host_symbols`]); it is called once for every unit, on many threads, and only if there is a
/// lazy unit at all. A unit that it gives no symbols for takes no part.
///
/// # Errors
/// The first error of `symbols_of`.
pub fn taken<'a, F>(units: &[Unit<'a>], flavour: LinkerFlavour, options: &Options, symbols_of: F) -> Result<Vec<bool>>
where
    F: Fn(&Unit<'a>) -> Result<Vec<UnitSymbol<'a>>> + Sync,
{
    resolution(units, flavour, options, &[], symbols_of).map(|resolution| resolution.taken)
}

/// Which units the host link takes, and why.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Resolution {
    /// One for each unit.
    pub taken: Vec<bool>,
    /// One for each unit; none where nobody asked or nobody knows. May be shorter than the list of units.
    pub because: Vec<Option<Because>>,
}

/// Why the host link takes a lazy unit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Because {
    /// It defines this symbol, which was undefined.
    pub symbol: String,
    /// The unit that refers to the symbol; none where the line does (`-u`).
    pub from: Option<usize>,
}

/// As [`taken`], with the reason for those units of which `asked` is true.
///
/// # Errors
/// As [`taken`].
pub fn resolution<'a, F>(units: &[Unit<'a>], flavour: LinkerFlavour, options: &Options, asked: &[bool], symbols_of: F) -> Result<Resolution>
where
    F: Fn(&Unit<'a>) -> Result<Vec<UnitSymbol<'a>>> + Sync,
{
    if !units.iter().any(|unit| unit.lazy) {
        return Ok(Resolution { taken: vec![true; units.len()], because: Vec::new() });
    }
    let tables = units.par_iter().map(&symbols_of).collect::<Result<Vec<_>>>()?;
    let mut link = Link::new(units, &tables, options, flavour);
    match flavour {
        LinkerFlavour::Gnu => link.gnu(true),
        LinkerFlavour::Gold => link.gnu(false),
        LinkerFlavour::Lld => link.lld(),
        LinkerFlavour::Mold => link.mold(),
    }
    let because = link.reasons(asked, &tables);
    Ok(Resolution { taken: link.taken, because })
}

/// The symbols of a unit that count in resolution. `bitcode` reads those of LLVM bitcode.
///
/// # Errors
/// When an object is malformed; the unit is named.
pub fn host_symbols<'a>(
    unit: &Unit<'a>,
    bitcode: impl Fn(&'a [u8]) -> std::result::Result<Vec<UnitSymbol<'a>>, String>,
) -> Result<Vec<UnitSymbol<'a>>> {
    match unit.kind {
        FileKind::ElfRelocatable | FileKind::ElfShared | FileKind::Coff => {
            let object = HostObject::parse(unit.data).context(|| unit.name.to_string())?;
            Ok(object.symbols().into_iter().map(|symbol| (Cow::Borrowed(symbol.name), symbol.kind)).collect())
        }
        FileKind::Bitcode => bitcode(unit.data).context(|| unit.name.to_string()),
        FileKind::Text => Ok(script_symbols(unit.data)),
        _ => Ok(Vec::new()),
    }
}

/// What `EXTERN` and `ENTRY` in a linker script make undefined.
fn script_symbols(text: &[u8]) -> Vec<UnitSymbol<'static>> {
    let names = script::parse(text).into_iter().flat_map(|command| match command {
        Command::Extern(names) => names,
        Command::Entry(name) => vec![name],
        _ => Vec::new(),
    });
    names.map(|name| (Cow::Owned(name.into_bytes()), SymbolKind::Undefined)).collect()
}

/// A symbol's number.
type Id = u32;

/// The link being replayed: units with numbered symbols.
struct Link<'u> {
    units: &'u [Unit<'u>],
    /// Per unit, in the order of its symbol table.
    symbols: Vec<Vec<(Id, SymbolKind)>>,
    symbol_count: usize,
    taken: Vec<bool>,
    roots: Roots,
    fortran_common: bool,
}

/// Symbols that the command line refers to.
#[derive(Debug, Default)]
struct Roots {
    /// `-u`, `--require-defined`.
    undefined: Vec<Id>,
    /// `-e`, or `_start` where the linker looks for it.
    entry: Option<Id>,
    init: Option<Id>,
    fini: Option<Id>,
    /// Symbols that `--defsym` expressions name, with the place of the option on the line.
    in_expressions: Vec<(usize, Id)>,
    /// Symbols that `--defsym` defines.
    defined: Vec<Id>,
    /// `--wrap`: the symbol, `__wrap_` of it, `__real_` of it.
    wraps: Vec<(Id, Id, Id)>,
}

impl<'u> Link<'u> {
    fn new(units: &'u [Unit<'u>], tables: &'u [Vec<UnitSymbol<'u>>], options: &Options, flavour: LinkerFlavour) -> Link<'u> {
        let mut names = Names::default();
        let symbols = tables.iter().map(|table| table.iter().map(|(name, kind)| (names.id(name.as_ref()), *kind)).collect()).collect();
        let starts = match flavour {
            LinkerFlavour::Gnu => !options.shared && !options.relocatable,
            LinkerFlavour::Gold | LinkerFlavour::Lld => !options.relocatable,
            LinkerFlavour::Mold => true,
        };
        let entry = options.entry.as_deref().or(starts.then_some("_start"));
        let mut id = |name: &str| names.id(name.as_bytes().to_vec());
        let roots = Roots {
            undefined: options.undefined.iter().map(|name| id(name)).collect(),
            entry: entry.map(&mut id),
            init: Some(id(options.init.as_deref().unwrap_or("_init"))),
            fini: Some(id(options.fini.as_deref().unwrap_or("_fini"))),
            in_expressions: options
                .defsyms
                .iter()
                .zip(options.defsym_positions.iter().chain(std::iter::repeat(&0)))
                .flat_map(|((_, expression), &position)| expression_names(expression).into_iter().map(move |name| (position, name)))
                .map(|(position, name)| (position, id(name)))
                .collect(),
            defined: options.defsyms.iter().map(|(name, _)| id(name)).collect(),
            wraps: options
                .wrap_symbols
                .iter()
                .map(|name| (id(name), id(&format!("__wrap_{name}")), id(&format!("__real_{name}"))))
                .collect(),
        };
        let symbol_count = names.ids.len();
        let taken = units.iter().map(|unit| !unit.lazy).collect();
        Link { units, symbols, symbol_count, taken, roots, fortran_common: options.fortran_common }
    }

    /// The units of one file that are lazy together (an archive, a `--start-lib` list), or one unit, as ranges in order.
    fn batches(&self) -> Vec<std::ops::Range<usize>> {
        let mut batches: Vec<std::ops::Range<usize>> = Vec::new();
        for (index, unit) in self.units.iter().enumerate() {
            if let Some(batch) = batches.last_mut()
                && let Some(first) = self.units.get(batch.start)
                && unit.lazy
                && first.lazy
                && if unit.member.is_some() { unit.input == first.input } else { unit.state.start_lib == first.state.start_lib }
                && unit.member.is_some() == first.member.is_some()
            {
                batch.end = index + 1;
            } else {
                batches.push(index..index + 1);
            }
        }
        batches
    }

    /// For lazy units that were taken and of which `asked` is true: who refers to what they define, the first in line order.
    fn reasons(&self, asked: &[bool], tables: &[Vec<UnitSymbol>]) -> Vec<Option<Because>> {
        let mut because: Vec<Option<Because>> = vec![None; asked.len()];
        let mut definers: HashMap<Id, usize> = HashMap::new();
        let wanted = self.units.iter().zip(&self.taken).zip(asked).map(|((unit, taken), asked)| unit.lazy && *taken && *asked);
        for ((unit, _), symbols) in wanted.enumerate().zip(&self.symbols).filter(|((_, wanted), _)| *wanted) {
            for &(id, kind) in symbols {
                if !matches!(kind, SymbolKind::Undefined | SymbolKind::UndefinedWeak) {
                    definers.entry(id).or_insert(unit);
                }
            }
        }
        if definers.is_empty() {
            return because;
        }
        let mut note = |unit: usize, symbol: &dyn Fn() -> String, from: Option<usize>| {
            if let Some(slot) = because.get_mut(unit).filter(|slot| slot.is_none()) {
                *slot = Some(Because { symbol: symbol(), from });
            }
        };
        for (from, (symbols, table)) in self.symbols.iter().zip(tables).enumerate().filter(|(from, _)| self.taken.get(*from) == Some(&true))
        {
            for (&(id, kind), (name, _)) in symbols.iter().zip(table) {
                if kind == SymbolKind::Undefined
                    && let Some(&unit) = definers.get(&self.wrapped(id))
                    && unit != from
                {
                    note(unit, &|| String::from_utf8_lossy(name).into_owned(), Some(from));
                }
            }
        }
        for id in self.roots.undefined.iter().copied().chain(self.roots.entry) {
            if let Some(&unit) = definers.get(&id) {
                let names = self.symbols.get(unit).into_iter().flatten().zip(tables.get(unit).into_iter().flatten());
                let name =
                    names.filter(|((known, _), _)| *known == id).map(|(_, (name, _))| String::from_utf8_lossy(name).into_owned()).next();
                note(unit, &|| name.clone().unwrap_or_default(), None);
            }
        }
        because
    }

    fn is_shared(&self, unit: usize) -> bool {
        self.units[unit].kind == FileKind::ElfShared
    }

    /// What a reference to `id` is to be read as under `--wrap`.
    fn wrapped(&self, id: Id) -> Id {
        for &(symbol, wrap, real) in &self.roots.wraps {
            if id == symbol {
                return wrap;
            }
            if id == real {
                return symbol;
            }
        }
        id
    }
}

#[derive(Default)]
struct Names<'n> {
    ids: HashMap<Cow<'n, [u8]>, Id>,
}

impl<'n> Names<'n> {
    fn id(&mut self, name: impl Into<Cow<'n, [u8]>>) -> Id {
        let next = self.ids.len() as Id;
        *self.ids.entry(name.into()).or_insert(next)
    }
}

/// The symbols in a linker expression: words that are no numbers.
fn expression_names(expression: &str) -> Vec<&str> {
    let is_name_char = |c: char| c.is_alphanumeric() || "_.$@".contains(c);
    expression
        .split(|c: char| !is_name_char(c))
        .filter(|word| word.chars().next().is_some_and(|first| !first.is_ascii_digit()) && *word != ".")
        .collect()
}
