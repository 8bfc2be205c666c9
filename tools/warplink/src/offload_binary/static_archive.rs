//! Writes the static archive that `--archive` takes images out into.

use std::path::Path;

use device_link::error::{Error, Result};
use offload_object::{HostObject, SymbolKind};

/// A GNU archive of `(origin, image)`s, each named as the file that it comes from. It has a symbol index if we can read the symbols of all members;
/// linkers that need one would otherwise miss those of the rest.
pub(super) fn write(images: &[(&str, &[u8])]) -> Result<Vec<u8>> {
    let mut long_names = Vec::new();
    let mut members = Vec::new();
    let mut offsets = Vec::new();
    let mut symbols: Option<Vec<(usize, Vec<u8>)>> = Some(Vec::new());
    for (number, &(origin, image)) in images.iter().enumerate() {
        offsets.push(members.len());
        let name = Path::new(origin).file_name().unwrap_or_default().to_string_lossy();
        let field = if name.len() < 16 && !name.contains('/') {
            format!("{name}/")
        } else {
            let field = format!("/{}", long_names.len());
            long_names.extend(format!("{name}/\n").into_bytes());
            field
        };
        push_member(&mut members, &field, image);
        match HostObject::parse(image) {
            Ok(object) => {
                let defined = |kind| matches!(kind, SymbolKind::Defined | SymbolKind::DefinedWeak | SymbolKind::Common);
                let names = object.symbols().into_iter().filter(|symbol| defined(symbol.kind)).map(|symbol| (number, symbol.name.to_vec()));
                symbols.iter_mut().for_each(|symbols| symbols.extend(names.clone()));
            }
            Err(_) => symbols = None,
        }
    }
    let mut tables = Vec::new();
    if !long_names.is_empty() {
        push_member(&mut tables, "//", &long_names);
    }
    let mut out = b"!<arch>\n".to_vec();
    if let Some(symbols) = symbols.filter(|symbols| !symbols.is_empty()) {
        let mut index = (symbols.len() as u32).to_be_bytes().to_vec();
        let names: usize = symbols.iter().map(|(_, name)| name.len() + 1).sum();
        let size = index.len() + symbols.len() * 4 + names;
        let start = out.len() + 60 + size.next_multiple_of(2) + tables.len();
        for (number, _) in &symbols {
            let offset = offsets.get(*number).map_or(start, |offset| start + offset);
            let offset = u32::try_from(offset).map_err(|_| Error::new("the archive is too large for a symbol index"))?;
            index.extend(offset.to_be_bytes());
        }
        for (_, name) in &symbols {
            index.extend(name);
            index.push(0);
        }
        push_member(&mut out, "/", &index);
    }
    out.extend(tables);
    out.extend(members);
    Ok(out)
}

fn push_member(out: &mut Vec<u8>, name: &str, data: &[u8]) {
    // No time, owner or group, so that the same images give the same archive.
    out.extend(format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n", 0, 0, 0, 644, data.len()).into_bytes());
    out.extend(data);
    if out.len() % 2 == 1 {
        out.push(b'\n');
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use offload_object::Archive;

    use super::*;

    /// An object whose symbols are known, by the system's compiler.
    fn object(dir: &Path) -> Option<Vec<u8>> {
        std::fs::write(
            dir.join("a.c"),
            "int defined = 1; int tentative; static int local = 2; extern int needed; int *use(void) { return &needed + local; }\n",
        )
        .ok()?;
        let made =
            Command::new("cc").current_dir(dir).args(["-c", "-fcommon", "a.c", "-o", "a.o"]).status().is_ok_and(|status| status.success());
        if !made {
            eprintln!("skipped: no cc");
        }
        std::fs::read(dir.join("a.o")).ok()
    }

    #[test]
    fn objects_are_indexed() {
        let dir = tempfile::tempdir().unwrap();
        let Some(object) = object(dir.path()) else { return };
        let bytes = write(&[("dir/a.o", &object), ("lib.a(a member with a long name.o)", &object)]).unwrap();
        let members: Vec<_> = Archive::parse(&bytes).unwrap().members().map(|member| member.unwrap()).collect();
        let names: Vec<_> = members.iter().map(|member| String::from_utf8_lossy(member.name)).collect();
        assert_eq!(names, ["a.o", "lib.a(a member with a long name.o)"]);
        assert!(members.iter().all(|member| member.data == Some(&object)));
        let index = &bytes[68..];
        let number = |at: usize| u64::from(u32::from_be_bytes(index[at..at + 4].try_into().unwrap()));
        assert_eq!(number(0), 6);
        let offsets: Vec<_> = (0..6).map(|symbol| number(4 + symbol * 4)).collect();
        assert_eq!(offsets, [[members[0].header_offset; 3], [members[1].header_offset; 3]].concat());
        let mut symbols: Vec<_> = index[28..].split(|&byte| byte == 0).take(3).collect();
        symbols.sort();
        assert_eq!(symbols, [&b"defined"[..], b"tentative", b"use"]);
    }

    #[test]
    fn bitcode_has_no_index() {
        let bytes = write(&[("a.bc", b"BC\xc0\xde\0"), ("b", b"")]).unwrap();
        assert!(bytes.starts_with(b"!<arch>\na.bc/ "));
        let members: Vec<_> = Archive::parse(&bytes).unwrap().members().map(|member| member.unwrap()).collect();
        assert_eq!(members.iter().map(|member| member.size).collect::<Vec<_>>(), [5, 0]);
    }
}
