//! Link lines without device code: most of them. LLVM's static constructors cost more than everything that such a line needs of us, so
//! the inputs are scanned before they run. A line without device code becomes the host linker then and there; for any other the scan is
//! kept for `main`.

use std::ffi::OsString;
use std::path::Path;
use std::sync::Mutex;

use device_link::diagnostics::Diagnostics;
use device_link::error::Result;
use device_link::link_line::{self, LinkLine};
use device_link::toolchain::{Env, HostLinker};
use device_link::{Opened, Outcome, Scan, host_only, host_only_at_a_glance, open, scan, temps};

/// The files of the link and what is in them. They are in use until the process ends, so they are never given back.
pub(crate) struct Scanned {
    pub(crate) opened: &'static Opened,
    pub(crate) scan: Scan<'static>,
}

static SCANNED: Mutex<Option<Scanned>> = Mutex::new(None);

/// The scan made before `main`, or a new one.
pub(crate) fn scanned(line: &LinkLine, own: Option<&Path>, env: Env) -> Result<Scanned> {
    match SCANNED.lock().ok().and_then(|mut kept| kept.take()) {
        Some(scanned) => Ok(scanned),
        None => read(line, own, env),
    }
}

fn read(line: &LinkLine, own: Option<&Path>, env: Env) -> Result<Scanned> {
    let opened: &'static Opened = Box::leak(Box::new(open(line, own, env)?));
    Ok(Scanned { opened, scan: scan(opened)? })
}

/// Ends in the host linker, or leaves everything to `main`, which then meets the same errors and has the means to report them.
#[cfg_attr(test, allow(dead_code))]
fn before_llvm() {
    // What unwinds here would abort without a word; `main` does it all again and says what happened.
    let _ = std::panic::catch_unwind(|| {
        let args: Vec<OsString> = std::env::args_os().collect();
        if !crate::is_link_line(&args) {
            return;
        }
        let env = |name: &str| std::env::var_os(name);
        let Ok(line) = link_line::parse(args, &env) else { return };
        if line.special.is_some() {
            return;
        }
        let own = std::env::current_exe().ok();
        let may_take_over = !line.options.dry_run && line.options.repro.is_none() && !host_link_is_long(&line);
        if may_take_over && let Some(linker) = host_only_at_a_glance(&line, own.as_deref(), &env) {
            take_over(&line, &Some(linker));
        }
        let Ok(scanned) = read(&line, own.as_deref(), &env) else { return };
        if may_take_over && scanned.scan.is_host_only(&line.options) {
            take_over(&line, &scanned.opened.linker);
        }
        if let Ok(mut kept) = SCANNED.lock() {
            *kept = Some(scanned);
        }
    });
}

/// Becomes the host linker. Comes back only on failure.
#[cfg_attr(test, allow(dead_code))]
fn take_over(line: &LinkLine, linker: &Option<HostLinker>) {
    let temps = temps::Temps::new(None, true);
    let diagnostics = Diagnostics::new(&line.options);
    if let Ok(Outcome::HostOnly(command, _)) = host_only(linker, line, temps, &diagnostics) {
        command.exec();
    }
}

/// A line that needs a response file needs somebody to remove it afterwards.
fn host_link_is_long(line: &LinkLine) -> bool {
    device_link::host_link::needs_response_file(&line.host.argv)
}

// The only `unsafe` here is the attribute that places a pointer among the program's constructors; the function behind it is ordinary.
// The test harness has a name and a line of its own: neither is a link.
#[cfg(not(test))]
#[allow(unsafe_code)]
mod hook {
    device_link::before_llvm!(super::before_llvm);
}
