//! `ar` archives as linkers meet them: GNU, BSD and COFF member names, symbol indexes skipped, thin archives.
//!
//! Written here and not taken from `object`, because [`crate::set_metadata`] must know where each header lies to move it.

use crate::bytes;
use crate::error::{Error, OrError, Result};

pub(crate) const MAGIC: &[u8; 8] = b"!<arch>\n";
pub(crate) const THIN_MAGIC: &[u8; 8] = b"!<thin>\n";
pub(crate) const HEADER_SIZE: u64 = 60;

/// An archive. Holds no list of members: [`Archive::members`] walks the headers each time.
#[derive(Debug, Clone, Copy)]
pub struct Archive<'a> {
    data: &'a [u8],
    thin: bool,
    /// The `//` member: names longer than 15 bytes, ended by `/\n` or (COFF) NUL.
    long_names: &'a [u8],
}

/// One member of an archive; symbol indexes and name tables are not members.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member<'a> {
    /// The member's name. In a thin archive this is a path, and a relative one is relative to the archive's directory.
    pub name: &'a [u8],
    /// Offset of the member's header in the archive, which tells members of the same name apart.
    pub header_offset: u64,
    /// Size of the member in bytes, also where its bytes are elsewhere.
    pub size: u64,
    /// The member's bytes, at an address that is only even. `None` in a thin archive.
    pub data: Option<&'a [u8]>,
    /// In a thin archive, where `name` is another archive: the offset in that of the header of the member that is meant.
    pub nested: Option<u64>,
}

/// One header and what belongs to it, whether it is an index, a name table or a real member.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawMember<'a> {
    pub(crate) header_offset: u64,
    /// The 16 bytes of the name field without the blanks at its end.
    pub(crate) name_field: &'a [u8],
    /// The value of the size field: with BSD long names it counts the name as well.
    pub(crate) size: u64,
    /// All `size` bytes; `None` if they are not in the archive.
    pub(crate) data: Option<&'a [u8]>,
    pub(crate) next_offset: u64,
}

/// What a header stands for.
pub(crate) enum Role {
    /// Symbol index `/` of GNU archives, and both linker members of COFF libraries.
    GnuIndex,
    /// Symbol index with 64-bit offsets, `/SYM64/`.
    GnuIndex64,
    /// Symbol index `__.SYMDEF`, with or without ` SORTED`.
    BsdIndex,
    /// Symbol index `__.SYMDEF_64`.
    BsdIndex64,
    /// `//`.
    LongNames,
    /// Other tables of COFF libraries, such as `/<ECSYMBOLS>/`.
    Table,
    Member,
}

impl<'a> RawMember<'a> {
    pub(crate) fn read(data: &'a [u8], offset: u64, thin: bool) -> Result<Self> {
        let header = bytes::slice(data, offset, HEADER_SIZE).or_error("archive member header is cut short")?;
        let (fields, end) = header.split_at(58);
        if end != b"`\n" {
            return Err(Error("archive member header has no end mark"));
        }
        let (name, fields) = fields.split_at(16);
        let name_field = name.trim_ascii_end();
        let size = decimal(fields.get(32..42).unwrap_or_default()).or_error("archive member size is not a number")?;
        let data_offset = offset + HEADER_SIZE;
        let is_table = is_special(name_field);
        if thin && !is_table {
            return Ok(RawMember { header_offset: offset, name_field, size, data: None, next_offset: data_offset });
        }
        let contents = bytes::slice(data, data_offset, size).or_error("archive member goes past the end of the archive")?;
        // Members start at even offsets; the last one may lack its padding.
        let end = data_offset + size;
        let next_offset = (end + end % 2).min(data.len() as u64);
        Ok(RawMember { header_offset: offset, name_field, size, data: Some(contents), next_offset })
    }

    pub(crate) fn role(&self) -> Role {
        match self.name_field {
            b"/" => Role::GnuIndex,
            b"/SYM64/" => Role::GnuIndex64,
            b"//" => Role::LongNames,
            name if name.starts_with(b"/<") => Role::Table,
            name => bsd_index(self.bsd_name().map_or(name, |(name, _)| name)).unwrap_or(Role::Member),
        }
    }

    /// A BSD long name, which lies before the member's bytes, and how many bytes it takes there.
    pub(crate) fn bsd_name(&self) -> Option<(&'a [u8], usize)> {
        let len = decimal(self.name_field.strip_prefix(b"#1/")?)?;
        let len = usize::try_from(len).ok()?;
        let name = self.data?.get(..len)?;
        let end = name.iter().position(|&byte| byte == 0).unwrap_or(len);
        Some((name.get(..end)?, len))
    }

    fn member(&self, long_names: &'a [u8]) -> Result<Member<'a>> {
        if self.name_field.starts_with(b"#1/") {
            let (name, len) = self.bsd_name().or_error("archive member name is cut short")?;
            let data = self.data.and_then(|data| data.get(len..)).or_error("archive member name is cut short")?;
            return Ok(Member { name, header_offset: self.header_offset, size: data.len() as u64, data: Some(data), nested: None });
        }
        let mut nested = None;
        let name = match self.name_field {
            // "/123", and "/123:456" where a thin archive names a member of another archive.
            [b'/', digit, ..] if digit.is_ascii_digit() => {
                let mut numbers = self.name_field.splitn(2, |&byte| byte == b':');
                let digits = numbers.next().unwrap_or_default();
                nested = numbers.next().map(|digits| decimal(digits).or_error("archive member name is not a number")).transpose()?;
                let offset = decimal(digits.get(1..).unwrap_or_default()).or_error("archive member name is not a number")?;
                let start = usize::try_from(offset).or_error("archive member name is outside the name table")?;
                let rest = long_names.get(start..).or_error("archive member name is outside the name table")?;
                let end = rest.iter().position(|&byte| byte == b'\n' || byte == 0).unwrap_or(rest.len());
                let name = rest.get(..end).unwrap_or(rest);
                name.strip_suffix(b"/").unwrap_or(name)
            }
            name => name.strip_suffix(b"/").unwrap_or(name),
        };
        Ok(Member { name, header_offset: self.header_offset, size: self.size, data: self.data, nested })
    }
}

/// Whether the name field alone says that this is a table, whose bytes are there even in a thin archive.
fn is_special(name_field: &[u8]) -> bool {
    matches!(name_field, b"/" | b"//" | b"/SYM64/") || name_field.starts_with(b"/<") || bsd_index(name_field).is_some()
}

/// The index that has this name in BSD archives.
fn bsd_index(name: &[u8]) -> Option<Role> {
    match name {
        b"__.SYMDEF" | b"__.SYMDEF SORTED" => Some(Role::BsdIndex),
        b"__.SYMDEF_64" | b"__.SYMDEF_64 SORTED" => Some(Role::BsdIndex64),
        _ => None,
    }
}

fn decimal(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field.trim_ascii()).ok()?.parse().ok()
}

impl<'a> Archive<'a> {
    /// Reads the magic and finds the name table.
    ///
    /// # Errors
    /// `data` is no archive, or one of the headers up to the first real member is malformed.
    pub fn parse(data: &'a [u8]) -> Result<Self> {
        let thin = if data.starts_with(MAGIC) {
            false
        } else if data.starts_with(THIN_MAGIC) {
            true
        } else {
            return Err(Error("not an archive"));
        };
        let mut archive = Archive { data, thin, long_names: &[] };
        let mut tables = archive.raw_members();
        while let Some(raw) = tables.next_raw() {
            let raw = raw?;
            match raw.role() {
                Role::Member => break,
                Role::LongNames => archive.long_names = raw.data.unwrap_or_default(),
                _ => {}
            }
        }
        Ok(archive)
    }

    /// Whether the archive only names its members.
    pub fn is_thin(&self) -> bool {
        self.thin
    }

    /// The members in order. After an error the iteration ends.
    pub fn members(&self) -> Members<'a> {
        self.raw_members()
    }

    /// The member whose header is at this offset, as a thin archive of archives names it.
    ///
    /// # Errors
    /// There is none, or a header before it is malformed.
    pub fn member_at(&self, header_offset: u64) -> Result<Member<'a>> {
        let mut members = self.members();
        members
            .find(|member| member.as_ref().map_or(true, |member| member.header_offset == header_offset))
            .or_error("no member is where a thin archive looks for one")?
    }

    fn raw_members(&self) -> Members<'a> {
        Members { archive: *self, offset: MAGIC.len() as u64 }
    }
}

/// Iterator over the members of an archive.
#[derive(Debug, Clone)]
pub struct Members<'a> {
    archive: Archive<'a>,
    offset: u64,
}

impl<'a> Members<'a> {
    pub(crate) fn next_raw(&mut self) -> Option<Result<RawMember<'a>>> {
        let end = self.archive.data.len() as u64;
        if self.offset >= end {
            return None;
        }
        let raw = RawMember::read(self.archive.data, self.offset, self.archive.thin);
        self.offset = raw.as_ref().map_or(end, |raw| raw.next_offset);
        Some(raw)
    }
}

impl<'a> Iterator for Members<'a> {
    type Item = Result<Member<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let member = match self.next_raw()? {
                Ok(raw) if !matches!(raw.role(), Role::Member) => continue,
                Ok(raw) => raw.member(self.archive.long_names),
                Err(error) => Err(error),
            };
            if member.is_err() {
                self.offset = self.archive.data.len() as u64;
            }
            return Some(member);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(name: &str, size: usize) -> Vec<u8> {
        format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, "644").into_bytes()
    }

    fn archive(magic: &[u8], members: &[(&str, &[u8])]) -> Vec<u8> {
        let mut out = magic.to_vec();
        for (name, data) in members {
            out.extend(header(name, data.len()));
            out.extend_from_slice(data);
            if out.len() % 2 == 1 {
                out.push(b'\n');
            }
        }
        out
    }

    fn check(bytes: &[u8], expected: &[(&str, Option<&[u8]>)]) {
        let archive = Archive::parse(bytes).unwrap();
        let members: Vec<_> = archive.members().map(|member| member.unwrap()).collect();
        let found: Vec<_> = members.iter().map(|m| (std::str::from_utf8(m.name).unwrap(), m.data)).collect();
        assert_eq!(found, expected);
        for member in members {
            assert_eq!(&bytes[member.header_offset as usize + 58..][..2], b"`\n");
        }
    }

    #[test]
    fn gnu_names_and_padding() {
        let long = b"a_member_with_a_long_name.o/\nanother_long_member_name.o/\n";
        let bytes =
            archive(MAGIC, &[("/", &[0, 0, 0, 0]), ("//", long), ("a.o/", b"odd"), ("/0", b"xy"), ("/29", b"z"), ("sp ace.o/", b"")]);
        check(
            &bytes,
            &[
                ("a.o", Some(b"odd")),
                ("a_member_with_a_long_name.o", Some(b"xy")),
                ("another_long_member_name.o", Some(b"z")),
                ("sp ace.o", Some(b"")),
            ],
        );
        // The last padding byte may be missing.
        let mut bytes = archive(MAGIC, &[("a.o/", b"odd")]);
        bytes.pop();
        check(&bytes, &[("a.o", Some(b"odd"))]);
    }

    #[test]
    fn bsd_and_coff_names() {
        check(
            &archive(MAGIC, &[("#1/20", b"__.SYMDEF SORTED\0\0\0\0\0\0\0\0"), ("#1/8", b"long.o\0\0data"), ("b.o", b"x")]),
            &[("long.o", Some(b"data")), ("b.o", Some(b"x"))],
        );
        check(
            &archive(MAGIC, &[("/", b""), ("/", b""), ("//", b"dir\\long name.obj\0"), ("/<ECSYMBOLS>/", b"1"), ("/0", b"x")]),
            &[("dir\\long name.obj", Some(b"x"))],
        );
    }

    #[test]
    fn thin_members_have_no_bytes() {
        let mut bytes = archive(THIN_MAGIC, &[("/", &[0, 0, 0, 0]), ("//", b"sub/a.o/\n/abs/b.o/\n")]);
        bytes.extend(header("/0", 1000));
        bytes.extend(header("/9:68", 7));
        check(&bytes, &[("sub/a.o", None), ("/abs/b.o", None)]);
        // A name that only begins as that of an index.
        let mut other = bytes.clone();
        other.extend(header("__.SYMDEFs.o/", 9));
        check(&other, &[("sub/a.o", None), ("/abs/b.o", None), ("__.SYMDEFs.o", None)]);
        let archive = Archive::parse(&bytes).unwrap();
        assert!(archive.is_thin());
        assert_eq!(archive.members().next().unwrap().unwrap().size, 1000);
        let inner = super::tests::archive(MAGIC, &[("a.o/", b"one"), ("b.o/", b"two")]);
        let inner = Archive::parse(&inner).unwrap();
        assert_eq!(inner.member_at(8 + 60 + 4).unwrap().data, Some(&b"two"[..]));
        assert_eq!(inner.member_at(10).unwrap_err(), Error("no member is where a thin archive looks for one"));
        assert_eq!(archive.members().map(|member| member.unwrap().nested).collect::<Vec<_>>(), [None, Some(68)]);
    }

    #[test]
    fn malformed() {
        assert_eq!(Archive::parse(b"!<arch>").unwrap_err(), Error("not an archive"));
        let good = archive(MAGIC, &[("//", b"long.o/\n"), ("/0", b"12345678")]);
        for len in 0..good.len() {
            // Whatever is cut off, walking ends, with an error unless the cut is between two members.
            if let Ok(archive) = Archive::parse(&good[..len]) {
                let clean = archive.members().all(|member| member.is_ok());
                assert_eq!(clean, [8, 76].contains(&len), "{len}");
            }
        }
        let broken = |edit: fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            edit(&mut bytes);
            Archive::parse(&bytes).and_then(|archive| archive.members().collect::<Result<Vec<_>>>()).unwrap_err()
        };
        assert_eq!(broken(|b| b[76 + 58] = b'x'), Error("archive member header has no end mark"));
        assert_eq!(broken(|b| b[76 + 48] = b'x'), Error("archive member size is not a number"));
        assert_eq!(broken(|b| b[76 + 48..76 + 58].fill(b'9')), Error("archive member goes past the end of the archive"));
        assert_eq!(broken(|b| b[76 + 1] = b'9'), Error("archive member name is outside the name table"));
        assert_eq!(broken(|b| b[76..76 + 5].copy_from_slice(b"#1/99")), Error("archive member name is cut short"));
    }
}
