//! Turns references to plain functions into references to kernels, in relocatable cubins.
//!
//! LLVM declares a kernel of another unit as `.extern .func`, nvcc as `.extern .entry`. What ptxas makes of the two differs, as
//! `cuobjdump -elf` shows, in three places: bit 4 of the symbol's `st_other`; the relocations of its address, which are those of data
//! (`R_CUDA_64`, `R_CUDA_ABS32_*`; from sm_90 on `R_CUDA_UNIFIED*`, which go through a table of functions) and not those of the
//! descriptor that a launch needs (`R_CUDA_FUNC_DESC*`); and the symbol's flag in `.nv.callgraph`. nvlink refuses a definition and a
//! reference that differ in the first ("not declared __global__ in all source files"). With the second wrong it links, and a launch
//! from device code fails with "invalid configuration argument".

use std::collections::HashSet;

use super::{Cubin, SHT_SYMTAB, STO_ENTRY, SYMBOL_SIZE, SymbolKind};
use crate::bytes::u32_at;
use crate::{Error, Result};

const SHT_RELA: u32 = 4;
const SHT_REL: u32 = 9;
/// SHT_CUDA_CALLGRAPH.
const SHT_CUDA_CALLGRAPH: u32 = 0x7000_0001;
/// Where an entry of a relocation table has the type; the symbol is in the word behind it.
const RELOCATION_TYPE: usize = 8;
/// In `.nv.callgraph`, pairs of words, what follows the pair `(0, CALLGRAPH_FLAGS)` up to the next that starts with 0 are symbols with a
/// flag: 1 for a function whose address is taken.
const CALLGRAPH_FLAGS: u32 = -2i32 as u32;

/// The relocation of a kernel's address that stands where `kind` would be the one of a function's; None for those that are no address.
/// The numbers are those that cuobjdump gives names to.
const fn of_kernel(kind: u32) -> Option<u32> {
    Some(match kind {
        // R_CUDA_32 and R_CUDA_UNIFIED_32, R_CUDA_64 and R_CUDA_UNIFIED: R_CUDA_FUNC_DESC_32 and _64.
        0x01 | 0x67 => 0x22,
        0x02 | 0x66 => 0x23,
        // R_CUDA_ABS32_20, _LO_20, _HI_20, for instructions of 64 bits.
        0x2a..=0x2c => kind + 0x05,
        // R_CUDA_ABS32_32, _LO_32, _HI_32, for those of 128 bits, and R_CUDA_UNIFIED32_LO_32, _HI_32.
        0x37..=0x39 => kind + 0x06,
        0x70..=0x71 => kind - 0x32,
        // R_CUDA_8_0 to _56 and R_CUDA_UNIFIED_8_0 to _56: the bytes of an address.
        0x4c..=0x53 => kind + 0x10,
        0x68..=0x6f => kind - 0x0c,
        _ => return None,
    })
}

impl Cubin<'_> {
    /// The bytes of a relocatable cubin in which references to kernels are such, however the compiler declared them. `is_kernel` knows
    /// the program's kernels by name; None if nothing has to change.
    ///
    /// # Errors
    /// As [`Cubin::parse`], and if a table that refers to such a symbol is cut off.
    pub fn with_kernels_marked(bytes: &[u8], is_kernel: impl Fn(&str) -> bool) -> Result<Option<Vec<u8>>> {
        let cubin = Cubin::parse(bytes)?;
        let Some(table) = cubin.sections.iter().find(|section| section.kind == SHT_SYMTAB) else { return Ok(None) };
        // A section's content lies in `bytes`: its place is the distance of the two slices.
        let place = |data: &[u8]| (data.as_ptr() as usize).wrapping_sub(bytes.as_ptr() as usize);
        let mut marked: HashSet<u32> = HashSet::new();
        let mut changed = bytes.to_vec();
        for (index, symbol) in cubin.symbols.iter().enumerate() {
            if symbol.kind != SymbolKind::Undefined || symbol.name.is_empty() || !is_kernel(symbol.name) {
                continue;
            }
            let other = changed.get_mut(place(table.data) + index * SYMBOL_SIZE + 5);
            if let Some(byte) = other.filter(|byte| **byte & STO_ENTRY == 0) {
                *byte |= STO_ENTRY;
                marked.insert(index as u32);
            }
        }
        if marked.is_empty() {
            return Ok(None);
        }
        for section in &cubin.sections {
            let short = || Error::new(format!("section {} of the cubin is cut off", section.name));
            let size = match section.kind {
                SHT_RELA => 24,
                SHT_REL => 16,
                SHT_CUDA_CALLGRAPH => {
                    clear_flags(&mut changed, place(section.data), section.data, &marked).ok_or_else(short)?;
                    continue;
                }
                _ => continue,
            };
            // Debug information wants the place of the code.
            if section.name.trim_start_matches(".rela").trim_start_matches(".rel").starts_with(".debug") {
                continue;
            }
            for (index, entry) in section.data.chunks(size).enumerate() {
                let kind = u32_at(entry, RELOCATION_TYPE).ok_or_else(short)?;
                let symbol = u32_at(entry, RELOCATION_TYPE + 4).ok_or_else(short)?;
                if let Some(kind) = of_kernel(kind).filter(|_| marked.contains(&symbol)) {
                    put(&mut changed, place(section.data) + index * size + RELOCATION_TYPE, kind).ok_or_else(short)?;
                }
            }
        }
        Ok(Some(changed))
    }
}

/// Takes the flag of functions whose address is taken from the symbols of a call graph at `start`.
fn clear_flags(bytes: &mut [u8], start: usize, graph: &[u8], symbols: &HashSet<u32>) -> Option<()> {
    let mut list = 0;
    for (index, pair) in graph.chunks(8).enumerate() {
        let (symbol, value) = (u32_at(pair, 0)?, u32_at(pair, 4)?);
        if symbol == 0 {
            list = value;
        } else if list == CALLGRAPH_FLAGS && value == 1 && symbols.contains(&symbol) {
            put(bytes, start + index * 8 + 4, 0)?;
        }
    }
    Some(())
}

fn put(bytes: &mut [u8], at: usize, value: u32) -> Option<()> {
    bytes.get_mut(at..)?.get_mut(..4)?.copy_from_slice(&value.to_le_bytes());
    Some(())
}
