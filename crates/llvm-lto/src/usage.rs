//! What this thread, this process and its children have used of the machine. The standard library waits for children without asking what
//! they used, and has no clock of a thread's own time.

use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::time::Duration;

/// What a process has used.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    /// Time on a processor in the program's own code.
    pub user: Duration,
    /// Time on a processor in the system's code for it.
    pub system: Duration,
    /// The most memory that it had at once, in bytes.
    pub peak_memory: u64,
}

impl Usage {
    /// The usage of two processes that ran one after the other.
    pub fn and(self, other: Usage) -> Usage {
        Usage {
            user: self.user.saturating_add(other.user),
            system: self.system.saturating_add(other.system),
            peak_memory: self.peak_memory.max(other.peak_memory),
        }
    }

    fn of(usage: &libc::rusage) -> Usage {
        let time = |time: libc::timeval| {
            Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_usec).unwrap_or(0).saturating_mul(1000))
        };
        // Linux counts in KiB.
        Usage { user: time(usage.ru_utime), system: time(usage.ru_stime), peak_memory: u64::try_from(usage.ru_maxrss).unwrap_or(0) * 1024 }
    }
}

/// Waits for a child by its id and says how it ended and what it used, its own children that it waited for included. The child is gone
/// afterwards: nobody else may wait for it.
///
/// # Errors
/// As `wait4(2)`: there is no such child.
pub fn wait_for_child(id: u32) -> std::io::Result<(ExitStatus, Usage)> {
    let id = libc::pid_t::try_from(id).map_err(|_| std::io::Error::from(std::io::ErrorKind::InvalidInput))?;
    let mut status = 0;
    // SAFETY: the structure is plain numbers, all of which may be zero; the system writes to these two places only.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    loop {
        // SAFETY: as above.
        if unsafe { libc::wait4(id, &mut status, 0, &mut usage) } >= 0 {
            return Ok((ExitStatus::from_raw(status), Usage::of(&usage)));
        }
        let error = std::io::Error::last_os_error();
        if error.kind() != std::io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

/// What this process has used by now, without its children.
pub fn own_usage() -> Usage {
    // SAFETY: the structure is plain numbers; the system fills it.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: as above. It cannot fail with these arguments; zeros would be the answer.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &mut usage) };
    Usage::of(&usage)
}

/// The time that this thread has spent on a processor.
pub fn thread_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the system writes to the place given.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut time) };
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    // It is waited for, though not by the standard library.
    #[allow(clippy::zombie_processes)]
    fn a_child_tells_what_it_used() {
        let child =
            std::process::Command::new("sh").args(["-c", "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; exit 7"]).spawn().unwrap();
        let (status, usage) = wait_for_child(child.id()).unwrap();
        assert_eq!(status.code(), Some(7));
        assert!(usage.user > Duration::ZERO && usage.peak_memory > 100_000, "{usage:?}");
        assert!(wait_for_child(child.id()).is_err());
    }

    #[test]
    fn own_time_goes_on() {
        let before = thread_time();
        let sum: u64 = std::hint::black_box((0..2_000_000u64).map(std::hint::black_box).sum());
        assert!(sum > 0 && thread_time() > before);
        assert!(own_usage().peak_memory > 100_000);
    }
}
