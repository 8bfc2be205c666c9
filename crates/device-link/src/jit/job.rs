//! The dynamic part of a link: code as bytes, and what must stay findable.

use std::borrow::Cow;

use super::ContentId;

/// What one link is made of. It borrows the bytes of its inputs or owns them, as the caller likes.
#[derive(Debug, Clone, Default)]
pub struct LinkJob<'a> {
    pub(super) inputs: Vec<Input<'a>>,
    pub(super) roots: Option<Vec<Cow<'a, str>>>,
    id: Option<ContentId>,
}

/// One input.
#[derive(Debug, Clone)]
pub(super) struct Input<'a> {
    /// What messages call it.
    pub(super) name: Cow<'a, str>,
    pub(super) bytes: Cow<'a, [u8]>,
    /// It takes part only if another one needs what it defines.
    pub(super) on_demand: bool,
}

impl<'a> LinkJob<'a> {
    /// Nothing so far; all kernels stay.
    pub fn new() -> LinkJob<'a> {
        LinkJob::default()
    }

    /// Adds an input: LLVM bitcode (of LLVM's own version or an older one), PTX or a cubin. What it is, its bytes say. `name` is what messages
    /// call it; it is not part of the id.
    #[must_use]
    pub fn input(mut self, name: impl Into<Cow<'a, str>>, bytes: impl Into<Cow<'a, [u8]>>) -> LinkJob<'a> {
        self.inputs.push(Input { name: name.into(), bytes: bytes.into(), on_demand: false });
        self
    }

    /// Adds an input that takes part only if another one refers to what it defines, as a member of an archive does.
    #[must_use]
    pub fn library(mut self, name: impl Into<Cow<'a, str>>, bytes: impl Into<Cow<'a, [u8]>>) -> LinkJob<'a> {
        self.inputs.push(Input { name: name.into(), bytes: bytes.into(), on_demand: true });
        self
    }

    /// A kernel, function or variable that must stay findable by its mangled name. With the first one, kernels that are not named go, unless
    /// a kernel that stays launches them; without any, all kernels stay.
    #[must_use]
    pub fn root(mut self, symbol: impl Into<Cow<'a, str>>) -> LinkJob<'a> {
        self.roots.get_or_insert_default().push(symbol.into());
        self
    }

    /// Names the content by an id of the caller's, which is what [`super::DeviceLinker::lookup`] then finds the image by. Two jobs with one id
    /// must be the same code: the second one is not looked at.
    #[must_use]
    pub fn named(mut self, id: ContentId) -> LinkJob<'a> {
        self.id = Some(id);
        self
    }

    /// The id of the content: that given by [`LinkJob::named`], otherwise a BLAKE3 hash of inputs and roots. The settings of the linker are
    /// not part of it; see [`super::DeviceLinker::identity`].
    pub fn id(&self) -> ContentId {
        if let Some(id) = self.id {
            return id;
        }
        let mut hasher = blake3::Hasher::new_derive_key("warplink 2026 content of a job");
        hasher.update(&(self.inputs.len() as u64).to_le_bytes());
        for input in &self.inputs {
            hasher.update(&[u8::from(input.on_demand)]);
            hasher.update(&(input.bytes.len() as u64).to_le_bytes());
            hasher.update(&input.bytes);
        }
        // No roots at all and none of the kernels are different wishes.
        hasher.update(&[u8::from(self.roots.is_some())]);
        for root in self.roots.iter().flatten() {
            hasher.update(&(root.len() as u64).to_le_bytes());
            hasher.update(root.as_bytes());
        }
        ContentId::from_bytes(*hasher.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_id_is_of_the_content() {
        let job = || LinkJob::new().input("a", &b"BC"[..]).root("k");
        let others = [
            LinkJob::new().input("a", &b"BD"[..]).root("k"),
            LinkJob::new().library("a", &b"BC"[..]).root("k"),
            LinkJob::new().input("a", &b"BC"[..]).root("l"),
            LinkJob::new().input("a", &b"BC"[..]),
            LinkJob::new().input("a", &b"B"[..]).input("a", &b"C"[..]).root("k"),
            LinkJob::new().input("a", &b"C"[..]).input("a", &b"B"[..]).root("k"),
            job().root("l"),
            job().input("b", &b""[..]),
            LinkJob::new(),
            job().named(ContentId::of(b"mine")),
        ];
        let different: std::collections::BTreeSet<_> = others.iter().map(LinkJob::id).chain([job().id()]).collect();
        assert_eq!(different.len(), others.len() + 1);
        assert_eq!(LinkJob::new().input("other name", b"BC".to_vec()).root("k".to_owned()).id(), job().id());
        assert_eq!(others[9].id(), ContentId::of(b"mine"));
    }
}
