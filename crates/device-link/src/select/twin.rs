//! Architectures of a link whose code differs in nothing but the architecture: what is found out about one holds for the other.

use fatbin::Arch;
use llvm_lto::{Exclusive, Session};

use super::{LinkJob, recorded};
use crate::diagnostics::Diagnostics;
use crate::extract::{DeviceInput, ImageClass};
use crate::options::Options;

/// Images that serve one architecture.
pub struct Candidates<'i, 'a> {
    /// They take part.
    pub primary: Vec<&'i DeviceInput<'a>>,
    /// They take part if a device symbol needs them.
    pub lazy: Vec<&'i DeviceInput<'a>>,
}

impl Candidates<'_, '_> {
    /// Whether these are the same bitcode as another architecture's but for the architecture, so that what is found out about one holds for
    /// both. Members of archives that may or may not take part are not compared.
    pub fn same_code(&self, other: &Candidates) -> bool {
        let same = |(one, other): (&&DeviceInput, &&DeviceInput)| {
            one.class == ImageClass::Bitcode
                && other.class == ImageClass::Bitcode
                && one.unit == other.unit
                && matches!((one.image.bytes(), other.image.bytes()), (Ok(one), Ok(other)) if offload_object::same_code(one, other))
        };
        self.lazy.is_empty()
            && other.lazy.is_empty()
            && self.primary.len() == other.primary.len()
            && self.primary.iter().zip(&other.primary).all(same)
    }
}

/// The job of an architecture whose candidates are the same code as those of `leader`, without loading them. None where the objects ask for
/// other settings than the leader's.
pub fn twin<'i>(
    leader: &LinkJob<'i>,
    arch: Arch,
    candidates: &Candidates<'i, '_>,
    options: &Options,
    diagnostics: &Diagnostics,
) -> Option<LinkJob<'i>> {
    let mut job = LinkJob {
        triple: leader.triple.clone(),
        arch,
        session: Exclusive::new(Session::new()),
        members: leader.members.clone(),
        objects: Vec::new(),
        roots: leader.roots.clone(),
        only_roots: leader.only_roots,
        ptx: false,
        level: None,
        recorded_ptxas_args: Vec::new(),
        ptx_version: leader.ptx_version,
        definers: leader.definers.clone(),
        kernels: leader.kernels.clone(),
        undefined: leader.undefined.clone(),
        drawn: leader.drawn.clone(),
        drawn_for: leader.drawn_for.clone(),
        units: leader.units.clone(),
        seen: leader.seen.clone(),
        twin_of: Some(leader.arch),
    };
    recorded::apply(&mut job, &candidates.primary, options, diagnostics);
    (job.level == leader.level).then_some(job)
}
