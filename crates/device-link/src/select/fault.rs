//! What is wrong with a job, said once for all architectures that have it in common.

use std::collections::BTreeSet;

use fatbin::Arch;

use crate::error::Error;

/// Something wrong for one architecture; the same for several is shown once.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Fault {
    /// Begins with the object, ends before the architectures.
    pub what: String,
    /// `>>>` lines.
    pub notes: Vec<String>,
    /// The name of the error.
    pub code: &'static str,
}

/// Why a job failed: for reasons that other architectures may share, or for one of its own.
#[derive(Debug)]
pub enum Failure {
    /// Said once for all architectures that have them.
    Faults(Vec<Fault>),
    /// Names its architecture.
    Error(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Error(error)
    }
}

/// Faults of several architectures as errors: equal ones are one error that names all of them.
pub fn merge_faults(faults: impl IntoIterator<Item = (Arch, Fault)>) -> Vec<Error> {
    let mut merged: Vec<(Fault, BTreeSet<Arch>)> = Vec::new();
    for (arch, fault) in faults {
        match merged.iter_mut().find(|(known, _)| *known == fault) {
            Some((_, archs)) => {
                archs.insert(arch);
            }
            None => merged.push((fault, BTreeSet::from([arch]))),
        }
    }
    merged
        .into_iter()
        .map(|(fault, archs)| {
            let archs: Vec<_> = archs.iter().map(Arch::to_string).collect();
            let notes: String = fault.notes.iter().map(|note| format!("\n>>> {note}")).collect();
            Error::new(format!("{} for {}{notes}", fault.what, archs.join(", "))).named(fault.code)
        })
        .collect()
}
