//! Register spills of a kernel, as `ptxas -v` counts them: bytes stored and loaded by the instructions that ptxas has marked as such.
//!
//! Since CUDA 12, `.nv.info.<kernel>` notes the offset of every such instruction (`SpillRefill` in `cuobjdump -elf` and `nvdisasm`). Which
//! of them store and how wide they are is read from the code, by what `nvdisasm -hex` shows for sm_70 to sm_121.

use crate::bytes::{u32_at, u64_at};

/// Bytes that a kernel's spill instructions move, each instruction counted once wherever it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Spills {
    /// From registers to local memory.
    pub stores: u64,
    /// And back.
    pub loads: u64,
}

/// An annotation that marks a spill: its kind and the offset of the instruction in the kernel's code.
const SPILL_REFILL: u32 = 1;
const ANNOTATION_SIZE: usize = 8;
/// The twelve low bits of an instruction that accesses local memory.
const LOAD_LOCAL: u64 = 0x983;
const STORE_LOCAL: u64 = 0x387;

/// Adds up the spills that `annotations` (the value of `EIATTR_ANNOTATIONS`) names in `code`. What is no spill is passed over; annotations
/// of an unknown kind end the list, since their size is unknown.
pub(crate) fn count(annotations: &[u8], code: &[u8]) -> Spills {
    let mut spills = Spills::default();
    for annotation in annotations.chunks_exact(ANNOTATION_SIZE) {
        if u32_at(annotation, 0) != Some(SPILL_REFILL) {
            break;
        }
        let Some(at) = u32_at(annotation, 4).map(|offset| offset as usize) else { break };
        let (Some(low), Some(high)) = (u64_at(code, at), at.checked_add(8).and_then(|at| u64_at(code, at))) else { continue };
        let width = match (high >> 9) & 7 {
            0 | 1 => 1,
            2 | 3 => 2,
            4 => 4,
            5 => 8,
            _ => 16,
        };
        match low & 0xfff {
            STORE_LOCAL => spills.stores += width,
            LOAD_LOCAL => spills.loads += width,
            _ => {}
        }
    }
    spills
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `STL [R1+0x30], R19` and `LDL R61, [R1]` of sm_90, as `nvdisasm -hex` prints them, then a 16-byte load.
    const CODE: [u64; 6] =
        [0x0000_3013_0100_7387, 0x0001_e800_0010_0800, 0x0000_0000_013d_7983, 0x000e_a800_0010_0800, 0x7983, 0x0010_0c00];

    fn bytes(words: &[u64]) -> Vec<u8> {
        words.iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn annotations(list: &[(u32, u32)]) -> Vec<u8> {
        list.iter().flat_map(|(kind, offset)| [kind.to_le_bytes(), offset.to_le_bytes()].concat()).collect()
    }

    #[test]
    fn stores_and_loads_are_told_apart() {
        let marks = annotations(&[(1, 0), (1, 16), (1, 32)]);
        assert_eq!(count(&marks, &bytes(&CODE)), Spills { stores: 4, loads: 4 + 16 });
    }

    #[test]
    fn what_is_unknown_counts_for_nothing() {
        assert_eq!(count(&annotations(&[(2, 0), (1, 0)]), &bytes(&CODE)), Spills::default());
        assert_eq!(count(&annotations(&[(1, 40), (1, 0xffff_ffff), (1, 4000)]), &bytes(&CODE)), Spills::default());
        assert_eq!(count(&annotations(&[(1, 0)])[..7], &bytes(&CODE)), Spills::default());
        assert_eq!(count(&[], &[]), Spills::default());
    }
}
