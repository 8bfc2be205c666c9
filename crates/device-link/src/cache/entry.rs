//! The file format of a cache entry: a header that says what the entry is the answer to, and a checksum over everything.
//!
//! | bytes | what |
//! |---|---|
//! | 8 | magic |
//! | 4 | version of this format |
//! | 4 | kind, see [`Kind::number`] |
//! | 32 | key |
//! | 8 | length of what follows the header |
//! | 32 | BLAKE3 of the bytes before this field and of what follows the header |
//! | 4, 4 | number of sections, number of warnings |
//! | 8 each | lengths of the sections, then of name and text of each warning |
//! | | the sections, then names and texts, nothing between them and nothing behind |
//!
//! Numbers are little-endian. An entry is believed only if all of this fits; what does not is no entry.

use super::key::{Key, Kind};

/// What a file of the cache begins with.
const MAGIC: [u8; 8] = *b"\x89wlcache";
/// Counts changes of this format.
const VERSION: u32 = 1;
const CHECKSUM_OFFSET: usize = 56;
const HEADER_SIZE: usize = CHECKSUM_OFFSET + 32;
/// More sections or warnings than any entry has.
const MOST: u32 = 1 << 20;

/// A named warning that was given while something was made, and is given again when it comes from the cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Warning {
    /// One of [`crate::diagnostics::WARNINGS`].
    pub name: String,
    /// The message without its name.
    pub text: String,
}

/// What the cache keeps under one key.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Entry {
    /// The results, in the order that their kind defines.
    pub sections: Vec<Vec<u8>>,
    /// The warnings that come with them.
    pub warnings: Vec<Warning>,
}

impl Entry {
    /// A section, empty where the entry has fewer.
    pub fn section(&self, index: usize) -> &[u8] {
        self.sections.get(index).map_or(&[], Vec::as_slice)
    }

    /// Takes a section out, to keep it without a copy.
    pub fn take(&mut self, index: usize) -> Vec<u8> {
        self.sections.get_mut(index).map(std::mem::take).unwrap_or_default()
    }
}

/// The bytes of an entry.
pub(super) fn encode(kind: Kind, key: &Key, sections: &[&[u8]], warnings: &[Warning]) -> Vec<u8> {
    let parts = || {
        let texts = warnings.iter().flat_map(|warning| [warning.name.as_bytes(), warning.text.as_bytes()]);
        sections.iter().copied().chain(texts)
    };
    let body = 8 + parts().map(|part| 8 + part.len()).sum::<usize>();
    let mut bytes = Vec::with_capacity(HEADER_SIZE + body);
    bytes.extend(unsealed(body, kind, key));
    bytes.extend((sections.len() as u32).to_le_bytes());
    bytes.extend((warnings.len() as u32).to_le_bytes());
    for part in parts() {
        bytes.extend((part.len() as u64).to_le_bytes());
    }
    for part in parts() {
        bytes.extend(part);
    }
    seal(&mut bytes);
    bytes
}

/// The header of an entry of `body` bytes behind it, without its checksum.
fn unsealed(body: usize, kind: Kind, key: &Key) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(HEADER_SIZE);
    bytes.extend(MAGIC);
    bytes.extend(VERSION.to_le_bytes());
    bytes.extend(kind.number().to_le_bytes());
    bytes.extend(key.bytes());
    bytes.extend((body as u64).to_le_bytes());
    bytes.extend([0; 32]);
    bytes
}

fn seal(bytes: &mut [u8]) {
    let checksum = checksum(bytes);
    if let Some(field) = bytes.get_mut(CHECKSUM_OFFSET..HEADER_SIZE) {
        field.copy_from_slice(&checksum);
    }
}

/// An entry with any bytes behind its header.
pub(super) fn sealed(body: &[u8], kind: Kind, key: &Key) -> Vec<u8> {
    let mut bytes = unsealed(body.len(), kind, key);
    bytes.extend(body);
    seal(&mut bytes);
    bytes
}

/// Over everything but the field that holds it.
fn checksum(bytes: &[u8]) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new();
    hasher.update(bytes.get(..CHECKSUM_OFFSET).unwrap_or_default());
    hasher.update(bytes.get(HEADER_SIZE..).unwrap_or_default());
    *hasher.finalize().as_bytes()
}

/// Reads an entry of this kind and key.
///
/// # Errors
/// What is wrong with the bytes, in words that follow the file's name.
pub(super) fn decode(bytes: &[u8], kind: Kind, key: &Key) -> Result<Entry, &'static str> {
    let mut reader = Reader(bytes);
    if reader.take(8)? != MAGIC {
        return Err("it is no cache entry");
    }
    if reader.u32()? != VERSION {
        return Err("another version of the format");
    }
    if reader.u32()? != kind.number() {
        return Err("an entry of another kind");
    }
    if reader.take(32)? != key.bytes() {
        return Err("an entry for another key");
    }
    let body = reader.u64()?;
    let sum = reader.take(32)?;
    if body != reader.0.len() as u64 {
        return Err("its length is wrong");
    }
    if sum != checksum(bytes) {
        return Err("its checksum is wrong");
    }
    let (sections, warnings) = (reader.u32()?, reader.u32()?);
    if sections > MOST || warnings > MOST {
        return Err("it has too many parts");
    }
    let lengths: Vec<u64> = (0..sections + 2 * warnings).map(|_| reader.u64()).collect::<Result<_, _>>()?;
    let mut parts = Vec::with_capacity(lengths.len());
    for length in lengths {
        parts.push(reader.take(usize::try_from(length).map_err(|_| CUT_OFF)?)?);
    }
    if !reader.0.is_empty() {
        return Err("its length is wrong");
    }
    let texts = parts.split_off(sections as usize);
    let text = |bytes: Option<&&[u8]>| String::from_utf8(bytes.copied().unwrap_or_default().to_vec()).map_err(|_| "a warning is no text");
    let warnings = texts
        .chunks(2)
        .map(|pair| Ok(Warning { name: text(pair.first())?, text: text(pair.get(1))? }))
        .collect::<Result<_, &'static str>>()?;
    Ok(Entry { sections: parts.into_iter().map(<[u8]>::to_vec).collect(), warnings })
}

const CUT_OFF: &str = "it is cut off";

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, length: usize) -> Result<&'a [u8], &'static str> {
        let (taken, rest) = self.0.split_at_checked(length).ok_or(CUT_OFF)?;
        self.0 = rest;
        Ok(taken)
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        Ok(self.take(4)?.try_into().map(u32::from_le_bytes).unwrap_or_default())
    }

    fn u64(&mut self) -> Result<u64, &'static str> {
        Ok(self.take(8)?.try_into().map(u64::from_le_bytes).unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: Key = Key::from_bytes([7; 32]);

    fn sample() -> (Vec<u8>, Entry) {
        let warning = |name: &str, text: &str| Warning { name: name.to_owned(), text: text.to_owned() };
        let warnings = vec![warning("ptxas", "sm_90: spills"), warning("icf", "")];
        let sections: [&[u8]; 3] = [b"cubin", b"", b"7.8"];
        let entry = Entry { sections: sections.iter().map(|s| s.to_vec()).collect(), warnings: warnings.clone() };
        (encode(Kind::Assembly, &KEY, &sections, &warnings), entry)
    }

    /// Gives wrong bytes their right checksum, so that the check behind it is what finds them.
    fn resealed(mut bytes: Vec<u8>) -> Vec<u8> {
        seal(&mut bytes);
        bytes
    }

    #[test]
    fn an_entry_comes_back() {
        let (bytes, entry) = sample();
        assert_eq!(decode(&bytes, Kind::Assembly, &KEY), Ok(entry));
        let empty = encode(Kind::Link, &KEY, &[], &[]);
        assert_eq!(decode(&empty, Kind::Link, &KEY), Ok(Entry::default()));
    }

    #[test]
    fn every_bit_counts() {
        let (bytes, _) = sample();
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut wrong = bytes.clone();
                wrong[at] ^= 1 << bit;
                assert!(decode(&wrong, Kind::Assembly, &KEY).is_err(), "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn cut_off_anywhere_it_is_none() {
        let (bytes, _) = sample();
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length], Kind::Assembly, &KEY).is_err(), "{length}");
        }
        let mut longer = bytes;
        longer.push(0);
        assert_eq!(decode(&longer, Kind::Assembly, &KEY), Err("its length is wrong"));
    }

    #[test]
    fn every_field_of_the_header_is_checked() {
        let (bytes, _) = sample();
        let with = |at: usize, new: &[u8]| {
            let mut bytes = bytes.clone();
            bytes[at..at + new.len()].copy_from_slice(new);
            resealed(bytes)
        };
        for (what, wrong, expected) in [
            ("magic", with(0, b"\x7fELF"), "it is no cache entry"),
            ("version", with(8, &2_u32.to_le_bytes()), "another version of the format"),
            ("kind", with(12, &Kind::Link.number().to_le_bytes()), "an entry of another kind"),
            ("key", with(16, &[8; 32]), "an entry for another key"),
            ("length", with(48, &1_u64.to_le_bytes()), "its length is wrong"),
            ("sections", with(88, &u32::MAX.to_le_bytes()), "it has too many parts"),
            ("warnings", with(92, &u32::MAX.to_le_bytes()), "it has too many parts"),
            ("more sections", with(88, &9_u32.to_le_bytes()), CUT_OFF),
            ("fewer sections", with(88, &1_u32.to_le_bytes()), "its length is wrong"),
            ("fewer warnings", with(92, &0_u32.to_le_bytes()), "its length is wrong"),
            ("length of a section", with(96, &u64::MAX.to_le_bytes()), CUT_OFF),
            ("shorter section", with(96, &0_u64.to_le_bytes()), "its length is wrong"),
        ] {
            assert_eq!(decode(&wrong, Kind::Assembly, &KEY), Err(expected), "{what}");
        }
        let mut wrong = bytes.clone();
        wrong[CHECKSUM_OFFSET] ^= 1;
        assert_eq!(decode(&wrong, Kind::Assembly, &KEY), Err("its checksum is wrong"));
        let name = bytes.windows(5).position(|window| window == b"ptxas").unwrap();
        assert_eq!(decode(&with(name, &[0xff]), Kind::Assembly, &KEY), Err("a warning is no text"));
    }

    #[test]
    fn it_answers_to_its_own_name_only() {
        let (bytes, _) = sample();
        assert_eq!(decode(&bytes, Kind::Link, &KEY), Err("an entry of another kind"));
        assert_eq!(decode(&bytes, Kind::Assembly, &Key::from_bytes([6; 32])), Err("an entry for another key"));
    }
}
