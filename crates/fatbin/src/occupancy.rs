//! How many blocks of a kernel a multiprocessor holds at a time.
//!
//! The figures of each compute capability are those of the table "Technical Specifications per Compute Capability" in NVIDIA's CUDA
//! programming guide; how registers and shared memory are handed out is described in the documentation of its occupancy calculator: registers
//! by the warp in units of 256, warps on four partitions, shared memory by the block.

use crate::Arch;

/// Registers that a multiprocessor has: the same for all since 2014.
const REGISTERS: u32 = 1 << 16;
/// Registers come by the warp in units of this many.
const REGISTER_UNIT: u32 = 256;
/// Parts of a multiprocessor, each with its share of warps and registers.
const PARTITIONS: u32 = 4;
const WARP: u32 = 32;
/// The most registers that a thread can have.
pub const MOST_REGISTERS: u32 = 255;
/// Registers of a thread come in steps of this many, as those of a warp do.
const REGISTER_STEP: u32 = REGISTER_UNIT / WARP;
const KIB: u32 = 1024;

/// What a multiprocessor of one compute capability holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Multiprocessor {
    /// Warps at a time.
    pub warps: u32,
    /// Blocks at a time.
    pub blocks: u32,
    /// Bytes of shared memory for all of its blocks.
    pub shared: u32,
    /// Bytes of it that each block costs beyond its own.
    reserved: u32,
    /// The cubin counts the reserved bytes already.
    counted: bool,
    /// Bytes that it comes in.
    unit: u32,
}

/// A number of registers up to which so many blocks fit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Registers per thread, at most.
    pub registers: u32,
    /// Blocks at a time.
    pub blocks: u32,
}

impl Multiprocessor {
    /// That of an architecture; None for one that is not in NVIDIA's table.
    pub fn of(arch: Arch) -> Option<Multiprocessor> {
        let (warps, blocks, shared) = match arch.sm {
            70 => (64, 32, 96),
            75 => (32, 16, 64),
            80 => (64, 32, 164),
            86 => (48, 16, 100),
            87 => (48, 16, 164),
            89 => (48, 24, 100),
            90 | 100 | 103 => (64, 32, 228),
            // 101 is what 110 was called before CUDA 13.
            101 | 110 => (48, 24, 228),
            120 | 121 => (48, 24, 100),
            _ => return None,
        };
        let (reserved, unit) = if arch.sm < 80 { (0, 256) } else { (KIB, 128) };
        Some(Multiprocessor { warps, blocks, shared: shared * KIB, reserved, counted: arch.sm >= 90, unit })
    }

    /// Registers of all of its threads.
    pub fn registers(self) -> u32 {
        REGISTERS
    }

    /// Warps of a block.
    pub fn warps_of(self, threads: u32) -> u32 {
        threads.div_ceil(WARP)
    }

    /// Blocks of this many threads that fit at a time, each with this much shared memory as a cubin counts it; 0 where one is too large.
    pub fn blocks(self, threads: u32, registers: u32, shared: u64) -> u32 {
        let warps = self.warps_of(threads).max(1);
        let of_warp = (registers.clamp(1, REGISTERS) * WARP).next_multiple_of(REGISTER_UNIT);
        // Each partition has its own registers, and what is left of them is of no use to a warp of another.
        let by_registers = REGISTERS / PARTITIONS / of_warp * PARTITIONS / warps;
        let shared = u32::try_from(shared).unwrap_or(u32::MAX);
        let cost = if self.counted { shared.max(self.reserved) } else { shared.saturating_add(self.reserved) };
        let cost = cost.checked_next_multiple_of(self.unit).unwrap_or(u32::MAX);
        let by_shared = self.shared.checked_div(cost).unwrap_or(u32::MAX);
        (self.warps / warps).min(self.blocks).min(by_registers).min(by_shared)
    }

    /// The steps of a block size: for every number of blocks that fit, the most registers with which they do, the fewest registers first.
    pub fn steps(self, threads: u32, shared: u64) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        let counts = (1..=MOST_REGISTERS / REGISTER_STEP).map(|units| units * REGISTER_STEP).chain([MOST_REGISTERS]);
        for registers in counts {
            let blocks = self.blocks(threads, registers, shared);
            match steps.last_mut() {
                Some(step) if step.blocks == blocks => step.registers = registers,
                _ if blocks > 0 => steps.push(Step { registers, blocks }),
                _ => {}
            }
        }
        steps
    }

    /// The share of its warps that so many blocks are.
    pub fn occupancy(self, threads: u32, blocks: u32) -> f64 {
        f64::from(blocks * self.warps_of(threads)) / f64::from(self.warps)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(sm: u32) -> Multiprocessor {
        Multiprocessor::of(Arch::new(sm)).unwrap()
    }

    #[test]
    fn what_nvidia_s_best_practices_guide_says_of_37_registers() {
        // Compute capability 7.0: 12 active blocks of 128 threads, 75 %; four of 320 threads, 63 %.
        let volta = of(70);
        assert_eq!(volta.blocks(128, 37, 0), 12);
        assert_eq!(volta.occupancy(128, 12), 0.75);
        assert_eq!(volta.blocks(320, 37, 0), 4);
        assert_eq!(volta.occupancy(320, 4), 0.625);
        // "To have 100% occupancy, each thread can use at most 32 registers."
        assert_eq!(volta.steps(128, 0)[0], Step { registers: 32, blocks: 16 });
    }

    #[test]
    fn values_of_the_occupancy_calculator() {
        for (sm, threads, registers, shared, expected) in [
            (75, 256, 64, 0, 4),
            (75, 256, 65, 0, 3),
            (75, 32, 32, 0, 16),
            (75, 256, 32, 32 << 10, 2),
            (80, 256, 32, 0, 8),
            (80, 256, 64, 0, 4),
            (80, 1024, 64, 0, 1),
            (80, 1024, 65, 0, 0),
            // 163 KB and the one that is reserved are all of it.
            (80, 128, 32, 163 << 10, 1),
            (80, 128, 32, 164 << 10, 0),
            (80, 128, 32, 40 << 10, 4),
            (86, 256, 40, 0, 6),
            (86, 256, 48, 0, 5),
            (86, 64, 32, 0, 16),
            (89, 64, 32, 0, 24),
            (90, 256, 150, 0, 1),
            (90, 256, 128, 0, 2),
            (90, 256, 80, 0, 3),
            (90, 96, 168, 0, 4),
            (100, 128, 255, 0, 2),
            (120, 256, 40, 0, 6),
        ] {
            assert_eq!(of(sm).blocks(threads, registers, shared), expected, "sm_{sm} {threads} {registers} {shared}");
        }
        // On sm_90 a cubin counts the reserved kilobyte.
        assert_eq!(of(90).blocks(128, 32, 114 << 10), 2);
        assert_eq!(of(90).blocks(128, 32, 228 << 10), 1);
    }

    #[test]
    fn steps_are_where_one_more_block_fits() {
        let step = |registers, blocks| Step { registers, blocks };
        assert_eq!(of(90).steps(256, 0), [step(32, 8), step(40, 6), step(48, 5), step(64, 4), step(80, 3), step(128, 2), step(255, 1)]);
        assert_eq!(of(86).steps(1024, 0), [step(64, 1)]);
        // Shared memory is the limit.
        assert_eq!(of(75).steps(64, 16 << 10), [step(255, 4)]);
        assert_eq!(of(80).steps(64, 1 << 30), []);
        for sm in [70, 75, 80, 86, 87, 89, 90, 100, 101, 103, 110, 120, 121] {
            for threads in [1, 32, 33, 96, 128, 256, 320, 512, 1000, 1024] {
                let steps = of(sm).steps(threads, 0);
                for pair in steps.windows(2) {
                    assert!(pair[0].registers < pair[1].registers && pair[0].blocks > pair[1].blocks, "sm_{sm} {threads} {pair:?}");
                    assert_eq!(of(sm).blocks(threads, pair[0].registers, 0), pair[0].blocks);
                    assert_eq!(of(sm).blocks(threads, pair[0].registers + 1, 0), pair[1].blocks);
                }
            }
        }
        assert_eq!(Multiprocessor::of(Arch::new(53)), None);
        assert_eq!(of(90).blocks(u32::MAX, u32::MAX / 64, u64::MAX), 0);
    }
}
