//! Device objects that need no LTO (cubins, PTX, NVIDIA's own bitcode): what they define and what they refer to.

use fatbin::cubin::{self, Cubin};
use fatbin::ptx;
use llvm_lto::{Binding, SymbolKind};

use crate::extract::ImageClass;

/// A symbol of a device object that other objects can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ObjectSymbol<'a> {
    /// Its name, mangled.
    pub name: &'a str,
    /// What it is, as far as a reference tells.
    pub kind: SymbolKind,
    /// Definition or reference.
    pub binding: Binding,
}

impl ObjectSymbol<'_> {
    /// Whether the object defines it.
    pub fn is_defined(&self) -> bool {
        !matches!(self.binding, Binding::Undefined | Binding::UndefinedWeak)
    }
}

/// The symbols of an object. NVIDIA's bitcode shows none.
///
/// # Errors
/// A cubin is damaged. (PTX is nvlink's to judge.)
pub fn symbols(class: ImageClass, bytes: &[u8]) -> fatbin::Result<Vec<ObjectSymbol<'_>>> {
    Ok(match class {
        ImageClass::Cubin => Cubin::parse(bytes)?.symbols().iter().filter_map(of_cubin).collect(),
        ImageClass::Ptx => ptx::symbols(bytes).iter().filter_map(of_ptx).collect(),
        ImageClass::Bitcode | ImageClass::Fatbin | ImageClass::LtoIr | ImageClass::Unknown => Vec::new(),
    })
}

fn of_cubin<'a>(symbol: &cubin::Symbol<'a>) -> Option<ObjectSymbol<'a>> {
    let kind = match symbol.kind {
        cubin::SymbolKind::Kernel => SymbolKind::Kernel,
        cubin::SymbolKind::Function | cubin::SymbolKind::Undefined => SymbolKind::Function,
        cubin::SymbolKind::Variable(_) | cubin::SymbolKind::Texture => SymbolKind::Variable,
        cubin::SymbolKind::Other => return None,
    };
    let binding = match (symbol.kind, symbol.binding) {
        (_, cubin::Binding::Local) => return None,
        (cubin::SymbolKind::Undefined, cubin::Binding::Weak) => Binding::UndefinedWeak,
        (cubin::SymbolKind::Undefined, cubin::Binding::Global) => Binding::Undefined,
        (_, cubin::Binding::Weak) => Binding::Weak,
        (_, cubin::Binding::Global) => Binding::Strong,
    };
    (!symbol.name.is_empty()).then_some(ObjectSymbol { name: symbol.name, kind, binding })
}

fn of_ptx<'a>(symbol: &ptx::Symbol<'a>) -> Option<ObjectSymbol<'a>> {
    let kind = match symbol.kind {
        ptx::SymbolKind::Entry => SymbolKind::Kernel,
        ptx::SymbolKind::Function => SymbolKind::Function,
        ptx::SymbolKind::Global | ptx::SymbolKind::Constant | ptx::SymbolKind::Shared => SymbolKind::Variable,
    };
    let binding = match symbol.linkage {
        ptx::Linkage::Extern => Binding::Undefined,
        // A prototype of what the body below it defines, or of nothing that another object could give.
        _ if !symbol.defined => return None,
        ptx::Linkage::Local => return None,
        ptx::Linkage::Weak | ptx::Linkage::Common => Binding::Weak,
        ptx::Linkage::Visible => Binding::Strong,
    };
    Some(ObjectSymbol { name: symbol.name, kind, binding })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_tells_definitions_from_references() {
        let text = b".version 7.8\n.target sm_90\n.address_size 64\n.extern .func (.param .b32 r) f(.param .b32 a);\n\
            .extern .global .align 4 .u32 seen;\n.visible .global .align 4 .u32 counter;\n.weak .func g() { ret; }\n\
            .func own() { ret; }\n.visible .entry k() { ret; }\n";
        let got: Vec<_> = symbols(ImageClass::Ptx, text).unwrap().into_iter().map(|s| (s.name, s.kind, s.binding)).collect();
        assert_eq!(
            got,
            [
                ("f", SymbolKind::Function, Binding::Undefined),
                ("seen", SymbolKind::Variable, Binding::Undefined),
                ("counter", SymbolKind::Variable, Binding::Strong),
                ("g", SymbolKind::Function, Binding::Weak),
                ("k", SymbolKind::Kernel, Binding::Strong),
            ]
        );
    }

    #[test]
    fn a_damaged_cubin_is_an_error() {
        assert!(symbols(ImageClass::Cubin, b"\x7fELF").is_err());
    }
}
