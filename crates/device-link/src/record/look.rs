//! Questions about a recorded link that only its inputs can answer. They are read again, as long as they are what they were.

use std::collections::BTreeSet;
use std::path::Path;

use llvm_lto::{Binding, InputId, Session};

use super::{Input, Record};
use crate::device_files;
use crate::extract::{self, ImageClass};
use crate::resolve;

/// Which functions and variables of an input refer to a device symbol, mangled; none where the input cannot be read, has changed its size or
/// holds no bitcode.
pub fn references(record: &Record, input: &Input, symbol: &str) -> Vec<String> {
    in_bitcode(record, input, |session, id| session.references(id, symbol).unwrap_or_default()).unwrap_or_default()
}

/// The kernels, functions and variables, mangled, that an input defines for other objects; none where the input cannot be read, has changed
/// its size or holds no bitcode.
pub fn definitions(record: &Record, input: &Input) -> BTreeSet<String> {
    let defined = |session: &mut Session<'_>, id| {
        let symbols = session.symbols(id).into_iter();
        symbols.filter(|s| !matches!(s.binding, Binding::Undefined | Binding::UndefinedWeak)).map(|s| s.name).collect()
    };
    in_bitcode(record, input, defined).unwrap_or_default()
}

/// Asks the first bitcode of an input that can be read.
fn in_bitcode<T>(record: &Record, input: &Input, ask: impl FnOnce(&mut Session<'_>, InputId) -> T) -> Option<T> {
    let path = input.archive.as_deref().unwrap_or(&input.name);
    let files = [device_files::open(Path::new(&record.directory).join(path)).ok()?];
    let units = resolve::units(&files).ok()?;
    // The name of the member is behind that of its archive; of two members of one name, the size tells more.
    let member = |name: String| match (name.rsplit_once('('), input.name.rsplit_once('(')) {
        (Some((_, member)), Some((_, wanted))) if input.archive.is_some() => member == wanted,
        _ => input.archive.is_none(),
    };
    let unit = units.iter().find(|unit| unit.data.len() as u64 == input.size && member(unit.name.to_string()));
    let found = extract::extract(0, unit?).ok()?;
    for image in found.inputs.iter().filter(|image| image.class == ImageClass::Bitcode) {
        let Ok(bytes) = image.image.bytes() else { continue };
        let mut session = Session::new();
        let Ok(id) = session.load(&input.name, bytes) else { continue };
        return Some(ask(&mut session, id));
    }
    None
}
