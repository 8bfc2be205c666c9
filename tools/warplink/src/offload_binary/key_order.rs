//! The order of an image's keys in the file, which is that of the hash table in LLVM's tool.
//!
//! It has no meaning, but builds compare objects byte by byte, and with the same bytes nobody can tell the two tools apart.

use std::collections::HashMap;

/// The order in which LLVM's tool goes through the keys: that of its hash table, which has no meaning but shows in the file. Open addressing
/// with triangular steps, 64 places at first, doubled when three quarters are taken.
pub(super) fn of(keys: &[&[u8]]) -> Vec<usize> {
    let mut table: HashMap<usize, usize> = HashMap::new();
    let mut size = 64;
    let insert = |table: &mut HashMap<usize, usize>, size: usize, index: usize| {
        let mut place = keys.get(index).map_or(0, |key| hash(key)) as usize % size;
        let mut step = 1;
        while table.contains_key(&place) {
            place = (place + step) % size;
            step += 1;
        }
        table.insert(place, index);
    };
    for index in 0..keys.len() {
        if (index + 1) * 4 >= size * 3 {
            let old = in_order(&table);
            table.clear();
            size *= 2;
            old.into_iter().for_each(|index| insert(&mut table, size, index));
        }
        insert(&mut table, size, index);
    }
    in_order(&table)
}

fn in_order(table: &HashMap<usize, usize>) -> Vec<usize> {
    let mut places: Vec<_> = table.iter().map(|(place, index)| (*place, *index)).collect();
    places.sort();
    places.into_iter().map(|(_, index)| index).collect()
}

/// LLVM's hash of a string of up to 64 bytes (CityHash with a fixed seed). No key is longer; if one is, its place differs from LLVM's.
fn hash(key: &[u8]) -> u64 {
    const SEED: u64 = 0xff51_afd7_ed55_8ccd;
    const K0: u64 = 0xc3a5_c85c_97cb_3127;
    const K1: u64 = 0xb492_b66f_be98_f273;
    const K2: u64 = 0x9ae1_6a3b_2f90_404f;
    const K3: u64 = 0xc949_d7c7_509e_6557;
    let len = key.len();
    let byte = |at: usize| u64::from(key.get(at).copied().unwrap_or_default());
    let word = |at: usize, bytes: usize| (0..bytes).rev().fold(0u64, |value, i| value << 8 | byte(at + i));
    let u32_at = |at: usize| word(at, 4);
    let u64_at = |at: usize| word(at, 8);
    let shift_mix = |value: u64| value ^ value >> 47;
    let mix = |low: u64, high: u64| {
        const MUL: u64 = 0x9ddf_ea08_eb38_2d69;
        let a = shift_mix((low ^ high).wrapping_mul(MUL));
        shift_mix((high ^ a).wrapping_mul(MUL)).wrapping_mul(MUL)
    };
    let n = len as u64;
    match len {
        0 => K2 ^ SEED,
        1..=3 => {
            let y = byte(0) + (byte(len >> 1) << 8);
            let z = n + (byte(len - 1) << 2);
            shift_mix(y.wrapping_mul(K2) ^ z.wrapping_mul(K3) ^ SEED).wrapping_mul(K2)
        }
        4..=8 => mix(n + (u32_at(0) << 3), SEED ^ u32_at(len - 4)),
        9..=16 => {
            let b = u64_at(len - 8);
            mix(SEED ^ u64_at(0), b.wrapping_add(n).rotate_right(len as u32)) ^ b
        }
        17..=32 => {
            let a = u64_at(0).wrapping_mul(K1);
            let b = u64_at(8);
            let c = u64_at(len - 8).wrapping_mul(K2);
            let d = u64_at(len - 16).wrapping_mul(K0);
            let low = a.wrapping_sub(b).rotate_right(43).wrapping_add((c ^ SEED).rotate_right(30)).wrapping_add(d);
            let high = a.wrapping_add((b ^ K3).rotate_right(20)).wrapping_sub(c).wrapping_add(n).wrapping_add(SEED);
            mix(low, high)
        }
        _ => {
            // Two halves go through the same steps.
            let half = |mut a: u64, second: u64, third: u64, z: u64| {
                let mut c = a.rotate_right(37);
                let b = a.wrapping_add(z).rotate_right(52);
                a = a.wrapping_add(second);
                c = c.wrapping_add(a.rotate_right(7));
                a = a.wrapping_add(third);
                (a.wrapping_add(z), b.wrapping_add(a.rotate_right(31)).wrapping_add(c))
            };
            let start = u64_at(0).wrapping_add(n.wrapping_add(u64_at(len - 16)).wrapping_mul(K0));
            let (vf, vs) = half(start, u64_at(8), u64_at(16), u64_at(24));
            let (wf, ws) = half(u64_at(16).wrapping_add(u64_at(len - 32)), u64_at(len - 24), u64_at(len - 16), u64_at(len - 8));
            let r = shift_mix(vf.wrapping_add(ws).wrapping_mul(K2).wrapping_add(wf.wrapping_add(vs).wrapping_mul(K0)));
            shift_mix((SEED ^ r.wrapping_mul(K0)).wrapping_add(vs)).wrapping_mul(K2)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(keys: &[&str], expected: &[&str]) {
        let bytes: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
        let ordered: Vec<&str> = of(&bytes).into_iter().map(|index| keys[index]).collect();
        assert_eq!(ordered, expected);
    }

    /// What `llvm-offload-binary` 22.1.8 wrote. `arch` and `zeta` want the same place, and so do `file` and `ptx`: the first to come has it.
    #[test]
    fn orders_seen_in_files() {
        check(&["file", "triple", "arch", "kind", "feature"], &["feature", "arch", "file", "triple", "kind"]);
        check(&["file", "triple", "arch", "kind", "zeta", "ptx"], &["arch", "zeta", "file", "ptx", "triple", "kind"]);
        check(&["", "arch", "triple", "novalue"], &["", "arch", "triple", "novalue"]);
        check(&[], &[]);
    }
}
