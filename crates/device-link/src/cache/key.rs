//! Cache keys: a list of named fields, each hashed by itself, so that two links can be compared field by field afterwards.
//!
//! What goes into a key decides whether a wrong program can come out of the cache. Each kind of entry has a struct for its fields
//! ([`super::link::LinkKey`], [`super::assembly::AssemblyKey`]) that lists them by exhaustive destructuring, and a version that is raised
//! when the meaning of a field or of the entry changes. No field holds a path, a time or the order of threads.

use std::fmt;

/// What an entry is the result of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    /// A whole device link: from all device inputs to the fat binary.
    Link,
    /// LTO and code generation of one part of a program: from bitcode to PTX.
    Code,
    /// ptxas: from PTX to a cubin.
    Assembly,
    /// A link of [`crate::jit`]: from all inputs to one image.
    Image,
    /// The identity of a program or library that takes part, remembered for a file that has not changed since.
    Tool,
    /// What the last link of an output was made of, for `warplink cache why`.
    Record,
}

impl Kind {
    /// All of them, in the order in which people see them.
    pub const ALL: [Kind; 6] = [Kind::Link, Kind::Code, Kind::Assembly, Kind::Image, Kind::Tool, Kind::Record];

    /// The name of its directory, and what people see.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Link => "link",
            Kind::Code => "code",
            Kind::Assembly => "ptxas",
            Kind::Image => "image",
            Kind::Tool => "tool",
            Kind::Record => "record",
        }
    }

    /// What a header calls it.
    pub(super) fn number(self) -> u32 {
        match self {
            Kind::Link => 1,
            Kind::Code => 2,
            Kind::Assembly => 3,
            Kind::Tool => 4,
            Kind::Record => 5,
            Kind::Image => 6,
        }
    }

    /// Counts changes of what its key and its sections mean.
    fn version(self) -> u32 {
        match self {
            Kind::Link | Kind::Code | Kind::Assembly | Kind::Image | Kind::Tool | Kind::Record => 1,
        }
    }

    /// Whether looking it up counts as a hit or a miss of the cache.
    pub(super) fn is_counted(self) -> bool {
        match self {
            Kind::Link | Kind::Code | Kind::Assembly | Kind::Image => true,
            Kind::Tool | Kind::Record => false,
        }
    }

    /// Whether its key is made of the bytes of input files, and its contents of the same bytes, read a second time.
    pub(super) fn is_of_inputs(self) -> bool {
        match self {
            Kind::Link | Kind::Code | Kind::Record => true,
            Kind::Assembly | Kind::Image | Kind::Tool => false,
        }
    }
}

/// A BLAKE3 hash.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Hash([u8; 32]);

impl Hash {
    /// Of these bytes.
    pub fn of(bytes: &[u8]) -> Hash {
        Hash(*blake3::hash(bytes).as_bytes())
    }

    /// From its bytes.
    pub const fn from_bytes(bytes: [u8; 32]) -> Hash {
        Hash(bytes)
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The name of an entry.
pub type Key = Hash;

/// One field of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Field {
    /// What people call it: an option, or an input with the user's name for it. Not part of the key.
    pub label: String,
    /// What it is, the same for all inputs.
    pub tag: &'static str,
    /// Its value.
    pub hash: Hash,
    /// Its value as people read it, where it is short.
    pub text: Option<String>,
}

/// The fields of a key, in order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fields {
    kind: Kind,
    list: Vec<Field>,
}

impl Fields {
    /// None of them so far.
    pub fn new(kind: Kind) -> Fields {
        Fields { kind, list: Vec::new() }
    }

    /// Adds a field whose value is these bytes. Its tag is what people see, too.
    pub fn bytes(&mut self, tag: &'static str, value: &[u8]) -> &mut Fields {
        self.hash(tag, tag, Hash::of(value))
    }

    /// Adds a field by the text that its value is written as.
    pub fn value(&mut self, tag: &'static str, value: impl fmt::Debug) -> &mut Fields {
        self.bytes(tag, format!("{value:?}").as_bytes())
    }

    /// Adds a field whose value has been hashed already.
    pub fn hash(&mut self, tag: &'static str, label: impl Into<String>, hash: Hash) -> &mut Fields {
        self.list.push(Field { label: label.into(), tag, hash, text: None });
        self
    }

    /// Adds a field that people shall be told the value of.
    pub fn shown(&mut self, tag: &'static str, value: &str) -> &mut Fields {
        self.list.push(Field { label: tag.to_owned(), tag, hash: Hash::of(value.as_bytes()), text: Some(value.to_owned()) });
        self
    }

    /// The fields so far.
    pub fn list(&self) -> &[Field] {
        &self.list
    }

    /// The key that they make.
    pub fn key(&self) -> Key {
        let mut hasher = blake3::Hasher::new_derive_key("warplink 2026 cache key");
        hasher.update(&self.kind.number().to_le_bytes());
        hasher.update(&self.kind.version().to_le_bytes());
        for field in &self.list {
            // A tag is a constant of ours without null bytes: nothing can run into what follows it.
            hasher.update(field.tag.as_bytes());
            hasher.update(&[0]);
            hasher.update(field.hash.bytes());
        }
        Hash(*hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(kind: Kind, fields: &[(&'static str, &str)]) -> Key {
        let mut list = Fields::new(kind);
        for (tag, value) in fields {
            list.bytes(tag, value.as_bytes());
        }
        list.key()
    }

    #[test]
    fn kind_tags_values_number_and_order_make_the_key() {
        let all = [
            key(Kind::Link, &[("a", "1"), ("b", "2")]),
            key(Kind::Code, &[("a", "1"), ("b", "2")]),
            key(Kind::Link, &[("b", "2"), ("a", "1")]),
            key(Kind::Link, &[("a", "1"), ("b", "3")]),
            key(Kind::Link, &[("a", "1"), ("c", "2")]),
            key(Kind::Link, &[("a", "1")]),
            key(Kind::Link, &[("a", "1"), ("b", "2"), ("b", "2")]),
            key(Kind::Link, &[("a", "12"), ("b", "")]),
            key(Kind::Link, &[]),
        ];
        let different: std::collections::BTreeSet<_> = all.iter().collect();
        assert_eq!(different.len(), all.len());
        assert_eq!(all[0], key(Kind::Link, &[("a", "1"), ("b", "2")]));
    }

    #[test]
    fn labels_are_for_people() {
        let with = |label: &str| {
            let mut fields = Fields::new(Kind::Link);
            fields.hash("input", label, Hash::of(b"bitcode"));
            fields.key()
        };
        assert_eq!(with("a.o"), with("elsewhere/b.o"));
    }

    #[test]
    fn kinds_are_told_apart() {
        for of in [Kind::number as fn(Kind) -> u32, |kind| kind.name().len() as u32 + u32::from(kind.name().as_bytes()[0]) * 64] {
            let different: std::collections::BTreeSet<_> = Kind::ALL.into_iter().map(of).collect();
            assert_eq!(different.len(), Kind::ALL.len());
        }
    }
}
