//! The options of the host linkers and of clang-linker-wrapper, as a table: how each is spelled, who may see it, what it means to us.
//!
//! Sources: `--help` of GNU ld 2.40, gold 1.16, mold 1.10 and lld 22, lld's `Options.td`, and `clang-linker-wrapper --help-hidden` of LLVM 22.
//! The table holds every option that takes its value from the next word, because a value must never be taken for an input, and every
//! flag that means something to us. Flags that mean nothing to us need no row: what is not known is passed on.

use std::collections::HashMap;
use std::sync::OnceLock;

use Dashes::{Either, One, Two};
use Means as M;
use Spelling::{Flag, Joined, Number, Optional, Separate, Short, Value, Words};

/// One option.
#[derive(Debug)]
pub(super) struct Row {
    /// Without dashes and without `=`.
    pub(super) name: &'static str,
    pub(super) spelling: Spelling,
    pub(super) dashes: Dashes,
    pub(super) means: Means,
    /// Name of the value and what the option does, for options of the wrapper.
    pub(super) help: (&'static str, &'static str),
}

/// How an option and its value are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Spelling {
    /// `--name`
    Flag,
    /// `--name=V`, `--name V`
    Value,
    /// `-name V` and nothing else.
    Separate,
    /// One letter: `-nV`, `-n V`, `-n=V` being the value `=V`.
    Short,
    /// `--name` or `--name=V`; the next word is never its value.
    Optional,
    /// `--nameV`, where the name often ends in `=`.
    Joined,
    /// Linkers do not agree whether the next word belongs to it: it does if it is a number.
    Number,
    /// The same, if it is one of these words.
    Words(&'static [&'static str]),
}

/// With how many dashes the option is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Dashes {
    One,
    Two,
    Either,
}

/// What an option means to us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Means {
    Nothing,
    Output,
    Relocatable,
    Shared,
    /// `-G`: shared when no size follows.
    SharedUnlessNumber,
    Pie(bool),
    Sysroot,
    Emulation,
    NoStdlib,
    Directory,
    SearchDir,
    /// `-Y`: colon-separated directories.
    SearchPath,
    Library,
    Script,
    InputFormat,
    WholeArchive(bool),
    Static(bool),
    StartLib,
    EndLib,
    StartGroup,
    EndGroup,
    AsNeeded(bool),
    PushState,
    PopState,
    Demangle(bool),
    FatalWarnings(bool),
    NoWarnings,
    MultipleDefinition(bool),
    Keyword,
    GcSections(bool),
    Icf,
    NoIcf,
    DependencyFile,
    MapFile,
    Undefined,
    Entry,
    Init,
    Fini,
    Wrap,
    Defsym,
    FortranCommon(bool),
    Color,
    NoColor,
    Announce,
    Version,
    Help,
    // clang-linker-wrapper's own
    HelpHidden,
    LinkerPath,
    CudaPath,
    HostTriple,
    DeviceLinker,
    DeviceCompiler,
    LinkerArg,
    CompilerArg,
    DryRun,
    Verbose,
    EmbedBitcode,
    PrintWrappedModule,
    SaveTemps,
    Compress,
    CompressionLevel,
    TimeTrace,
    TimeTraceGranularity,
    Jobs,
    OverrideImage,
    EmitFatbinOnly,
    ShouldExtract,
    Mllvm,
}

const fn row(name: &'static str, spelling: Spelling, dashes: Dashes, means: Means) -> Row {
    Row { name, spelling, dashes, means, help: ("", "") }
}

/// An option of the wrapper, with the name of its value and its line of help.
const fn own(name: &'static str, spelling: Spelling, dashes: Dashes, means: Means, help: (&'static str, &'static str)) -> Row {
    Row { name, spelling, dashes, means, help }
}

/// A host option whose value we need not know, only skip.
const fn skip(name: &'static str, spelling: Spelling, dashes: Dashes) -> Row {
    row(name, spelling, dashes, M::Nothing)
}

/// clang-linker-wrapper's own options: ours when we are called by that name, and never seen by the host linker then. Another
/// invocation leaves them to the host linker, except for those that start with `wrapper-` and `device-`: no linker will ever own these.
pub(super) const WRAPPER_ROWS: &[Row] = &[
    own("linker-path=", Joined, Two, M::LinkerPath, ("<path>", "the host linker to run")),
    own("cuda-path=", Joined, Two, M::CudaPath, ("<dir>", "the CUDA toolkit")),
    own("host-triple=", Joined, Two, M::HostTriple, ("<triple>", "the triple of the host code")),
    own("device-linker=", Joined, Two, M::DeviceLinker, ("<value> or <triple>=<value>", "an argument for the device linker")),
    own("device-compiler=", Joined, Two, M::DeviceCompiler, ("<value> or <triple>=<value>", "an argument for the device compiler")),
    own("dry-run", Flag, Two, M::DryRun, ("", "print the commands and run none")),
    own("wrapper-verbose", Flag, Two, M::Verbose, ("", "print every command")),
    own("embed-bitcode", Flag, Two, M::EmbedBitcode, ("", "embed the linked bitcode instead of an image")),
    own("print-wrapped-module", Flag, Two, M::PrintWrappedModule, ("", "print the registration module")),
    own("save-temps", Flag, Two, M::SaveTemps, ("", "keep intermediate files")),
    own("compress", Flag, Two, M::Compress, ("", "compress the fat binary")),
    own("compression-level=", Joined, Two, M::CompressionLevel, ("<n>", "the level of that compression")),
    own("wrapper-time-trace=", Joined, Two, M::TimeTrace, ("<file>", "write a time trace")),
    own(
        "wrapper-time-trace-granularity=",
        Joined,
        Two,
        M::TimeTraceGranularity,
        ("<n>", "shortest time in microseconds that the trace shows"),
    ),
    own("wrapper-jobs=", Joined, Two, M::Jobs, ("<n or jobserver>", "how many device links run at once")),
    own("override-image=", Joined, Two, M::OverrideImage, ("<kind>=<file>", "take the file for the result of the device link")),
    own("emit-fatbin-only", Flag, Two, M::EmitFatbinOnly, ("", "write the fat binary and link nothing")),
    own(
        "should-extract=",
        Joined,
        Two,
        M::ShouldExtract,
        ("<arch>", "link device code for this architecture from archives even if no object has it"),
    ),
    own("mllvm", Separate, One, M::Mllvm, ("<arg>", "an option for LLVM")),
    own("offload-opt=", Joined, Either, M::Mllvm, ("<arg>", "an option for LLVM")),
    row("help-hidden", Flag, Two, M::HelpHidden),
    // Arguments that the peer gives to itself for each image. From a user they can only be leftovers of a copied line.
    row("arch=", Joined, Two, M::Nothing),
    row("triple=", Joined, Two, M::Nothing),
    row("whole-program", Flag, Two, M::Nothing),
    row("linker-arg=", Joined, Two, M::LinkerArg),
    row("compiler-arg=", Joined, Two, M::CompilerArg),
];

pub(super) const HOST_ROWS: &[Row] = &[
    // The output
    row("o", Short, One, M::Output),
    row("output", Value, Two, M::Output),
    row("r", Flag, One, M::Relocatable),
    row("i", Flag, One, M::Relocatable),
    row("Ur", Flag, One, M::Relocatable),
    row("relocatable", Flag, Either, M::Relocatable),
    row("shared", Flag, Either, M::Shared),
    row("Bshareable", Flag, Either, M::Shared),
    row("G", Number, One, M::SharedUnlessNumber),
    row("gpsize", Value, Either, M::Nothing),
    row("pie", Flag, Either, M::Pie(true)),
    row("pic-executable", Flag, Either, M::Pie(true)),
    row("no-pie", Flag, Either, M::Pie(false)),
    row("no-pic-executable", Flag, Either, M::Pie(false)),
    row("dependency-file", Value, Either, M::DependencyFile),
    row("Map", Value, Either, M::MapFile),
    row("m", Short, One, M::Emulation),
    // Inputs and where they are found
    row("l", Short, One, M::Library),
    row("library", Value, Either, M::Library),
    row("L", Short, One, M::SearchDir),
    row("library-path", Value, Either, M::SearchDir),
    row("Y", Short, One, M::SearchPath),
    row("sysroot", Value, Either, M::Sysroot),
    row("nostdlib", Flag, Either, M::NoStdlib),
    row("C", Short, One, M::Directory),
    row("directory", Value, Either, M::Directory),
    row("chroot", Value, Either, M::Nothing),
    row("T", Short, One, M::Script),
    row("script", Value, Either, M::Script),
    row("dT", Separate, One, M::Script),
    row("default-script", Value, Either, M::Script),
    row("b", Short, One, M::InputFormat),
    row("format", Value, Either, M::InputFormat),
    row("Bstatic", Flag, Either, M::Static(true)),
    row("dn", Flag, Either, M::Static(true)),
    row("non_shared", Flag, Either, M::Static(true)),
    row("static", Flag, Either, M::Static(true)),
    row("n", Flag, One, M::Static(true)),
    row("nmagic", Flag, Either, M::Static(true)),
    row("N", Flag, One, M::Static(true)),
    row("omagic", Flag, Two, M::Static(true)),
    row("Bdynamic", Flag, Either, M::Static(false)),
    row("dy", Flag, Either, M::Static(false)),
    row("call_shared", Flag, Either, M::Static(false)),
    row("whole-archive", Flag, Either, M::WholeArchive(true)),
    row("no-whole-archive", Flag, Either, M::WholeArchive(false)),
    row("as-needed", Flag, Either, M::AsNeeded(true)),
    row("no-as-needed", Flag, Either, M::AsNeeded(false)),
    row("push-state", Flag, Either, M::PushState),
    row("pop-state", Flag, Either, M::PopState),
    row("start-group", Flag, Either, M::StartGroup),
    row("(", Flag, One, M::StartGroup),
    row("end-group", Flag, Either, M::EndGroup),
    row(")", Flag, One, M::EndGroup),
    // Symbols
    row("u", Short, One, M::Undefined),
    row("undefined", Value, Either, M::Undefined),
    row("require-defined", Value, Either, M::Undefined),
    row("e", Short, One, M::Entry),
    row("entry", Value, Either, M::Entry),
    row("init", Value, Either, M::Init),
    row("fini", Value, Either, M::Fini),
    row("wrap", Value, Either, M::Wrap),
    row("defsym", Value, Either, M::Defsym),
    row("allow-multiple-definition", Flag, Either, M::MultipleDefinition(true)),
    row("no-allow-multiple-definition", Flag, Either, M::MultipleDefinition(false)),
    row("z", Short, One, M::Keyword),
    row("gc-sections", Flag, Either, M::GcSections(true)),
    row("no-gc-sections", Flag, Either, M::GcSections(false)),
    row("icf", Words(&["none", "all", "safe"]), Either, M::Icf),
    // Messages
    row("demangle", Optional, Either, M::Demangle(true)),
    row("no-demangle", Flag, Either, M::Demangle(false)),
    row("fatal-warnings", Flag, Either, M::FatalWarnings(true)),
    row("no-fatal-warnings", Flag, Either, M::FatalWarnings(false)),
    row("w", Flag, One, M::NoWarnings),
    row("no-warnings", Flag, Either, M::NoWarnings),
    row("v", Flag, One, M::Announce),
    row("V", Flag, One, M::Announce),
    row("version", Flag, Either, M::Version),
    row("help", Flag, Either, M::Help),
    // Flags whose names are beginnings of names with a value
    skip("trace", Flag, Either),
    skip("export-dynamic", Flag, Either),
    skip("build-id", Optional, Either),
    // One-letter options with a value that means nothing to us
    skip("a", Short, One),
    skip("A", Short, One),
    skip("c", Short, One),
    skip("f", Short, One),
    skip("F", Short, One),
    skip("h", Short, One),
    skip("I", Short, One),
    skip("O", Number, One),
    skip("P", Short, One),
    skip("R", Short, One),
    skip("y", Short, One),
    // Long options with a value that means nothing to us, GNU ld and gold
    skip("architecture", Value, Either),
    skip("assert", Value, Either),
    skip("audit", Value, Either),
    skip("auxiliary", Value, Either),
    skip("build-id-chunk-size-for-treehash", Value, Either),
    skip("build-id-min-file-size-for-treehash", Value, Either),
    skip("compress-debug-sections", Value, Either),
    skip("ctf-share-types", Value, Either),
    skip("depaudit", Value, Either),
    skip("dynamic-linker", Value, Either),
    skip("dynamic-list", Value, Either),
    skip("error-handling-script", Value, Either),
    skip("exclude-libs", Value, Either),
    skip("export-dynamic-symbol", Value, Either),
    skip("export-dynamic-symbol-list", Value, Either),
    skip("filter", Value, Either),
    skip("flto-partition", Value, Either),
    skip("fuse-ld", Value, Either),
    skip("hash-bucket-empty-fraction", Value, Either),
    skip("hash-size", Value, Either),
    skip("hash-style", Value, Either),
    skip("icf-iterations", Value, Either),
    skip("ignore-unresolved-symbol", Value, Either),
    skip("incremental-base", Value, Either),
    skip("incremental-patch", Value, Either),
    skip("just-symbols", Value, Either),
    skip("keep-unique", Value, Either),
    skip("max-cache-size", Value, Either),
    skip("mri-script", Value, Either),
    skip("oformat", Value, Two),
    skip("optimize", Number, Two),
    skip("orphan-handling", Value, Two),
    skip("out-implib", Value, Two),
    skip("plugin", Value, Either),
    skip("plugin-opt", Value, Either),
    skip("print-symbol-counts", Value, Either),
    skip("retain-symbols-file", Value, Either),
    skip("rpath", Value, Either),
    skip("rpath-link", Value, Either),
    skip("section-ordering-file", Value, Either),
    skip("section-start", Value, Either),
    skip("soname", Value, Either),
    skip("sort-section", Words(&["none", "name", "alignment"]), Either),
    skip("spare-dynamic-tags", Value, Either),
    skip("split-stack-adjust-size", Value, Either),
    skip("stub-group-size", Value, Either),
    skip("target2", Value, Either),
    skip("task-link", Value, Either),
    skip("Tbss", Value, Either),
    skip("Tdata", Value, Either),
    skip("thread-count", Value, Either),
    skip("thread-count-final", Value, Either),
    skip("thread-count-initial", Value, Either),
    skip("thread-count-middle", Value, Either),
    skip("Tldata-segment", Value, Either),
    skip("trace-symbol", Value, Either),
    skip("Trodata-segment", Value, Either),
    skip("Ttext", Value, Either),
    skip("Ttext-segment", Value, Either),
    skip("unresolved-symbols", Value, Either),
    skip("version-exports-section", Value, Either),
    skip("version-script", Value, Either),
    // GNU ld for AArch64, Arm, PowerPC, MIPS, PE
    skip("base_file", Value, Either),
    skip("bank-window", Value, Either),
    skip("dll-search-prefix", Value, Either),
    skip("exclude-modules-for-implib", Value, Either),
    skip("exclude-symbols", Value, Either),
    skip("file-alignment", Value, Either),
    skip("heap", Value, Either),
    skip("image-base", Value, Either),
    skip("in-implib", Value, Either),
    skip("major-image-version", Value, Either),
    skip("major-os-version", Value, Either),
    skip("major-subsystem-version", Value, Either),
    skip("minor-image-version", Value, Either),
    skip("minor-os-version", Value, Either),
    skip("minor-subsystem-version", Value, Either),
    skip("output-def", Value, Two),
    skip("section-alignment", Value, Either),
    skip("stack", Value, Either),
    skip("subsystem", Value, Either),
    skip("thumb-entry", Value, Either),
    skip("vfp11-denorm-fix", Value, Either),
];

/// Options of lld, gold and mold that GNU ld does not have. No other linker completes names, and a beginning of one of these may be a flag.
pub(super) const LLD_ROWS: &[Row] = &[
    skip("rosegment-gap", Value, Either),
    skip("debug", Value, Either),
    skip("threads", Number, Either),
    row("end-lib", Flag, Either, M::EndLib),
    row("start-lib", Flag, Either, M::StartLib),
    row("no-icf", Flag, Either, M::NoIcf),
    row("no-color-diagnostics", Flag, Two, M::NoColor),
    row("color-diagnostics", Optional, Two, M::Color),
    row("no-fortran-common", Flag, Two, M::FortranCommon(false)),
    row("fortran-common", Flag, Two, M::FortranCommon(true)),
    skip("android-memtag-mode", Value, Two),
    skip("bp-compression-sort-section", Value, Two),
    skip("call-graph-ordering-file", Value, Either),
    skip("compress-sections", Value, Two),
    skip("error-limit", Value, Two),
    skip("irpgo-profile", Value, Two),
    skip("load-pass-plugin", Value, Two),
    skip("lto-known-safe-vtables", Value, Two),
    skip("mips-got-size", Value, Either),
    skip("mllvm", Value, Either),
    skip("opt-remarks-filename", Value, Two),
    skip("opt-remarks-format", Value, Two),
    skip("opt-remarks-hotness-threshold", Value, Two),
    skip("opt-remarks-passes", Value, Two),
    skip("pack-dyn-relocs", Value, Two),
    skip("print-symbol-order", Value, Either),
    skip("remap-inputs", Value, Two),
    skip("reproduce", Value, Two),
    skip("rsp-quoting", Value, Two),
    // A value of its own in lld, never in mold. As a word of its own it has a `=` in it and names no file.
    skip("shuffle-sections", Optional, Two),
    skip("symbol-ordering-file", Value, Two),
    skip("thinlto-cache-policy", Value, Two),
    skip("thinlto-distributor", Value, Two),
    skip("thinlto-distributor-arg", Value, Two),
    skip("thinlto-remote-compiler", Value, Two),
    skip("thinlto-remote-compiler-arg", Value, Two),
    skip("thinlto-remote-compiler-prepend-arg", Value, Two),
    skip("time-trace-granularity", Value, Two),
    skip("undefined-glob", Value, Two),
    skip("warn-backrefs-exclude", Value, Two),
    skip("why-live", Value, Two),
];

/// The rows by name.
pub(super) struct Table {
    rows: HashMap<&'static str, &'static Row>,
}

impl Table {
    /// The host linkers' options.
    pub(super) fn host() -> &'static Table {
        static TABLE: OnceLock<Table> = OnceLock::new();
        TABLE.get_or_init(|| Table { rows: HOST_ROWS.iter().chain(LLD_ROWS).map(|row| (row.name, row)).collect() })
    }

    /// The row of exactly this name, if it may be written with so many dashes.
    fn exact(&self, name: &str, dashes: usize) -> Option<&'static Row> {
        let row = *self.rows.get(name)?;
        let allowed = match row.dashes {
            Dashes::One => dashes == 1,
            Dashes::Two => dashes == 2,
            Dashes::Either => true,
        };
        allowed.then_some(row)
    }

    /// Finds what `body`, an option without its dashes, is. The second part is the value that is in the same word.
    ///
    /// As in all four linkers a long name is tried first, then a letter with the value behind it; GNU ld also takes beginnings of long
    /// names that only one option has.
    pub(super) fn find<'a>(&self, body: &'a str, dashes: usize) -> Option<(&'static Row, Option<&'a str>)> {
        let (name, value) = match body.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (body, None),
        };
        if let Some(row) = self.exact(name, dashes) {
            match (row.spelling, value) {
                (Flag | Separate | Short, Some(_)) | (Joined, _) => {}
                (_, value) => return Some((row, value)),
            }
        }
        if dashes == 1 {
            let mut chars = body.chars();
            let letter = chars.next()?;
            let rest = chars.as_str();
            if let Some(row) = self.exact(&body[..letter.len_utf8()], 1)
                && matches!(row.spelling, Short | Number)
                && !rest.is_empty()
            {
                return Some((row, Some(rest)));
            }
        }
        self.abbreviated(name, dashes).map(|row| (row, value))
    }

    /// The one option with a value whose name starts with `name`, as GNU ld completes names.
    fn abbreviated(&self, name: &str, dashes: usize) -> Option<&'static Row> {
        const SHORTEST: usize = 4;
        if name.len() < SHORTEST {
            return None;
        }
        let mut found = HOST_ROWS.iter().filter(|row| {
            row.name.len() > name.len() && row.name.starts_with(name) && (row.dashes == Either || (row.dashes == Two && dashes == 2))
        });
        match (found.next(), found.next()) {
            (Some(row), None) => Some(row),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_name_stands_in_the_table_twice() {
        let wrapper: Vec<_> = WRAPPER_ROWS.iter().map(|row| row.name).collect();
        let host = HOST_ROWS.iter().chain(LLD_ROWS).map(|row| row.name).collect();
        for mut names in [host, wrapper] {
            names.sort_unstable();
            let count = names.len();
            names.dedup();
            assert_eq!(names.len(), count);
        }
    }

    #[test]
    fn one_letter_names_take_one_dash() {
        for row in HOST_ROWS.iter().chain(LLD_ROWS).filter(|row| row.name.len() == 1) {
            assert_eq!(row.dashes, One, "{}", row.name);
        }
    }

    /// `-omagic` is `-o magic` in every linker.
    #[test]
    fn long_names_that_start_with_o_take_two_dashes() {
        for row in HOST_ROWS.iter().chain(LLD_ROWS).filter(|row| row.name.len() > 1 && row.name.starts_with('o')) {
            assert_eq!(row.dashes, Two, "{}", row.name);
        }
    }

    #[test]
    fn names_are_found_as_the_linkers_find_them() {
        let find = |word: &str| {
            let body = word.trim_start_matches('-');
            let found = Table::host().find(body, word.len() - body.len());
            found.map(|(row, value)| format!("{}|{}", row.name, value.unwrap_or("")))
        };
        for (word, expected) in [
            ("-o", Some("o|")),
            ("-omagic", Some("o|magic")),
            ("--omagic", Some("omagic|")),
            ("--output=x", Some("output|x")),
            ("--o", None),
            ("-lfoo", Some("l|foo")),
            ("-l:libx.a", Some("l|:libx.a")),
            ("-library=foo", Some("library|foo")),
            ("-lto", Some("l|to")),
            ("--lto=full", None),
            ("-L=/lib", Some("L|=/lib")),
            ("-Ttext=0", Some("Ttext|0")),
            ("-Tx.ld", Some("T|x.ld")),
            ("-z", Some("z|")),
            ("-znow", Some("z|now")),
            ("-soname=x", Some("soname|x")),
            ("-hx.so", Some("h|x.so")),
            ("-static", Some("static|")),
            ("-O2", Some("O|2")),
            ("-s", None),
            ("-EL", None),
            ("--whole-arch", Some("whole-archive|")),
            ("--version-scr=x", Some("version-script|x")),
            ("--dynamic-li", None),
            ("-flto", Some("f|lto")),
            ("--as-needed=1", None),
            ("-(", Some("(|")),
        ] {
            assert_eq!(find(word).as_deref(), expected, "{word}");
        }
    }
}
