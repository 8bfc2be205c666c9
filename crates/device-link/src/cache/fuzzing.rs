//! What is read from the user's cache directory, for the fuzz targets in `fuzz/`.

use super::{Entry, Key, Kind, Warning, entry, link};

/// Reads an entry.
///
/// # Errors
/// What is wrong with it.
pub fn decode(bytes: &[u8], kind: Kind, key: &Key) -> Result<Entry, &'static str> {
    entry::decode(bytes, kind, key)
}

/// The bytes of an entry.
pub fn encode(kind: Kind, key: &Key, sections: &[&[u8]], warnings: &[Warning]) -> Vec<u8> {
    entry::encode(kind, key, sections, warnings)
}

/// An entry with this body, whose header is right: what random bytes never have.
pub fn sealed(body: &[u8], kind: Kind, key: &Key) -> Vec<u8> {
    entry::sealed(body, kind, key)
}

/// Reads what an entry says of the last link of an output. Whether it could be read.
pub fn record(section: &[u8]) -> bool {
    super::Record::read(section).is_some()
}

/// Reads what an entry says of a device link. Whether it could be read.
pub fn facts(section: &[u8]) -> bool {
    link::Facts::read(section).is_ok()
}

/// Reads the record of a link that `warplink explain` finds. Whether it could be read.
pub fn history(bytes: &[u8]) -> bool {
    crate::record::store::read(bytes).is_some()
}
