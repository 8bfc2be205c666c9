//! The options of link.exe and lld-link, which begin with `/` or `-` and know no GNU linker's words.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use super::Scanner;
use crate::options::{HostItem, ItemKind, ItemState, SearchDir};

impl Scanner {
    /// The directories in `LIB` come after those of the line.
    pub(super) fn search_lib_dirs(&mut self) {
        let dirs = self.lib_dirs.take().unwrap_or_default();
        let dirs = dirs.as_bytes().split(|&byte| byte == b';').filter(|dir| !dir.is_empty());
        self.late_search_dirs.extend(dirs.map(|dir| SearchDir { path: PathBuf::from(OsStr::from_bytes(dir)) }));
    }

    /// Understands what matters of a COFF host line, in each spelling. False for inputs and for the words that are the wrapper's own.
    pub(super) fn link_exe_option(&mut self, arg: &OsStr) -> bool {
        let Some(body) = ["/?", "-?", "/", "-"].iter().find_map(|prefix| arg.as_bytes().strip_prefix(prefix.as_bytes())) else {
            return false;
        };
        let colon = body.iter().position(|&byte| byte == b':');
        let (name, value) = match colon {
            Some(colon) => (&body[..colon], Some(OsStr::from_bytes(&body[colon + 1..]))),
            None => (body, None),
        };
        let text = || value.map(|value| value.to_string_lossy().into_owned()).unwrap_or_default();
        match (name.to_ascii_lowercase().as_slice(), value) {
            (b"out", Some(value)) => {
                self.options.output = PathBuf::from(value);
                self.host.output_index = Some(self.host.argv.len());
            }
            (b"libpath", Some(value)) => self.host.search_dirs.push(SearchDir { path: PathBuf::from(value) }),
            (b"wholearchive", None) => self.state.whole_archive = true,
            (b"wholearchive", Some(value)) => {
                let state = ItemState { whole_archive: true, ..self.state };
                let position = self.host.argv.len();
                self.host.items.push(HostItem { position, kind: ItemKind::Input(PathBuf::from(value)), state });
            }
            (b"entry", Some(_)) => self.options.entry = Some(text()),
            (b"include", Some(_)) => self.options.undefined.push(text()),
            (b"dll", None) => self.options.shared = true,
            // The wrapper takes `-r`; and two dashes begin no word of link.exe's.
            (b"r" | b"relocatable", None) => return false,
            _ if name.starts_with(b"-") => return false,
            // No file: `/dir/a.obj` has more slashes and `/a.obj` a dot before any colon.
            _ if arg.as_bytes().starts_with(b"/") => return !name.is_empty() && name.iter().all(u8::is_ascii_alphanumeric),
            _ => {}
        }
        true
    }
}
