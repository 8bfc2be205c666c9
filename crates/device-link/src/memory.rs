//! The memory that a link may take: how much there is, how much each stage of it needs, and who has to wait.
//!
//! What a stage needs is estimated from the size of its input, since neither LLVM nor ptxas says it beforehand. Only how many stages run at
//! once follows from it, never how a program is cut: the same inputs give the same bytes on a small machine and on a large one.

use std::path::Path;
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};

/// What ptxas takes for PTX of this size. Measured (CUDA 13.0, sm_90): 65 MB for 0.4 MB, 74 for 0.65, 550 for 18.7, 980 for 26.6.
pub fn of_ptxas(ptx: usize) -> u64 {
    (48 << 20) + 40 * ptx as u64
}

/// What LLVM takes, from loading to PTX, for bitcode of this size. Measured: 100 MB for 0.45 MB, 950 MB for 6 MB.
pub fn of_llvm(bitcode: usize) -> u64 {
    (8 << 20) + 200 * bitcode as u64
}

/// Room for stages that run at once.
#[derive(Debug)]
pub struct Memory {
    limit: Option<u64>,
    taken: Mutex<Taken>,
    freed: Condvar,
}

#[derive(Debug, Default)]
struct Taken {
    bytes: u64,
    holders: usize,
}

/// Room that goes back when this is dropped.
#[derive(Debug)]
pub struct Reserved<'a> {
    memory: &'a Memory,
    bytes: u64,
}

impl Memory {
    /// With a limit in bytes; without one, three quarters of what is free on the machine, or in the control group that we run in.
    pub fn new(limit: Option<u64>) -> Memory {
        Memory { limit, taken: Mutex::default(), freed: Condvar::new() }
    }

    /// Waits until there is room. Who needs more than there is at all runs alone.
    pub fn reserve(&self, bytes: u64) -> Reserved<'_> {
        let limit = if bytes == 0 { u64::MAX } else { self.limit.unwrap_or_else(free) };
        let mut taken = self.lock();
        while taken.holders > 0 && taken.bytes.saturating_add(bytes) > limit {
            taken = self.freed.wait(taken).unwrap_or_else(PoisonError::into_inner);
        }
        taken.bytes += bytes;
        taken.holders += usize::from(bytes > 0);
        Reserved { memory: self, bytes }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Taken> {
        // Two numbers that are changed together: whole whatever their last holder did.
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Reserved<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            let mut taken = self.memory.lock();
            taken.bytes -= self.bytes;
            taken.holders -= 1;
            self.memory.freed.notify_all();
        }
    }
}

/// Three quarters of the memory that is free when the link first asks.
fn free() -> u64 {
    static FREE: OnceLock<u64> = OnceLock::new();
    *FREE.get_or_init(|| {
        let read = |path: &Path| std::fs::read_to_string(path).ok();
        let machine = read(Path::new("/proc/meminfo")).and_then(|text| available(&text));
        let group = read(Path::new("/proc/self/cgroup")).and_then(|text| group(&text)).and_then(|group| {
            let file = |name: &str| read(&Path::new("/sys/fs/cgroup").join(&group).join(name));
            in_group(&file("memory.max")?, &file("memory.current")?)
        });
        machine.into_iter().chain(group).min().map_or(u64::MAX, |bytes| bytes / 4 * 3)
    })
}

/// `MemAvailable` of /proc/meminfo (proc_meminfo(5)), in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The control group of version 2 in /proc/self/cgroup (cgroups(7)), as a path below the mount point.
fn group(text: &str) -> Option<String> {
    Some(text.lines().find_map(|line| line.strip_prefix("0::"))?.trim_start_matches('/').to_owned())
}

/// What a control group's `memory.max` and `memory.current` leave. None where there is no limit.
fn in_group(max: &str, current: &str) -> Option<u64> {
    Some(max.trim().parse::<u64>().ok()?.saturating_sub(current.trim().parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[test]
    fn what_runs_fits() {
        let memory = Memory::new(Some(100));
        let (now, most) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for bytes in (0..64).map(|index| [10, 30, 60, 45][index % 4]) {
                let (memory, now, most) = (&memory, &now, &most);
                scope.spawn(move || {
                    let reserved = memory.reserve(bytes);
                    most.fetch_max(now.fetch_add(bytes, Ordering::SeqCst) + bytes, Ordering::SeqCst);
                    std::thread::yield_now();
                    now.fetch_sub(bytes, Ordering::SeqCst);
                    drop(reserved);
                });
            }
        });
        assert!((60..=100).contains(&most.load(Ordering::SeqCst)), "{most:?}");
        assert_eq!(memory.lock().bytes, 0);
        assert_eq!(memory.lock().holders, 0);
    }

    #[test]
    fn too_large_runs_alone() {
        let memory = Memory::new(Some(100));
        let nothing = memory.reserve(0);
        // Nobody that counts is there: this returns.
        let large = memory.reserve(1000);
        drop((large, nothing));
        let small = memory.reserve(1);
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| memory.reserve(1000).bytes);
            std::thread::yield_now();
            assert!(!waiting.is_finished());
            drop(small);
            assert_eq!(waiting.join().unwrap(), 1000);
        });
    }

    #[test]
    fn what_there_is() {
        assert_eq!(available("MemTotal:       24689764 kB\nMemFree: 1 kB\nMemAvailable:   20000000 kB\n"), Some(20_480_000_000));
        for text in
            ["", "MemAvailable:", "MemAvailable: x kB", "MemAvailable: 99999999999999999999 kB", "MemAvailable: 18446744073709551615 kB"]
        {
            assert_eq!(available(text), None, "{text}");
        }
        assert_eq!(group("5:cpu:/a\n0::/user.slice/x\n").as_deref(), Some("user.slice/x"));
        assert_eq!(group("0::/\n").as_deref(), Some(""));
        assert_eq!(group("5:memory:/a\n"), None);
        assert_eq!(in_group("1000\n", "300\n"), Some(700));
        assert_eq!(in_group("100", "300"), Some(0));
        assert_eq!(in_group("max\n", "300\n"), None);
        assert!(free() > 0);
    }
}
