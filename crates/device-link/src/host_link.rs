//! The host link: the user's line, verbatim and in order, with the registration object put in and nothing else changed that the user can
//! see.

use std::borrow::Cow;
use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::command::{CommandLine, describe};
use crate::diagnostics::Diagnostics;
use crate::error::{Context, Error, Result, bail};
use crate::extract::Entry;
use crate::inputs::InputFile;
use crate::launch_guard::Guard;
use crate::options::{HostCommand, Options};
use crate::response::to_response_file;
use crate::temps::{self, Temps};
use crate::toolchain::{HostLinker, LinkerKind};
use crate::wrap;

/// Bytes of arguments from which on a response file is used. Linux allows an eighth of the stack limit at least, 128 KB; the environment
/// takes its share.
const LONG_LINE: usize = 96 << 10;

/// Adds to GNU ld's own script.
const FATBIN_LAST: &[u8] = b"SECTIONS { .nv_fatbin : { *(.nv_fatbin) } } INSERT AFTER .bss;\n";

/// What nvcc's objects ask of the host link.
#[derive(Debug, Default)]
pub struct NvccSide {
    /// Modules are registered.
    pub has_modules: bool,
    /// Launch stubs that go by the other compiler's name: the missing name and the one that is there.
    pub aliases: Vec<(String, String)>,
    /// Launch stubs in members of archives that the linker would not take by itself.
    pub drawn: Vec<String>,
    /// NVIDIA's device runtime, where device code called for it and the user has not named it.
    pub library: Option<PathBuf>,
}

/// The host linker's command. It is told of further temporary files by `objects`, those that it begins with are put in right behind the output, where no option of the user's applies to them yet.
#[allow(clippy::too_many_arguments)]
pub fn command(
    linker: &HostLinker,
    host: &HostCommand,
    options: &Options,
    objects: &mut Vec<PathBuf>,
    fatbin_size: usize,
    entries: &[Entry],
    nvcc: &NvccSide,
    guard: Option<&Guard>,
    temps: &Temps,
    diagnostics: &Diagnostics,
) -> Result<CommandLine> {
    let mut args = host.argv.clone();
    let at = host.output_index.map_or(0, |index| (index + 1).min(args.len()));
    args.splice(at..at, objects.iter().chain(&nvcc.library).map(|path| OsString::from(path.clone())));
    args.extend(nvcc.drawn.iter().map(|stub| OsString::from(format!("--undefined={stub}"))));
    if let Some((missing, there)) = nvcc.aliases.first().filter(|_| options.relocatable && linker.kind == LinkerKind::Mold) {
        bail!(
            "{}: host code calls {}, which is {} by the other compiler's name; mold takes no --defsym with -r: link it with another linker \
             (-fuse-ld=lld)",
            options.output.display(),
            diagnostics.name(missing),
            diagnostics.name(there)
        );
    }
    args.extend(nvcc.aliases.iter().map(|(missing, there)| OsString::from(format!("--defsym={missing}={there}"))));
    args.extend(guard.iter().flat_map(|guard| guard.linker_options()).map(OsString::from));
    if !objects.is_empty() && options.icf.as_deref() == Some("all") {
        match keep_stubs_apart(linker, entries).filter(|_| !nvcc.has_modules || linker.kind == LinkerKind::Gnu) {
            Some(extra) => args.extend(extra),
            None => {
                diagnostics.warn(
                    "icf",
                    "--icf=all would fold launch stubs of different kernels; --icf=safe is used, which keeps functions apart whose address \
                     is taken",
                );
                restrict_folding(&mut args);
            }
        }
    }
    // GNU ld knows large sections by their names only, and NVIDIA's tools know the fat binary by its own.
    if linker.kind == LinkerKind::Gnu && wrap::is_large(fatbin_size) && !options.relocatable {
        let script = temps.write("fatbin-last.ld", FATBIN_LAST)?;
        args.extend(["-T".into(), script.clone().into()]);
        objects.push(script);
    }
    shorten(linker, args, temps)
}

/// The line without bare offload binaries: they are device code alone, which no host linker takes.
pub fn without_device_files<'h>(host: &'h HostCommand, files: &[InputFile]) -> Cow<'h, HostCommand> {
    let bare = |file: &&InputFile| file.kind == offload_object::FileKind::OffloadBinary && file.via.is_none();
    let mut positions: Vec<usize> = files.iter().filter(bare).map(|file| file.position).collect();
    if positions.is_empty() {
        return Cow::Borrowed(host);
    }
    positions.sort_unstable();
    positions.dedup();
    let mut host = host.clone();
    for position in positions.into_iter().rev().filter(|&position| position < host.argv.len()).collect::<Vec<_>>() {
        host.argv.remove(position);
        host.output_index = host.output_index.map(|index| index - usize::from(index > position));
    }
    Cow::Owned(host)
}

/// The host linker's command where there is no device code: the user's line.
pub fn plain_command(linker: &HostLinker, host: &HostCommand, temps: &Temps) -> Result<CommandLine> {
    shorten(linker, host.argv.clone(), temps)
}

/// Runs the host linker over a guarded output, which stays guarded if it ended by itself. What one that was killed has begun is removed.
pub fn run(command: &CommandLine, options: &Options, diagnostics: &Diagnostics) -> Result<std::process::ExitStatus> {
    temps::guard_output(&options.output);
    let status = diagnostics.progress().hidden(|| command.run_inherited_within(options.tool_timeout));
    let status = status.inspect_err(|_| temps::discard_output())?;
    if status.code().is_none() {
        temps::discard_output();
        return Err(Error::new(format!("{}: {}", command.name(), describe(status))).named("host-linker-failed"));
    }
    Ok(status)
}

/// # Errors
/// The linker that has just ended well, by its own account, has not written the guarded output.
pub fn check_written(linker: &HostLinker, host: &HostCommand, options: &Options) -> Result<()> {
    if temps::is_output_written() || !writes_output(host, options) {
        return Ok(());
    }
    // What is there is from another time, and not ours to remove.
    temps::release_output();
    let what = if options.output.exists() { "is still the file from before" } else { "is not there" };
    let error = Error::new(format!("{}: {what}, although {} exited with code 0", options.output.display(), linker.path.display()));
    Err(error.named("host-linker-failed"))
}

/// After `-r`: the entries of the output are registered by its own code, so they must not mix with those of the links to come.
pub fn separate(output: &Path) -> Result<()> {
    // `-o /dev/null` asks only whether it links.
    if std::fs::metadata(output).is_ok_and(|metadata| !metadata.is_file()) {
        return Ok(());
    }
    let bytes = std::fs::read(output).context(|| output.display().to_string())?;
    let suffix = format!("{:016x}", crate::content_hash(&bytes));
    let separated = offload_object::separate_relocatable(&bytes, &suffix).context(|| output.display().to_string())?;
    let permissions = std::fs::metadata(output).context(|| output.display().to_string())?.permissions();
    temps::replace_file(output, &separated, Some(permissions))
}

/// Options under which linkers end well without an output of the name that the line gives, without their dashes.
const WITHOUT_OUTPUT: [&str; 8] = [
    "thinlto-index-only",
    "plugin-opt=thinlto-index-only",
    "lto-emit-",
    "plugin-opt=emit-",
    "print-output-format",
    "print-sysroot",
    "print-search-dirs",
    "help",
];

/// Whether a linker that ends well must have written the output, as far as the line tells.
fn writes_output(host: &HostCommand, options: &Options) -> bool {
    let without = |arg: &OsString| {
        let word = arg.as_bytes();
        let word = word.strip_prefix(b"-").map(|word| word.strip_prefix(b"-").unwrap_or(word)).or_else(|| word.strip_prefix(b"/"));
        word.is_some_and(|word| WITHOUT_OUTPUT.iter().any(|option| word.starts_with(option.as_bytes())))
    };
    // mold changes its directory by -C; who names no output of link.exe gets one that only the linker knows.
    options.directory.is_none() && host.output_index.is_some() && !host.argv.iter().any(without)
}

/// Whether a line is too long to be passed on as it is.
pub fn needs_response_file(args: &[OsString]) -> bool {
    args.iter().map(|arg| arg.len() + 1).sum::<usize>() > LONG_LINE
}

/// A line that the system would refuse goes through a response file.
fn shorten(linker: &HostLinker, args: Vec<OsString>, temps: &Temps) -> Result<CommandLine> {
    let mut command = CommandLine::new(&linker.path);
    // They allocate little from the heap; lld would take a megabyte more, and it is the largest process of a link.
    command.small_pages = matches!(linker.kind, LinkerKind::Lld | LinkerKind::Mold);
    if needs_response_file(&args) {
        let file = temps.write("host-link.rsp", &to_response_file(&args))?;
        let mut arg = OsString::from("@");
        arg.push(file);
        command.arg(arg);
    } else {
        command.args = args;
    }
    Ok(command)
}

/// Launch stubs of kernels with the same parameters are the same code: folded by `--icf=all`, one address would stand for two kernels. Where
/// the linker can be told to keep them apart and each can be named, these are the options; otherwise folding has to be restricted.
fn keep_stubs_apart(linker: &HostLinker, entries: &[Entry]) -> Option<Vec<OsString>> {
    let kernels = entries.iter().filter(|entry| entry.is_kernel);
    match linker.kind {
        LinkerKind::Gnu => Some(Vec::new()),
        LinkerKind::Lld | LinkerKind::Gold => {
            let mut stubs: Vec<&str> = kernels.map(|entry| entry.stub.as_deref()).collect::<Option<_>>()?;
            stubs.sort_unstable();
            stubs.dedup();
            Some(stubs.into_iter().map(|stub| OsString::from(format!("--keep-unique={stub}"))).collect())
        }
        LinkerKind::Mold => None,
    }
}

/// Replaces `--icf=all` by `--icf=safe`, which keeps functions apart whose address is taken. (mold does not let a later option win.)
fn restrict_folding(args: &mut [OsString]) {
    for index in 0..args.len() {
        let is = |i: usize, words: [&str; 2]| args.get(i).is_some_and(|arg| words.iter().any(|word| arg == word));
        if is(index, ["--icf=all", "-icf=all"]) {
            args[index] = "--icf=safe".into();
        } else if is(index, ["--icf", "-icf"]) && is(index + 1, ["all", "all"]) {
            args[index + 1] = "safe".into();
        }
    }
}

/// Takes a temporary out of the dependency file that the linker wrote: a build system would relink for ever to bring it back.
pub fn clean_dependency_file(path: &Path, temporaries: &[PathBuf]) -> Result<()> {
    let bytes = match std::fs::read(path) {
        Ok(bytes) => bytes,
        // Nobody wrote it: the linker has its reasons, and has said them.
        Err(_) => return Ok(()),
    };
    let cleaned = without(&bytes, temporaries);
    if cleaned != bytes {
        std::fs::write(path, cleaned).context(|| format!("{}: cannot be rewritten", path.display()))?;
    }
    Ok(())
}

/// A Makefile fragment without some of its prerequisites, and without the empty rules that linkers add for each of them.
fn without(makefile: &[u8], paths: &[PathBuf]) -> Vec<u8> {
    let paths: Vec<Vec<u8>> = paths.iter().map(|path| path.as_os_str().as_bytes().to_vec()).collect();
    let is_temporary = |word: &[u8]| paths.iter().any(|path| unescape(word) == *path);
    let mut lines: Vec<Vec<u8>> = Vec::new();
    let mut after_removed_rule = false;
    for line in makefile.split(|&b| b == b'\n') {
        let continued = line.ends_with(b"\\");
        let body = if continued { &line[..line.len() - 1] } else { line };
        if let Some(target) = body.strip_suffix(b":")
            && is_temporary(target)
        {
            after_removed_rule = true;
            continue;
        }
        if std::mem::take(&mut after_removed_rule) && line.is_empty() {
            continue;
        }
        let words = split_words(body);
        if !words.iter().any(|word| is_temporary(word)) {
            lines.push(line.to_vec());
            continue;
        }
        let kept: Vec<&[u8]> = words.into_iter().filter(|word| !is_temporary(word)).collect();
        if kept.is_empty() {
            // A line of its own: the one before must not continue into nothing if this was the last.
            if !continued && let Some(before) = lines.last_mut() {
                while before.last().is_some_and(|&b| b == b'\\' || b == b' ') {
                    before.pop();
                }
            }
            continue;
        }
        let indent: Vec<u8> = body.iter().copied().take_while(|&b| b == b' ' || b == b'\t').collect();
        let mut rebuilt = indent;
        rebuilt.extend(kept.join(&b' '));
        if continued {
            rebuilt.extend(b" \\");
        }
        lines.push(rebuilt);
    }
    lines.join(&b'\n')
}

/// Splits at blanks that no backslash escapes.
fn split_words(line: &[u8]) -> Vec<&[u8]> {
    let mut words = Vec::new();
    let mut start = None;
    let mut escaped = false;
    for (index, &b) in line.iter().enumerate() {
        if (b == b' ' || b == b'\t') && !escaped {
            if let Some(start) = start.take() {
                words.extend(line.get(start..index));
            }
        } else if start.is_none() {
            start = Some(index);
        }
        escaped = b == b'\\' && !escaped;
    }
    if let Some(start) = start {
        words.extend(line.get(start..));
    }
    words
}

/// Undoes Make's escapes.
fn unescape(word: &[u8]) -> Vec<u8> {
    let mut plain = Vec::with_capacity(word.len());
    let mut bytes = word.iter().copied().peekable();
    while let Some(b) = bytes.next() {
        match (b, bytes.peek()) {
            (b'\\', Some(b' ' | b'#' | b'\\' | b'\t')) => plain.extend(bytes.next()),
            (b'$', Some(b'$')) => plain.extend(bytes.next()),
            _ => plain.push(b),
        }
    }
    OsString::from_vec(plain).into_vec()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cleaned(text: &str) -> String {
        String::from_utf8(without(text.as_bytes(), &[PathBuf::from("/tmp/w-1/reg.o")])).unwrap()
    }

    #[test]
    fn dependency_files_lose_the_temporary() {
        for (before, after) in [
            // GNU ld
            ("k: \\\n  /tmp/w-1/reg.o \\\n  k.o \\\n  libc.so\n\n/tmp/w-1/reg.o:\n\nk.o:\n", "k: \\\n  k.o \\\n  libc.so\n\nk.o:\n"),
            // the temporary last
            ("k: \\\n  k.o \\\n  /tmp/w-1/reg.o\n\nk.o:\n\n/tmp/w-1/reg.o:\n", "k: \\\n  k.o\n\nk.o:\n"),
            // one line
            ("k: /tmp/w-1/reg.o k.o\n", "k: k.o\n"),
            ("k: k.o\n", "k: k.o\n"),
            // names that only begin alike
            ("k: /tmp/w-1/reg.o2 /tmp/w-1/reg.oo\n", "k: /tmp/w-1/reg.o2 /tmp/w-1/reg.oo\n"),
        ] {
            assert_eq!(cleaned(before), after, "{before}");
        }
    }

    #[test]
    fn escaped_names_are_recognised() {
        let path = PathBuf::from("/tmp/a b/reg.o");
        assert_eq!(without(b"k: /tmp/a\\ b/reg.o k.o\n", &[path]), b"k: k.o\n");
    }
}
