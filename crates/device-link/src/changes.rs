//! Inputs that are not what they were when the link opened them: changed, replaced, removed, or there when they were not.

use std::collections::HashSet;
use std::path::Path;

use crate::error::{Error, Result};
use crate::link_line::LinkLine;
use crate::options::{ItemKind, Options};
use crate::{Opened, command, inputs};

impl Opened {
    /// # Errors
    /// Every input that was changed, replaced or removed since it was opened, but for one that is the output as well.
    pub(crate) fn unchanged(&self, options: &Options) -> Result<()> {
        let changes = self.files.iter().flat_map(inputs::InputFile::changes);
        let changes = changes.filter(|(path, _)| !command::same_file(path, &options.output));
        Error::all(changes.map(|(path, what)| input_changed(path, what)))
    }

    /// # Errors
    /// Every input that was not there, is there now, and so takes no part in the link.
    pub(crate) fn still_missing(&self, line: &LinkLine) -> Result<()> {
        let found: HashSet<usize> = self.files.iter().map(|file| file.position).collect();
        let missing = line.host.items.iter().filter(|item| !found.contains(&item.position));
        let appeared = missing.filter_map(|item| match &item.kind {
            ItemKind::Input(path) if line.options.directory.is_none() && path.is_file() => Some(input_changed(path, "has appeared")),
            _ => None,
        });
        Error::all(appeared)
    }
}

fn input_changed(path: &Path, what: &str) -> Error {
    Error::new(format!("{}: the file {what} during the link", path.display())).named("input-changed")
}
