//! Units of the host link (objects, and members of archives): which of them it takes, and what device code they hold.

use std::borrow::Cow;
use std::collections::HashMap;
use std::path::PathBuf;

use crate::error::{Error, Result};
use crate::extract::{self, DeviceInput, Found};
use crate::inputs::{InputFile, LinkerFlavour};
use crate::options::Options;
use crate::resolve::{self, Unit};
use crate::select::UnitState;

/// The units as the rules of the device link want to know them.
pub(crate) fn unit_states(units: &[Unit], taken: &[bool]) -> Vec<UnitState> {
    units.iter().zip(taken).map(|(unit, &taken)| UnitState { taken, lazy: unit.lazy }).collect()
}

/// Which units the host link takes. Symbol tables are only read where it matters: where a unit that may stay out holds device code.
/// `drawing` are further symbols that the link will refer to.
pub(crate) fn taken_units(
    units: &[Unit],
    holding: &[bool],
    flavour: LinkerFlavour,
    options: &Options,
    drawing: &[String],
) -> Result<resolve::Resolution> {
    let mut options = Cow::Borrowed(options);
    if !drawing.is_empty() {
        options.to_mut().undefined.extend(drawing.iter().cloned());
    }
    let matters = units.iter().zip(holding).any(|(unit, &holding)| unit.lazy && holding);
    if !matters {
        return Ok(resolve::Resolution { taken: units.iter().map(|unit| !unit.lazy).collect(), because: Vec::new() });
    }
    resolve::resolution(units, flavour, &options, holding, |unit| {
        resolve::host_symbols(unit, |bytes| {
            let read = || llvm_lto::read_host_bitcode(bytes);
            let host = llvm_lto::working_on(&unit.name.to_string(), read).map_err(|error| error.to_string())?;
            Ok(host.symbols.into_iter().map(|symbol| (Cow::Owned(symbol.name.into_bytes()), symbol_kind(symbol.binding))).collect())
        })
    })
}

fn symbol_kind(binding: llvm_lto::Binding) -> offload_object::SymbolKind {
    match binding {
        llvm_lto::Binding::Strong => offload_object::SymbolKind::Defined,
        llvm_lto::Binding::Weak => offload_object::SymbolKind::DefinedWeak,
        llvm_lto::Binding::Common => offload_object::SymbolKind::Common,
        llvm_lto::Binding::Undefined => offload_object::SymbolKind::Undefined,
        llvm_lto::Binding::UndefinedWeak => offload_object::SymbolKind::UndefinedWeak,
    }
}

/// Extracts from every unit that holds something. All errors are collected.
pub(crate) fn extract_all<'a>(units: &'a [Unit<'a>], holding: &[bool]) -> Result<Vec<Found<'a>>> {
    let mut errors = Vec::new();
    let found = units
        .iter()
        .zip(holding)
        .enumerate()
        .map(|(index, (unit, &holding))| {
            if !holding {
                return Found::default();
            }
            extract::extract(index, unit).unwrap_or_else(|error| {
                errors.push(error);
                Found::default()
            })
        })
        .collect();
    Error::all(errors)?;
    Ok(found)
}

/// One object named twice is the host linker's to complain about (or, with multiple definitions allowed, not even that): its device code
/// counts once.
pub(crate) fn without_repeated_files<'a>(inputs: Vec<DeviceInput<'a>>, units: &[Unit], files: &[InputFile]) -> Vec<DeviceInput<'a>> {
    let mut first: HashMap<(PathBuf, Option<u64>), usize> = HashMap::new();
    inputs
        .into_iter()
        .filter(|input| {
            let Some(unit) = units.get(input.unit) else { return true };
            let Some(file) = files.get(unit.input) else { return true };
            let path = file.path.canonicalize().unwrap_or_else(|_| file.path.clone());
            let key = (path, unit.member.as_ref().map(|member| member.header_offset));
            *first.entry(key).or_insert(input.unit) == input.unit
        })
        .collect()
}

/// What was found in the units that the host link takes.
pub(crate) fn units_taken<'f, 'a>(found: &'f [Found<'a>], states: &'f [UnitState]) -> impl Iterator<Item = &'f Found<'a>> {
    found.iter().zip(states).filter(|(_, state)| state.taken).map(|(found, _)| found)
}
