//! The scanner for link lines: `argv` and environment in, [`Options`] and [`HostCommand`] out.
//!
//! Why not clap: a link line has `-lfoo`, long options with one dash, options whose order among the inputs matters, and options of four
//! linkers that we do not own and must hand on untouched. So the scanner is a table ([`table`]) and a loop. What stands on the line and is
//! not ours goes to the host linker verbatim and in order, known or not.
//!
//! Called as `clang-linker-wrapper`, the wrapper's options are taken from anywhere on the line, as the LLVM 22 tool does. Called by any
//! other name, only `--warplink-*`, `--wrapper-*` and `--device-*` are ours: `--save-temps`, `-mllvm` or `--version` then mean what the
//! host linker says they mean.

mod device;
mod help;
mod link_exe;
mod own;
mod table;

use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};
use crate::options::{
    CacheOptions, ColorChoice, DeviceArg, DiagnosticsFormat, HostCommand, HostItem, Invocation, ItemKind, ItemState, Jobs, Options, Origin,
    Partition, ProgressChoice, PtxasMode, SearchDir,
};
use crate::response;
use help::is_always_ours;
pub use help::{HelpGroup, HelpLine, groups, help_text};
pub use own::{OWN_OPTIONS, OwnOption, near_word, variable};
use table::{Means, Row, Spelling, Table, WRAPPER_ROWS};

/// How the environment is asked.
pub type Env<'a> = &'a dyn Fn(&str) -> Option<OsString>;

/// A link line, understood.
#[derive(Debug, Clone)]
pub struct LinkLine {
    /// What steers the device link.
    pub options: Options,
    /// What the host linker gets.
    pub host: HostCommand,
    /// The line asks for something else than a link.
    pub special: Option<Special>,
}

/// What a line may ask for instead of a link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Special {
    /// `--help` or `--help-hidden` as the wrapper: our own help and nothing else.
    WrapperHelp {
        /// Show the options that users do not need.
        hidden: bool,
    },
    /// `--version` as the wrapper: our own version and nothing else.
    WrapperVersion,
    /// `--help` as a linker: our own options, then the host linker's own help, got by running it on the line as it is.
    LinkerHelp,
    /// `--version` as a linker: [`version_line`], then the host linker run on the line as it is.
    LinkerVersion,
}

/// The first line of `--version`. CMake, meson and libtool tell linkers by it and look for `GNU`.
pub fn version_line() -> String {
    format!("warplink {} (compatible with GNU ld)", env!("CARGO_PKG_VERSION"))
}

/// Understands a command line. `argv` includes the program's name.
///
/// # Errors
/// All values of our own options that make no sense, together; the host linker's options are for the host linker to complain about.
pub fn parse(argv: Vec<OsString>, env: Env<'_>) -> Result<LinkLine> {
    let mut argv = argv.into_iter();
    let program = argv.next().unwrap_or_default();
    let (args, had_response_file) = response::expand(argv.collect())?;
    let mut scanner = Scanner::new(program, env);
    scanner.host.had_response_file = had_response_file;
    scanner.scan(args);
    scanner.finish()
}

/// How a program of this name was meant to be called.
fn invocation(program: &OsStr) -> Invocation {
    let name = Path::new(program).file_name().unwrap_or(program).to_string_lossy().into_owned();
    // Distributions add a version behind and cross tools a triple before the name.
    if name.contains("clang-linker-wrapper") { Invocation::Wrapper } else { Invocation::Linker(name) }
}

/// Something for the device side, in the order of the line.
#[derive(Debug)]
enum DeviceEvent {
    Arg(DeviceArg),
    Ptxas(OsString),
}

struct Scanner {
    options: Options,
    host: HostCommand,
    special: Option<Special>,
    errors: Vec<Error>,
    state: ItemState,
    saved_states: Vec<ItemState>,
    next_group: u32,
    /// After `-b binary`: inputs are data, whatever is in them.
    raw_inputs: bool,
    /// `-Y` directories come after all of `-L`.
    late_search_dirs: Vec<SearchDir>,
    device: Vec<DeviceEvent>,
    wrapper_rows: HashMap<&'static str, &'static Row>,
    /// The wrapper drives link.exe: `/out:`, `/libpath:`, `/wholearchive`.
    link_exe: bool,
    /// What `LIB` holds: link.exe's directories.
    lib_dirs: Option<OsString>,
    /// Values from the environment that arguments for the device, which are digested last, still beat.
    weak: own::Weak,
    explicit_opt_level: bool,
}

impl Scanner {
    fn new(program: OsString, env: Env<'_>) -> Scanner {
        let mut scanner = Scanner {
            options: defaults(program),
            host: HostCommand::default(),
            special: None,
            errors: Vec::new(),
            state: ItemState::default(),
            saved_states: Vec::new(),
            next_group: 0,
            raw_inputs: false,
            late_search_dirs: Vec::new(),
            device: Vec::new(),
            wrapper_rows: HashMap::new(),
            link_exe: false,
            lib_dirs: env("LIB"),
            weak: own::Weak::default(),
            explicit_opt_level: false,
        };
        let wrapper = scanner.is_wrapper();
        let ours = |row: &&Row| wrapper || is_always_ours(row);
        scanner.wrapper_rows = WRAPPER_ROWS.iter().filter(ours).map(|row| (row.name, row)).collect();
        scanner.read_environment(env);
        scanner
    }

    fn is_wrapper(&self) -> bool {
        self.options.invoked_as == Invocation::Wrapper
    }

    fn scan(&mut self, args: Vec<OsString>) {
        self.link_exe = self.is_wrapper()
            && args.iter().any(|arg| arg.as_bytes().starts_with(b"--host-triple=") && contains(arg.as_bytes(), b"windows-msvc"));
        if self.link_exe {
            self.search_lib_dirs();
        }
        let mut args = args.into_iter().peekable();
        let mut only_inputs = false;
        while let Some(arg) = args.next() {
            if only_inputs || !arg.as_bytes().starts_with(b"-") || arg == "-" {
                if !(self.link_exe && self.link_exe_option(&arg)) {
                    self.input(&arg);
                }
                self.host.argv.push(arg);
                continue;
            }
            if arg == "--" {
                // The wrapper's own usage text puts it before the host line, where ld would take all that follows for inputs.
                if !self.is_wrapper() {
                    only_inputs = true;
                    self.host.argv.push(arg);
                }
                continue;
            }
            let mut arg = arg;
            while let Some(rest) = args.next_if(|next| own::goes_on(&arg, next)) {
                arg.push(",");
                arg.push(rest);
            }
            let text = arg.to_string_lossy();
            let body = text.trim_start_matches('-');
            let dashes = text.len() - body.len();
            if dashes > 2 || body.is_empty() {
                self.host.argv.push(arg);
                continue;
            }
            if body.starts_with("warplink-") {
                self.own_option(&arg);
                continue;
            }
            if let Some((row, joined)) = self.wrapper_row(body, dashes) {
                let value = match row.spelling {
                    Spelling::Separate => args.next(),
                    Spelling::Joined => Some(value_of(&arg, joined.unwrap_or_default())),
                    _ => None,
                };
                let value = value.unwrap_or_default();
                if let Err(text) = self.wrapper_option(row.means, &value) {
                    let name = row.name.trim_end_matches('=');
                    self.errors.push(Error::new(format!("--{name}={}: {text}", value.display())));
                }
                continue;
            }
            if self.link_exe && self.link_exe_option(&arg) {
                self.host.argv.push(arg);
                continue;
            }
            let Some((row, joined)) = Table::host().find(body, dashes) else {
                self.host.argv.push(arg);
                continue;
            };
            let joined = joined.map(|joined| value_of(&arg, joined));
            let takes_next = joined.is_none()
                && match row.spelling {
                    Spelling::Value | Spelling::Separate | Spelling::Short => true,
                    Spelling::Number => args.peek().is_some_and(|next| is_number(next)),
                    Spelling::Words(words) => args.peek().is_some_and(|next| words.iter().any(|word| next == word)),
                    Spelling::Flag | Spelling::Optional | Spelling::Joined => false,
                };
            self.host.argv.push(arg);
            let value = if takes_next { args.next() } else { joined };
            if takes_next && let Some(value) = &value {
                self.host.argv.push(value.clone());
            }
            self.host_option(row.means, value);
        }
    }

    fn wrapper_row<'a>(&self, body: &'a str, dashes: usize) -> Option<(&'static Row, Option<&'a str>)> {
        let split = body.find('=').map_or(body.len(), |at| at + 1);
        let (name, value) = body.split_at(split);
        let row = *self.wrapper_rows.get(name)?;
        let allowed = match row.dashes {
            table::Dashes::One => dashes == 1,
            table::Dashes::Two => dashes == 2,
            table::Dashes::Either => true,
        };
        allowed.then_some((row, Some(value)))
    }

    /// Takes down an input that is about to be pushed.
    fn input(&mut self, name: &OsStr) {
        if !self.raw_inputs {
            self.item(self.host.argv.len(), ItemKind::Input(PathBuf::from(name)));
        }
    }

    fn item(&mut self, position: usize, kind: ItemKind) {
        self.host.items.push(HostItem { position, kind, state: self.state });
    }

    /// An option of the host linker, which has been pushed already, with its value.
    fn host_option(&mut self, means: Means, value: Option<OsString>) {
        let position = self.host.argv.len() - 1;
        let o = &mut self.options;
        let given = value.is_some();
        let value = value.unwrap_or_default();
        let text = || value.to_string_lossy().into_owned();
        match means {
            Means::Output if given => {
                o.output = PathBuf::from(&value);
                self.host.output_index = Some(position);
            }
            Means::Relocatable => {
                o.relocatable = true;
                // No linker takes shared objects into a relocatable file; GNU ld stops looking for them.
                self.state.static_only = true;
            }
            Means::Shared => o.shared = true,
            Means::SharedUnlessNumber => o.shared |= !given,
            Means::Pie(on) => o.pie = on,
            Means::Sysroot => o.sysroot = Some(PathBuf::from(&value)),
            Means::Emulation => o.emulation = Some(text()),
            Means::NoStdlib => o.nostdlib = true,
            Means::Directory => o.directory = Some(PathBuf::from(&value)),
            Means::SearchDir => self.host.search_dirs.push(SearchDir { path: PathBuf::from(&value) }),
            Means::SearchPath => {
                let bytes = value.as_bytes();
                let dirs = bytes.strip_prefix(b"P,").unwrap_or(bytes).split(|&byte| byte == b':').filter(|dir| !dir.is_empty());
                self.late_search_dirs.extend(dirs.map(|dir| SearchDir { path: PathBuf::from(OsStr::from_bytes(dir)) }));
            }
            Means::Library if !value.is_empty() => {
                let kind = match value.as_bytes().strip_prefix(b":") {
                    Some(file) => ItemKind::LibraryFile(OsStr::from_bytes(file).to_owned()),
                    None => ItemKind::Library(value),
                };
                self.item(position, kind);
            }
            Means::Script if given => self.item(position, ItemKind::Script(PathBuf::from(&value))),
            Means::InputFormat => self.raw_inputs = value == "binary",
            Means::WholeArchive(on) => self.state.whole_archive = on,
            Means::Static(on) => {
                self.state.static_only = on;
            }
            Means::StartLib => self.state.start_lib = Some(self.fresh_number()),
            Means::EndLib => self.state.start_lib = None,
            Means::StartGroup => self.state.group = Some(self.fresh_number()),
            Means::EndGroup => self.state.group = None,
            Means::AsNeeded(on) => self.state.as_needed = on,
            Means::PushState => self.saved_states.push(self.state),
            Means::PopState => {
                if let Some(saved) = self.saved_states.pop() {
                    // Groups and lists are brackets, not flags: popping leaves them as they are.
                    self.state = ItemState { start_lib: self.state.start_lib, group: self.state.group, ..saved };
                }
            }
            Means::Demangle(on) => o.demangle = on,
            Means::FatalWarnings(on) => o.fatal_warnings = on,
            Means::NoWarnings => o.no_warnings = true,
            Means::MultipleDefinition(on) => o.allow_multiple_definition = on,
            Means::Keyword if value == "muldefs" => o.allow_multiple_definition = true,
            Means::GcSections(on) => o.gc_sections = on,
            Means::Icf => o.icf = Some(text()),
            Means::NoIcf => o.icf = None,
            Means::DependencyFile if given => o.dependency_file = Some(PathBuf::from(&value)),
            Means::MapFile if given => o.map_file = Some(PathBuf::from(&value)),
            Means::Undefined if given => o.undefined.push(text()),
            Means::Entry if given => o.entry = Some(text()),
            Means::Init if given => o.init = Some(text()),
            Means::Fini if given => o.fini = Some(text()),
            Means::Wrap if given => o.wrap_symbols.push(text()),
            Means::Defsym => {
                if let Some((name, expression)) = text().split_once('=') {
                    o.defsyms.push((name.trim().to_owned(), expression.trim().to_owned()));
                    o.defsym_positions.push(position);
                }
            }
            Means::FortranCommon(on) => o.fortran_common = on,
            Means::Color => {
                o.color = match value.as_bytes() {
                    b"always" | b"" => Some(ColorChoice::Always),
                    b"never" => Some(ColorChoice::Never),
                    b"auto" => Some(ColorChoice::Auto),
                    _ => o.color,
                }
            }
            Means::NoColor => o.color = Some(ColorChoice::Never),
            Means::Announce => o.announce_version = true,
            Means::Version => {
                self.special = Some(match o.invoked_as {
                    Invocation::Wrapper => Special::WrapperVersion,
                    Invocation::Linker(_) => Special::LinkerVersion,
                })
            }
            Means::Help => {
                self.special = Some(match o.invoked_as {
                    Invocation::Wrapper => Special::WrapperHelp { hidden: false },
                    Invocation::Linker(_) => Special::LinkerHelp,
                })
            }
            _ => {}
        }
    }

    fn fresh_number(&mut self) -> u32 {
        self.next_group += 1;
        self.next_group
    }

    /// An option of clang-linker-wrapper. The text of an error names the value's fault only.
    fn wrapper_option(&mut self, means: Means, value: &OsStr) -> std::result::Result<(), String> {
        let o = &mut self.options;
        match means {
            Means::HelpHidden => self.special = Some(Special::WrapperHelp { hidden: true }),
            Means::LinkerPath => own::set(&mut o.linker, &mut self.weak.linker, value.to_owned()),
            Means::CudaPath => own::set(&mut o.cuda_path, &mut self.weak.cuda_path, PathBuf::from(value)),
            Means::HostTriple => o.host_triple = Some(own::utf8(value)?.to_owned()),
            Means::DeviceLinker => self.device_arg(Origin::Linker, value),
            Means::DeviceCompiler => self.device_arg(Origin::Compiler, value),
            Means::LinkerArg => self.unlimited_device_arg(Origin::Linker, value),
            Means::CompilerArg => self.unlimited_device_arg(Origin::Compiler, value),
            Means::DryRun => o.dry_run = true,
            Means::Verbose => {
                o.verbose = true;
                o.all_commands = true;
            }
            Means::EmbedBitcode => o.embed_bitcode = true,
            Means::PrintWrappedModule => o.print_wrapped_module = true,
            Means::SaveTemps => o.save_temps = true,
            Means::Compress => o.compress = Some(true),
            Means::CompressionLevel => {
                o.compression_level = Some(own::number(value)?);
            }
            Means::TimeTrace => o.time_trace = Some(PathBuf::from(value)),
            Means::TimeTraceGranularity => o.time_trace_granularity = own::number(value)?,
            Means::Jobs => o.jobs = own::jobs(value)?,
            Means::OverrideImage => {
                let (kind, file) = own::utf8(value)?.split_once('=').ok_or("expected KIND=FILE")?;
                o.override_image.push((kind.to_owned(), PathBuf::from(file)));
            }
            Means::EmitFatbinOnly => o.emit_fatbin_only = true,
            Means::ShouldExtract => o.should_extract.push(own::utf8(value)?.to_owned()),
            Means::Mllvm => o.mllvm.push(own::utf8(value)?.to_owned()),
            _ => {}
        }
        Ok(())
    }

    /// Splits `TRIPLE=ARG` off, if what stands before the first `=` is a triple.
    fn device_arg(&mut self, origin: Origin, value: &OsStr) {
        let bytes = value.as_bytes();
        let split = bytes.iter().position(|&byte| byte == b'=');
        let (triple, value) = match split {
            Some(at) if device::is_triple(&bytes[..at]) => {
                let triple = String::from_utf8_lossy(&bytes[..at]).into_owned();
                (Some(triple), OsStr::from_bytes(&bytes[at + 1..]))
            }
            _ => (None, value),
        };
        self.device.push(DeviceEvent::Arg(DeviceArg { origin, triple, value: value.to_owned() }));
    }

    fn unlimited_device_arg(&mut self, origin: Origin, value: &OsStr) {
        self.device.push(DeviceEvent::Arg(DeviceArg { origin, triple: None, value: value.to_owned() }));
    }

    fn finish(mut self) -> Result<LinkLine> {
        self.options.static_link = self.state.static_only && !self.options.relocatable;
        self.host.search_dirs.append(&mut self.late_search_dirs);
        let own_opt_level = self.options.opt_level.filter(|_| self.explicit_opt_level);
        let events = std::mem::take(&mut self.device);
        let digest = device::digest(&events, &mut self.options);
        if let Some(level) = digest.opt_level {
            self.options.opt_level = Some(level);
        }
        if own_opt_level.is_some() {
            self.options.opt_level = own_opt_level;
        }
        self.options.device_debug = digest.debug(self.options.opt_level);
        for (path, found, weak) in [
            (&mut self.options.cuda_path, digest.cuda_path, self.weak.cuda_path),
            (&mut self.options.ptxas_path, digest.ptxas_path, self.weak.ptxas_path),
        ] {
            if (path.is_none() || weak) && found.is_some() {
                *path = found;
            }
        }
        self.errors.extend(digest.errors);
        self.options.device_args = events
            .into_iter()
            .filter_map(|event| match event {
                DeviceEvent::Arg(arg) => Some(arg),
                DeviceEvent::Ptxas(_) => None,
            })
            .collect();
        // A question about us is answered even if something else on the line is wrong.
        if self.special.is_none() {
            Error::all(self.errors.into_iter().map(|error| error.named("bad-option")))?;
        }
        Ok(LinkLine { options: self.options, host: self.host, special: self.special })
    }
}

fn defaults(program: OsString) -> Options {
    Options {
        invoked_as: invocation(&program),
        program,
        output: PathBuf::from("a.out"),
        relocatable: false,
        shared: false,
        static_link: false,
        pie: false,
        host_triple: None,
        sysroot: None,
        emulation: None,
        nostdlib: false,
        directory: None,
        cuda_path: None,
        ptxas_path: None,
        linker: None,
        should_extract: Vec::new(),
        device_args: Vec::new(),
        opt_level: None,
        ptxas_args: Vec::new(),
        device_debug: None,
        device_undefined: Vec::new(),
        device_libs: Vec::new(),
        nvlink_args: Vec::new(),
        mllvm: Vec::new(),
        lto: None,
        lto_partitions: None,
        lto_jobs: None,
        device_features: Vec::new(),
        remarks: Vec::new(),
        device_verbose: false,
        device_emit: None,
        dry_run: false,
        verbose: false,
        all_commands: false,
        save_temps: false,
        print_wrapped_module: false,
        embed_bitcode: false,
        emit_fatbin_only: false,
        override_image: Vec::new(),
        compress: None,
        compression_level: None,
        compress_mode: None,
        jobs: Jobs::Default,
        max_memory: None,
        time_trace: None,
        // LLVM's own default.
        time_trace_granularity: 500,
        report: None,
        stats: false,
        record: true,
        ptx: None,
        kernels: Vec::new(),
        partition: Partition::Auto,
        launch_guard: None,
        ptxas_mode: PtxasMode::Auto,
        demangle: true,
        fatal_warnings: false,
        no_warnings: false,
        allow_multiple_definition: false,
        gc_sections: false,
        icf: None,
        dependency_file: None,
        map_file: None,
        undefined: Vec::new(),
        entry: None,
        init: None,
        fini: None,
        wrap_symbols: Vec::new(),
        defsyms: Vec::new(),
        defsym_positions: Vec::new(),
        fortran_common: false,
        color: None,
        progress: ProgressChoice::Auto,
        warnings: Vec::new(),
        repro: None,
        repro_on_crash: true,
        tool_timeout: None,
        tool_env: Vec::new(),
        diagnostics: DiagnosticsFormat::default(),
        announce_version: false,
        cache: CacheOptions::default(),
    }
}

/// The bytes of `arg` that `value`, the end of its lossy text, stands for: file names need not be UTF-8.
fn value_of(arg: &OsStr, value: &str) -> OsString {
    let bytes = arg.as_bytes();
    match bytes.len().checked_sub(value.len()) {
        Some(start) if bytes[start..] == *value.as_bytes() => OsString::from_vec(bytes[start..].to_vec()),
        // Not UTF-8 in the value: what comes before it is an option's name, hence ASCII, and as long in bytes as in text.
        _ => {
            let name = arg.to_string_lossy().len() - value.len();
            OsString::from_vec(bytes.get(name..).unwrap_or_default().to_vec())
        }
    }
}

fn is_number(word: &OsStr) -> bool {
    !word.is_empty() && word.as_bytes().iter().all(u8::is_ascii_digit)
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}
