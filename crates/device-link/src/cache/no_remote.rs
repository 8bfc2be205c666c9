//! Stands in for `remote` where the program is built without it: nothing is shared, and who asks for it is told.

use super::{Key, Kind};
use crate::options::CacheOptions;
use crate::toolchain::Env;

/// There is none.
pub(super) enum Remote {}

impl Remote {
    /// No store.
    ///
    /// # Errors
    /// One is asked for.
    pub(super) fn open(options: &CacheOptions, _: Env) -> Result<Option<Remote>, String> {
        if options.remote.is_some() { Err("this warplink is built without the feature remote-cache".to_owned()) } else { Ok(None) }
    }

    pub(super) fn shown(&self) -> &str {
        match *self {}
    }

    pub(super) fn is_written(&self) -> bool {
        match *self {}
    }

    pub(super) fn get(&self, _: Kind, _: &Key) -> Result<Option<Vec<u8>>, String> {
        match *self {}
    }

    pub(super) fn put(&self, _: Kind, _: &Key, _: &[u8]) -> Result<(), String> {
        match *self {}
    }

    pub(super) fn give_up(&self) -> bool {
        match *self {}
    }
}
