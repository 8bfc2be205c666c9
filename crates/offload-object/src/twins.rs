//! Whether two pieces of bitcode are one code, compiled for two architectures. clang writes the architecture into attributes of functions
//! (`target-cpu`, `target-features`) and nowhere else, unless the source asks for it; most code is the same for all architectures, and then so
//! are all bits of the files but those in the block of attribute groups.
//!
//! The format is that of <https://llvm.org/docs/BitCodeFormat.html>; numbers of blocks and records are those of LLVM's `LLVMBitCodes.h`.

use crate::producer::Bits;

const MAGIC: &[u8] = b"BC\xc0\xde";
const MODULE_BLOCK: u64 = 8;
const ATTRIBUTE_GROUP_BLOCK: u64 = 10;
/// A record of the block: one group of attributes.
const GROUP_ENTRY: u64 = 3;
/// Introduces an attribute that is a string with a value: the two follow, each with a zero behind it.
const STRING_WITH_VALUE: u64 = 4;
/// More operands than a group has.
const MOST_OPERANDS: u64 = 1 << 16;

/// Whether two pieces of bitcode differ in nothing but the architecture that their functions are compiled for. False wherever this cannot be
/// told at a glance.
pub fn same_code(one: &[u8], other: &[u8]) -> bool {
    one.len() == other.len() && compare(one, other).unwrap_or(false)
}

fn compare(one: &[u8], other: &[u8]) -> Option<bool> {
    let (range, width) = attribute_groups(one)?;
    if attribute_groups(other)? != (range.clone(), width) {
        return Some(false);
    }
    // The bits before and behind are the same, so they mean the same.
    if one.get(..range.start)? != other.get(..range.start)? || one.get(range.end..)? != other.get(range.end..)? {
        return Some(false);
    }
    let (one, other) = (records(one.get(range.clone())?, width)?, records(other.get(range)?, width)?);
    Some(one.len() == other.len() && one.iter().zip(&other).all(|(one, other)| same_group(one, other)))
}

/// The bytes of the block of attribute groups, behind its header, and the width of its abbreviation numbers.
fn attribute_groups(bitcode: &[u8]) -> Option<(std::ops::Range<usize>, u64)> {
    let mut bits = Bits { bytes: bitcode.strip_prefix(MAGIC)?, at: 0 };
    // Blocks of the file, then of the module. Nothing but blocks and plain records stands before the attributes.
    let mut width = 2;
    loop {
        match bits.fixed(width)? {
            1 => {
                let number = bits.vbr(8)?;
                let inner = bits.vbr(4)?;
                bits.align();
                let words = usize::try_from(bits.fixed(32)?).ok()?;
                let end = bits.at.checked_add(words.checked_mul(32)?)?;
                match number {
                    MODULE_BLOCK => width = inner,
                    ATTRIBUTE_GROUP_BLOCK => return Some((MAGIC.len() + bits.at / 8..MAGIC.len() + end / 8, inner)),
                    _ => bits.at = end,
                }
            }
            3 => {
                bits.vbr(6)?;
                for _ in 0..bits.vbr(6)?.min(MOST_OPERANDS) {
                    bits.vbr(6)?;
                }
            }
            _ => return None,
        }
    }
}

/// The records of a block: code and operands. None where one is written in another way than LLVM does.
fn records(block: &[u8], width: u64) -> Option<Vec<Vec<u64>>> {
    let mut bits = Bits { bytes: block, at: 0 };
    let mut all = Vec::new();
    loop {
        match bits.fixed(width)? {
            0 => return Some(all),
            3 => {
                let mut record = vec![bits.vbr(6)?];
                for _ in 0..bits.vbr(6).filter(|&count| count <= MOST_OPERANDS)? {
                    record.push(bits.vbr(6)?);
                }
                all.push(record);
            }
            _ => return None,
        }
    }
}

/// Whether two groups are equal but for the architecture.
fn same_group(one: &[u64], other: &[u64]) -> bool {
    if one == other {
        return true;
    }
    let without = |group: &[u64]| {
        let mut rest = group.to_vec();
        for key in ["target-cpu", "target-features"] {
            let Some(range) = value(&rest, key) else { continue };
            let text = rest.get(range.clone()).and_then(text)?;
            let kept = if key == "target-cpu" && is_arch(&text) { String::new() } else { features(&text) };
            rest.splice(range, kept.bytes().map(u64::from));
        }
        Some(rest)
    };
    one.first() == Some(&GROUP_ENTRY) && without(one).is_some_and(|one| Some(one) == without(other))
}

/// Where in a group the value of a string attribute stands.
fn value(group: &[u64], key: &str) -> Option<std::ops::Range<usize>> {
    let sought: Vec<u64> = [STRING_WITH_VALUE].into_iter().chain(key.bytes().map(u64::from)).chain([0]).collect();
    let start = group.windows(sought.len()).position(|window| window == sought)? + sought.len();
    let length = group.get(start..)?.iter().position(|&operand| operand == 0)?;
    Some(start..start + length)
}

fn text(operands: &[u64]) -> Option<String> {
    String::from_utf8(operands.iter().map(|&operand| u8::try_from(operand).ok()).collect::<Option<Vec<u8>>>()?).ok()
}

/// Whether a word is an architecture without restrictions, such as `sm_90`.
fn is_arch(word: &str) -> bool {
    word.strip_prefix("sm_").is_some_and(|digits| !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit()))
}

/// A feature list without the architecture.
fn features(list: &str) -> String {
    list.split(',').filter(|feature| !feature.strip_prefix('+').is_some_and(is_arch)).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(attributes: &[(&str, &str)]) -> Vec<u64> {
        let mut record = vec![GROUP_ENTRY, 1, 0xffff_ffff, 0, 18];
        for (key, value) in attributes {
            record.push(STRING_WITH_VALUE);
            record.extend(key.bytes().chain([0]).chain(value.bytes()).chain([0]).map(u64::from));
        }
        record
    }

    #[test]
    fn groups_differ_in_the_architecture_only() {
        let plain = group(&[("frame-pointer", "all"), ("target-cpu", "sm_80"), ("target-features", "+ptx88,+sm_80")]);
        for (attributes, expected) in [
            (&[("frame-pointer", "all"), ("target-cpu", "sm_90"), ("target-features", "+ptx88,+sm_90")][..], true),
            (&[("frame-pointer", "all"), ("target-cpu", "sm_90"), ("target-features", "+ptx80,+sm_90")][..], false),
            (&[("frame-pointer", "all"), ("target-cpu", "sm_90a"), ("target-features", "+ptx88,+sm_90a")][..], false),
            (&[("frame-pointer", "none"), ("target-cpu", "sm_80"), ("target-features", "+ptx88,+sm_80")][..], false),
            (&[("frame-pointer", "all"), ("target-cpu", "sm_90")][..], false),
            (&[][..], false),
        ] {
            assert_eq!(same_group(&plain, &group(attributes)), expected, "{attributes:?}");
        }
    }

    /// A file of nothing but a module block with one block of attribute groups, and `tail` behind it.
    fn bitcode(groups: &[Vec<u64>], tail: u8) -> Vec<u8> {
        let mut bits: Vec<bool> = Vec::new();
        let put = |bits: &mut Vec<bool>, value: u64, width: usize| bits.extend((0..width).map(|bit| value >> bit & 1 == 1));
        let vbr6 = |bits: &mut Vec<bool>, mut value: u64| loop {
            let more = value > 31;
            bits.extend((0..6).map(|bit| if bit == 5 { more } else { value >> bit & 1 == 1 }));
            value >>= 5;
            if !more {
                break;
            }
        };
        let mut block = Vec::new();
        for group in groups {
            put(&mut block, 3, 3);
            vbr6(&mut block, group[0]);
            vbr6(&mut block, group.len() as u64 - 1);
            group[1..].iter().for_each(|&operand| vbr6(&mut block, operand));
        }
        put(&mut block, 0, 3);
        block.resize(block.len().next_multiple_of(32), false);
        for (value, width) in [(1, 2), (MODULE_BLOCK, 8), (3, 4), (0, 18), (99, 32)] {
            put(&mut bits, value, width);
        }
        // VERSION 2, plain; then the header of the block.
        for (value, width) in [(3, 3), (1, 6), (1, 6), (2, 6), (1, 3), (ATTRIBUTE_GROUP_BLOCK, 8), (3, 4)] {
            put(&mut bits, value, width);
        }
        bits.resize(bits.len().next_multiple_of(32), false);
        put(&mut bits, block.len() as u64 / 32, 32);
        bits.extend(block);
        put(&mut bits, tail.into(), 32);
        let bytes = bits.chunks(8).map(|bits| bits.iter().enumerate().fold(0, |byte, (at, &bit)| byte | u8::from(bit) << at));
        MAGIC.iter().copied().chain(bytes).collect()
    }

    #[test]
    fn files_are_the_same_code_where_all_else_is_equal() {
        let groups =
            |arch: &str| vec![group(&[("target-cpu", arch), ("target-features", &format!("+ptx88,+{arch}"))]), group(&[("a", "b")])];
        let (one, other) = (bitcode(&groups("sm_80"), 7), bitcode(&groups("sm_90"), 7));
        assert_ne!(one, other);
        assert!(same_code(&one, &other) && same_code(&one, &one));
        assert!(!same_code(&one, &bitcode(&groups("sm_90"), 8)), "something behind differs");
        assert!(!same_code(&one, &bitcode(&groups("sm_9"), 7)), "lengths differ");
        assert!(!same_code(
            &one,
            &bitcode(&[group(&[("target-cpu", "sm_90"), ("target-features", "+ptx88,+sm_90")]), group(&[("a", "c")])], 7)
        ));
    }

    #[test]
    fn damaged_files_are_never_the_same() {
        let one = bitcode(&[group(&[("target-cpu", "sm_80"), ("target-features", "+ptx88,+sm_80")])], 7);
        for len in 0..one.len() - 4 {
            assert!(!same_code(&one[..len], &one[..len]), "{len}");
        }
        for at in 0..one.len() {
            for bit in 0..8 {
                let mut other = one.clone();
                other[at] ^= 1 << bit;
                // sm_81 and the like are other architectures.
                let _ = same_code(&one, &other);
            }
        }
        assert!(!same_code(b"", b"") && !same_code(b"BC\xc0\xde", b"BC\xc0\xde"));
    }
}
