//! Link lines and what is understood of them, as tables: line, facts, host line.
//!
//! Facts are written `name=value`, only those that differ from an empty line's, in the order of [`facts`].
//!
//! Over 600 lines, because it is a list of rows.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use device_link::link_line::{self, LinkLine, Special};
use device_link::options::{DebugRequest, DeviceLib, Invocation, ItemKind, ItemState, Jobs, Level, Options, PtxChoice, PtxasMode};
use device_link::response;

fn words(line: &str) -> Vec<OsString> {
    response::split(line.as_bytes())
}

fn parse_env(line: &str, env: &[(&str, &str)]) -> Result<LinkLine, String> {
    let env = |name: &str| env.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value));
    link_line::parse(words(line), &env).map_err(|error| error.to_string())
}

fn parse(line: &str) -> LinkLine {
    parse_env(line, &[]).unwrap_or_else(|error| panic!("{line}: {error}"))
}

fn join(words: impl IntoIterator<Item = impl AsRef<OsStr>>) -> String {
    words.into_iter().map(|word| word.as_ref().to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
}

fn state(state: ItemState) -> String {
    let mut text = String::new();
    for (on, letter) in [(state.whole_archive, 'W'), (state.static_only, 'S'), (state.as_needed, 'N')] {
        if on {
            text.push(letter);
        }
    }
    text.extend(state.group.map(|group| format!("G{group}")));
    text.extend(state.start_lib.map(|list| format!("L{list}")));
    if text.is_empty() { text } else { format!("[{text}]") }
}

/// Inputs as `name` or `-lname` with `[state]`: W whole archive, S static, N as needed, Gn group, Ln start-lib list.
fn items(line: &LinkLine) -> String {
    join(line.host.items.iter().map(|item| {
        let name = match &item.kind {
            ItemKind::Input(path) => path.display().to_string(),
            ItemKind::Library(name) => format!("-l{}", name.display()),
            ItemKind::LibraryFile(name) => format!("-l:{}", name.display()),
            ItemKind::Script(path) => format!("-T{}", path.display()),
        };
        let word = line.host.argv[item.position].to_string_lossy();
        assert!(word.ends_with(name.trim_start_matches("-T").trim_start_matches("-l")), "{word} is not {name}");
        name + &state(item.state)
    }))
}

fn facts(options: &Options) -> String {
    let mut facts: Vec<String> = Vec::new();
    let mut fact = |name: &str, value: Option<String>| facts.extend(value.map(|value| format!("{name}={value}")));
    let os = |value: &Option<OsString>| value.as_ref().map(|value| value.to_string_lossy().into_owned());
    let path = |value: &Option<std::path::PathBuf>| value.as_ref().map(|value| value.display().to_string());
    let list = |values: Vec<String>| (!values.is_empty()).then(|| values.join(","));
    let flag = |on: bool| on.then(|| "1".to_owned());
    let o = options;
    fact("out", (o.output != OsStr::new("a.out")).then(|| o.output.display().to_string()));
    fact("r", flag(o.relocatable));
    fact("shared", flag(o.shared));
    fact("static", flag(o.static_link));
    fact("pie", flag(o.pie));
    fact("host", o.host_triple.clone());
    fact("sysroot", path(&o.sysroot));
    fact("m", o.emulation.clone());
    fact("nostdlib", flag(o.nostdlib));
    fact("C", path(&o.directory));
    fact("cuda", path(&o.cuda_path));
    fact("ptxas-path", path(&o.ptxas_path));
    fact("linker", os(&o.linker));
    fact("extract", list(o.should_extract.clone()));
    fact("O", o.opt_level.map(|level| format!("{level:?}")));
    fact("ptxas", list(o.ptxas_args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect()));
    fact("debug", o.device_debug.map(|debug| if debug == DebugRequest::Full { "full".into() } else { "lines".into() }));
    fact("du", list(o.device_undefined.clone()));
    let libs = o.device_libs.iter().map(|lib| match lib {
        DeviceLib::Library(name) => format!("-l{}", name.display()),
        DeviceLib::SearchDir(dir) => format!("-L{}", dir.display()),
        DeviceLib::File(file) => file.display().to_string(),
    });
    fact("dlibs", list(libs.collect()));
    fact("nvlink", list(o.nvlink_args.iter().map(|arg| arg.to_string_lossy().into_owned()).collect()));
    fact("mllvm", list(o.mllvm.clone()));
    fact("lto", o.lto.map(|lto| format!("{lto:?}")));
    fact("parts", o.lto_partitions.map(|n| n.to_string()));
    fact("ltojobs", o.lto_jobs.map(|n| n.to_string()));
    fact("features", list(o.device_features.clone()));
    fact("remarks", list(o.remarks.iter().map(|arg| arg.to_string_lossy().into_owned()).collect()));
    fact("dv", flag(o.device_verbose));
    fact("emit", o.device_emit.map(|emit| format!("{emit:?}")));
    fact("dry", flag(o.dry_run));
    fact("verbose", flag(o.verbose));
    fact("temps", flag(o.save_temps));
    fact("module", flag(o.print_wrapped_module));
    fact("bitcode", flag(o.embed_bitcode));
    fact("fatbin", flag(o.emit_fatbin_only));
    fact("override", list(o.override_image.iter().map(|(kind, file)| format!("{kind}:{}", file.display())).collect()));
    fact("compress", o.compress.map(|on| on.to_string()));
    fact("level", o.compression_level.map(|level| level.to_string()));
    fact("mode", o.compress_mode.map(|mode| format!("{mode:?}")));
    fact("memory", o.max_memory.map(|bytes| bytes.to_string()));
    fact(
        "jobs",
        match o.jobs {
            Jobs::Default => None,
            Jobs::Count(count) => Some(count.to_string()),
            Jobs::Jobserver => Some("jobserver".into()),
        },
    );
    fact("trace", path(&o.time_trace));
    fact("granularity", (o.time_trace_granularity != 500).then(|| o.time_trace_granularity.to_string()));
    fact(
        "ptx",
        o.ptx.as_ref().map(|ptx| match ptx {
            PtxChoice::All => "all".into(),
            PtxChoice::None => "none".into(),
            PtxChoice::Archs(archs) => archs.join("+"),
        }),
    );
    fact("ptxas-mode", (o.ptxas_mode != PtxasMode::Auto).then(|| format!("{:?}", o.ptxas_mode)));
    fact("mangled", flag(!o.demangle));
    fact("fatal", flag(o.fatal_warnings));
    fact("w", flag(o.no_warnings));
    fact("muldefs", flag(o.allow_multiple_definition));
    fact("gc", flag(o.gc_sections));
    fact("icf", o.icf.clone());
    fact("deps", path(&o.dependency_file));
    fact("u", list(o.undefined.clone()));
    fact("e", o.entry.clone());
    fact("init", o.init.clone());
    fact("fini", o.fini.clone());
    fact("wrap", list(o.wrap_symbols.clone()));
    fact("defsym", list(o.defsyms.iter().map(|(name, value)| format!("{name}:{value}")).collect()));
    fact("common", flag(o.fortran_common));
    fact("color", o.color.map(|color| format!("{color:?}")));
    fact("warn", list(o.warnings.iter().map(|(n, l)| format!("{n}:{}", if *l == Level::Off { "off" } else { "error" })).collect()));
    fact("announce", flag(o.announce_version));
    facts.join(" ")
}

/// As a linker: the host line is the line itself, whatever is on it.
fn linker_rows(rows: &[(&str, &str, &str)]) {
    for (line, expected_items, expected_facts) in rows {
        let parsed = parse(&format!("ld {line}"));
        assert_eq!(parsed.host.argv, words(line), "{line}");
        assert_eq!(items(&parsed), *expected_items, "items of: {line}");
        assert_eq!(facts(&parsed.options), *expected_facts, "facts of: {line}");
        assert_eq!(parsed.special, None, "{line}");
    }
}

/// As the wrapper: facts and what is left for the host.
fn wrapper_rows(rows: &[(&str, &str, &str)]) {
    for (line, expected_facts, expected_host) in rows {
        let parsed = parse(&format!("clang-linker-wrapper {line}"));
        assert_eq!(facts(&parsed.options), *expected_facts, "facts of: {line}");
        assert_eq!(join(&parsed.host.argv), *expected_host, "host line of: {line}");
    }
}

#[test]
fn inputs_and_their_state() {
    linker_rows(&[
        ("", "", ""),
        ("a.o b.a c.so", "a.o b.a c.so", ""),
        ("-lfoo -l bar --library=baz --library qux -library=x", "-lfoo -lbar -lbaz -lqux -lx", ""),
        ("-l:libx.a -l :y.o --library=:z.a", "-l:libx.a -l:y.o -l:z.a", ""),
        ("-", "-", ""),
        ("a.o -- -o b.o", "a.o -o b.o", ""),
        ("--whole-archive a.a -no-whole-archive b.a", "a.a[W] b.a", ""),
        ("-Bstatic -la -Bdynamic -lb", "-la[S] -lb", ""),
        ("-static -la --call_shared -lb -dn -lc -dy -ld -non_shared -le", "-la[S] -lb -lc[S] -ld -le[S]", "static=1"),
        ("-n a.o -Bdynamic -N b.o -Bdynamic --omagic c.o", "a.o[S] b.o[S] c.o[S]", "static=1"),
        ("-omagic c.o", "c.o", "out=magic"),
        ("--as-needed -la --no-as-needed -lb", "-la[N] -lb", ""),
        ("--start-group a.a b.a --end-group c.a -( d.a -)", "a.a[G1] b.a[G1] c.a d.a[G2]", ""),
        ("--start-lib a.o b.o --end-lib c.o --start-lib d.o --end-lib", "a.o[L1] b.o[L1] c.o d.o[L2]", ""),
        ("--push-state --as-needed -Bstatic --whole-archive -la --pop-state -lb", "-la[WSN] -lb", ""),
        ("--push-state -Bstatic --push-state -Bdynamic -la --pop-state -lb --pop-state -lc", "-la -lb[S] -lc", ""),
        ("--start-group --push-state -Bstatic a.a --pop-state b.a --end-group", "a.a[SG1] b.a[G1]", ""),
        ("--pop-state a.o", "a.o", ""),
        ("-b binary data.bin -b elf64-x86-64 a.o", "a.o", ""),
        ("--format=binary data.bin --format=default a.o", "a.o", ""),
        ("-T x.ld a.o", "-Tx.ld a.o", ""),
        ("-Tx.ld --script=y.ld --script z.ld -dT d.ld --default-script=e.ld", "-Tx.ld -Ty.ld -Tz.ld -Td.ld -Te.ld", ""),
        ("-r -la", "-la[S]", "r=1"),
        ("/out:x a.o", "/out:x a.o", ""),
        ("-l", "", ""),
    ]);
}

#[test]
fn values_are_no_inputs() {
    // Every way of giving a value in a word of its own, GNU ld, gold, lld and mold.
    for option in [
        "-z",
        "-Map",
        "--Map",
        "-soname",
        "--soname",
        "-h",
        "-plugin",
        "--plugin",
        "-plugin-opt",
        "--plugin-opt",
        "-dynamic-linker",
        "--dynamic-linker",
        "-I",
        "-rpath",
        "--rpath",
        "-rpath-link",
        "-R",
        "-y",
        "--trace-symbol",
        "-A",
        "--architecture",
        "-F",
        "--filter",
        "-f",
        "--auxiliary",
        "-a",
        "-c",
        "--mri-script",
        "-P",
        "--depaudit",
        "--audit",
        "--version-script",
        "--dynamic-list",
        "--exclude-libs",
        "--export-dynamic-symbol",
        "--export-dynamic-symbol-list",
        "--retain-symbols-file",
        "-assert",
        "--oformat",
        "--hash-style",
        "--hash-size",
        "--section-start",
        "-Ttext",
        "-Tdata",
        "-Tbss",
        "-Ttext-segment",
        "-Trodata-segment",
        "-Tldata-segment",
        "--unresolved-symbols",
        "--spare-dynamic-tags",
        "--split-stack-adjust-size",
        "--task-link",
        "--out-implib",
        "--in-implib",
        "--just-symbols",
        "--image-base",
        "--error-handling-script",
        "--version-exports-section",
        "--max-cache-size",
        "--compress-debug-sections",
        "--orphan-handling",
        "--section-ordering-file",
        "--symbol-ordering-file",
        "--call-graph-ordering-file",
        "--keep-unique",
        "--thread-count",
        "--incremental-base",
        "--icf-iterations",
        "--print-symbol-counts",
        "--stub-group-size",
        "--reproduce",
        "--rsp-quoting",
        "--remap-inputs",
        "--error-limit",
        "--pack-dyn-relocs",
        "--why-live",
        "--time-trace-granularity",
        "--thinlto-cache-policy",
        "--opt-remarks-filename",
        "--undefined-glob",
        "--mllvm",
        "-mllvm",
        "--load-pass-plugin",
        "--chroot",
        "--gpsize",
        "--target2",
        "--subsystem",
        "--heap",
        "--stack",
        "--debug",
    ] {
        let parsed = parse(&format!("ld {option} value.o a.o"));
        assert_eq!(items(&parsed), "a.o", "{option}");
    }
    linker_rows(&[
        // The value in the same word leaves the next one alone.
        ("-znow a.o -z now b.o", "a.o b.o", ""),
        ("--Map=m a.o -soname=s b.o -hs c.o", "a.o b.o c.o", ""),
        // Flags that only look as if they took a value.
        ("--build-id a.o --eh-frame-hdr b.o --gdb-index c.o", "a.o b.o c.o", ""),
        ("--demangle a.o --unique b.o --sort-common c.o --package-metadata d.o", "a.o b.o c.o d.o", ""),
        ("--print-gc-sections a.o --verbose b.o --save-temps c.o --time-trace d.o", "a.o b.o c.o d.o", ""),
        (
            "-E a.o -s b.o -S c.o -x d.o -X e.o -t f.o -q g.o -g h.o -d i.o -dc j.o -dp k.o -M l.o",
            "a.o b.o c.o d.o e.o f.o g.o h.o i.o j.o k.o l.o",
            "",
        ),
        ("--trace a.o --export-dynamic b.o --rosegment c.o --incremental d.o --warn-backrefs e.o", "a.o b.o c.o d.o e.o", ""),
        ("-EL a.o -EB b.o -Qy c.o -qmagic d.o -flto e.o -fuse-ld=x f.o", "a.o b.o c.o d.o e.o f.o", ""),
        ("--lto-O3 a.o --lto=full b.o --thinlto-jobs=3 c.o", "a.o b.o c.o", ""),
        // Where linkers do not agree, the word itself decides.
        ("-O 2 a.o -O b.o -O1 c.o", "a.o b.o c.o", ""),
        ("-G 8 a.o", "a.o", ""),
        ("-G a.o", "a.o", "shared=1"),
        ("--threads 4 a.o --threads b.o --threads=8 c.o", "a.o b.o c.o", ""),
        ("--icf all a.o", "a.o", "icf=all"),
        ("--icf=safe a.o --icf b.o", "a.o b.o", "icf="),
        ("--sort-section name a.o --sort-section b.o", "a.o b.o", ""),
        // GNU ld completes names.
        ("--version-scr v.map a.o --dynamic-link ld.so b.o", "a.o b.o", ""),
        ("--whole-arch a.a", "a.a[W]", ""),
        // Not ours to complain about.
        ("--no-such-option a.o --no-such=3 -Zfoo b.o ---x", "a.o b.o", ""),
        ("a.o -o", "a.o", ""),
        ("a.o -z", "a.o", ""),
    ]);
}

#[test]
fn facts_of_the_host_link() {
    linker_rows(&[
        ("-o x", "", "out=x"),
        ("-ox", "", "out=x"),
        ("--output=x", "", "out=x"),
        ("--output x", "", "out=x"),
        ("-o x -o y", "", "out=y"),
        ("-shared", "", "shared=1"),
        ("--shared -Bsymbolic", "", "shared=1"),
        ("-Bshareable", "", "shared=1"),
        ("-pie", "", "pie=1"),
        ("--pic-executable -no-pie", "", ""),
        ("-relocatable", "", "r=1"),
        ("-i", "", "r=1"),
        ("-Ur", "", "r=1"),
        ("-m elf_x86_64 -melf_i386", "", "m=elf_i386"),
        ("--sysroot=/s", "", "sysroot=/s"),
        ("--sysroot /s -nostdlib", "", "sysroot=/s nostdlib=1"),
        ("-C dir", "", "C=dir"),
        ("--directory=dir", "", "C=dir"),
        ("-u a -ub --undefined=c --undefined d --require-defined=e", "", "u=a,b,c,d,e"),
        ("-e main", "", "e=main"),
        ("-emain", "", "e=main"),
        ("--entry=main -init=i -fini f", "", "e=main init=i fini=f"),
        ("--wrap=malloc --wrap free", "", "wrap=malloc,free"),
        ("--defsym=a=b --defsym c=d+4", "", "defsym=a:b,c:d+4"),
        ("--defsym nothing", "", ""),
        ("-z muldefs", "", "muldefs=1"),
        ("-zmuldefs", "", "muldefs=1"),
        ("--allow-multiple-definition", "", "muldefs=1"),
        ("--allow-multiple-definition --no-allow-multiple-definition", "", ""),
        ("--gc-sections", "", "gc=1"),
        ("--gc-sections --no-gc-sections", "", ""),
        ("--icf=all --no-icf", "", ""),
        ("--dependency-file=d", "", "deps=d"),
        ("--dependency-file d", "", "deps=d"),
        ("--no-demangle", "", "mangled=1"),
        ("--no-demangle --demangle=gnu-v3", "", ""),
        ("--fatal-warnings -w", "", "fatal=1 w=1"),
        ("--fatal-warnings --no-fatal-warnings --no-warnings", "", "w=1"),
        ("--color-diagnostics", "", "color=Always"),
        ("--color-diagnostics=never", "", "color=Never"),
        ("--color-diagnostics=auto", "", "color=Auto"),
        ("--no-color-diagnostics", "", "color=Never"),
        ("--fortran-common", "", "common=1"),
        ("-v", "", "announce=1"),
        ("-V a.o", "a.o", "announce=1"),
    ]);
}

#[test]
fn search_directories_keep_their_order() {
    let parsed = parse("ld -L a -Y P,y:z -Lb --library-path=c --library-path d -L=/e");
    assert_eq!(join(parsed.host.search_dirs.iter().map(|dir| &dir.path)), "a b c d =/e y z");
}

#[test]
fn real_lines_of_drivers() {
    linker_rows(
        &[
            (
                // clang 22
                "--hash-style=both --build-id --eh-frame-hdr -m elf_x86_64 -pie -dynamic-linker /lib64/ld-linux-x86-64.so.2 -o p /lib/Scrt1.o /lib/crti.o crtbeginS.o -L/gcc -L/lib k.o -lcudart_static -ldl -lstdc++ -lm -lgcc_s -lgcc -lc crtendS.o /lib/crtn.o",
                "/lib/Scrt1.o /lib/crti.o crtbeginS.o k.o -lcudart_static -ldl -lstdc++ -lm -lgcc_s -lgcc -lc crtendS.o /lib/crtn.o",
                "out=p pie=1 m=elf_x86_64",
            ),
            (
                // g++ through collect2
                "-plugin /gcc/liblto_plugin.so -plugin-opt=/gcc/lto-wrapper -plugin-opt=-fresolution=c.res -plugin-opt=-pass-through=-lgcc_s --build-id --eh-frame-hdr -m elf_x86_64 --hash-style=gnu --as-needed -dynamic-linker /lib64/ld.so -pie -o x a.o -lstdc++ --push-state --as-needed -lgcc_s --pop-state -lc",
                "a.o[N] -lstdc++[N] -lgcc_s[N] -lc[N]",
                "out=x pie=1 m=elf_x86_64",
            ),
            (
                // rustc
                "-o t main.rcgu.o --as-needed -Bstatic /rust/libstd.rlib -Bdynamic -lgcc_s -z noexecstack -L /rust --gc-sections -pie -z relro -z now -O1 --strip-debug",
                "main.rcgu.o -o",
                "",
            ),
        ][..2],
    );
    let parsed = parse(
        "ld -o t main.rcgu.o --as-needed -Bstatic /rust/libstd.rlib -Bdynamic -lgcc_s -z noexecstack -L /rust --gc-sections -pie -z relro -z now -O1 --strip-debug",
    );
    assert_eq!(items(&parsed), "main.rcgu.o /rust/libstd.rlib[SN] -lgcc_s[N]");
    assert_eq!(facts(&parsed.options), "out=t pie=1 gc=1");
    assert_eq!(parsed.host.output_index, Some(1));
}

#[test]
fn the_output_value_is_found() {
    for (line, expected) in [("-o x a.o", Some(1)), ("a.o -ox", Some(1)), ("--output=x", Some(0)), ("--output x", Some(1)), ("a.o", None)] {
        assert_eq!(parse(&format!("ld {line}")).host.output_index, expected, "{line}");
    }
    assert_eq!(parse("clang-linker-wrapper --linker-path=ld -o x a.o").host.output_index, Some(1));
}

#[test]
fn the_wrappers_options() {
    wrapper_rows(&[
        ("--linker-path=/usr/bin/ld a.o -o x", "out=x linker=/usr/bin/ld", "a.o -o x"),
        ("--host-triple=x86_64-unknown-linux-gnu a.o", "host=x86_64-unknown-linux-gnu", "a.o"),
        ("--cuda-path=/cuda", "cuda=/cuda", ""),
        ("a.o --cuda-path=/cuda --wrapper-verbose b.o", "cuda=/cuda verbose=1", "a.o b.o"),
        ("-- a.o -o x", "out=x", "a.o -o x"),
        ("--linker-path=ld -- a.o", "linker=ld", "a.o"),
        ("--should-extract=sm_80 --should-extract=sm_90", "extract=sm_80,sm_90", ""),
        ("--dry-run --save-temps --print-wrapped-module", "dry=1 temps=1 module=1", ""),
        ("--embed-bitcode --emit-fatbin-only", "bitcode=1 fatbin=1", ""),
        ("--override-image=cuda=f.cubin --override-image=hip=a=b", "override=cuda:f.cubin,hip:a=b", ""),
        ("--compress --compression-level=9", "compress=true level=9", ""),
        ("--compression-level=-3", "level=-3", ""),
        ("--wrapper-jobs=4", "jobs=4", ""),
        ("--wrapper-jobs=jobserver", "jobs=jobserver", ""),
        ("--wrapper-time-trace=t.json --wrapper-time-trace-granularity=10", "trace=t.json granularity=10", ""),
        ("-mllvm -x a.o -mllvm --y=z", "mllvm=-x,--y=z", "a.o"),
        ("--offload-opt=-a -offload-opt=-b", "mllvm=-a,-b", ""),
        ("--arch=sm_90 --triple=nvptx64 --whole-program", "", ""),
        ("--linker-arg=-u --linker-arg=f --compiler-arg=-O1", "O=O1 du=f", ""),
        // What the LLVM 22 tool hands on, so do we.
        (
            "-v a.o --foo=bar -cuda-path=x -mllvm=x --compress-debug-sections=zlib",
            "announce=1",
            "-v a.o --foo=bar -cuda-path=x -mllvm=x --compress-debug-sections=zlib",
        ),
        ("--clang-backend --pass-remarks=x --save-temps=opt a.o", "", "--clang-backend --pass-remarks=x --save-temps=opt a.o"),
        ("--override=image=x --linker-path /usr/bin/ld", "", "--override=image=x --linker-path /usr/bin/ld"),
        // The peer makes -L of it.
        ("--library=foo --library bar", "", "--library=foo --library bar"),
        ("-r --relocatable --sysroot=/s -Ld -l c -rpath r", "r=1 sysroot=/s", "-r --relocatable --sysroot=/s -Ld -l c -rpath r"),
        ("--warplink-ptx=all a.o", "ptx=all", "a.o"),
        ("a.o -mllvm", "mllvm=", "a.o"),
    ]);
    assert_eq!(items(&parse("clang-linker-wrapper -z relro --linker-path=ld a.o --library=foo -mllvm b.o c.o")), "a.o -lfoo c.o");
}

#[test]
fn the_wrapper_for_windows_hosts() {
    let parsed = parse(
        "clang-linker-wrapper --host-triple=x86_64-pc-windows-msvc --linker-path=lld-link -out:a.exe -libpath:dir /libpath:dir2 a.o /wholearchive:b.lib c.lib -nologo /wholearchive d.lib",
    );
    assert_eq!(facts(&parsed.options), "out=a.exe host=x86_64-pc-windows-msvc linker=lld-link");
    assert_eq!(join(parsed.host.search_dirs.iter().map(|dir| &dir.path)), "dir dir2");
    assert_eq!(items(&parsed), "a.o b.lib[W] c.lib d.lib[W]");
    assert_eq!(join(&parsed.host.argv), "-out:a.exe -libpath:dir /libpath:dir2 a.o /wholearchive:b.lib c.lib -nologo /wholearchive d.lib");
    assert_eq!(parsed.host.output_index, Some(0));
    // Words that a GNU linker would take for `-o pt:ref`, `-m ap`, `-l tcg`, or for files.
    let line = "-opt:ref -map:a.map -machine:x64 -ltcg -debug -entry:start /include:kept /nodefaultlib /DLL /dir/a.obj /a.obj -out:b.dll";
    let parsed = parse(&format!("clang-linker-wrapper --host-triple=aarch64-pc-windows-msvc --linker-path=lld-link {line}"));
    assert_eq!(items(&parsed), "/dir/a.obj /a.obj");
    assert_eq!(parsed.options.output, std::path::Path::new("b.dll"));
    assert_eq!((parsed.options.entry.as_deref(), parsed.options.undefined.as_slice()), (Some("start"), &["kept".to_owned()][..]));
    assert!(parsed.options.shared && !parsed.options.relocatable && parsed.options.emulation.is_none());
    assert_eq!(join(&parsed.host.argv), line);
    // Elsewhere `-out:x` is `-o ut:x`.
    assert_eq!(facts(&parse("clang-linker-wrapper -out:x").options), "out=ut:x");
}

#[test]
fn as_a_linker_the_wrappers_words_are_the_hosts() {
    linker_rows(&[
        ("--save-temps -mllvm -x --compress --dry-run a.o", "a.o", ""),
        ("--cuda-path=/c --linker-path=/l --host-triple=t --should-extract=sm_90", "", ""),
        ("--embed-bitcode --print-wrapped-module --emit-fatbin-only --arch=x", "", ""),
    ]);
    let parsed =
        parse("ld.warplink --wrapper-verbose --device-linker=-lfoo --wrapper-jobs=2 --device-compiler=-O2 --warplink-linker=mold a.o");
    assert_eq!(facts(&parsed.options), "linker=mold O=O2 dlibs=-lfoo verbose=1 jobs=2");
    assert_eq!(join(&parsed.host.argv), "a.o");
}

#[test]
fn device_arguments_are_digested() {
    let c = |args: &str| join(args.split(' ').map(|arg| format!("--device-compiler={arg}")));
    let l = |args: &str| join(args.split(' ').map(|arg| format!("--device-linker={arg}")));
    let rows: Vec<(String, &str)> = vec![
        (c("-O0"), "O=O0"),
        (c("-O"), "O=O1"),
        (c("-O1"), "O=O1"),
        (c("-O2"), "O=O2"),
        (c("-O3 -O1"), "O=O1"),
        (c("-Os"), "O=Os"),
        (c("-Oz"), "O=Oz"),
        (c("-Og"), "O=O1"),
        (c("-Ofast"), "O=O3"),
        (c("-O7"), "O=O3"),
        (c("-g"), "debug=full"),
        (c("-g -O0"), "O=O0 debug=full"),
        (c("-g -O2"), "O=O2 debug=lines"),
        (c("-O2 -g"), "O=O2 debug=lines"),
        (c("-gline-tables-only"), "debug=lines"),
        (c("-gline-directives-only -O0"), "O=O0 debug=lines"),
        (c("-g -g0"), ""),
        (c("-ggdb3"), "debug=full"),
        (c("-gdwarf-5"), "debug=full"),
        (c("-g1"), "debug=lines"),
        (c("-gz -gcolumn-info"), ""),
        (c("-v"), "dv=1"),
        (c("--cuda-path=/c"), "cuda=/c"),
        (c("--cuda-path /c"), "cuda=/c"),
        (c("--ptxas-path=/p"), "ptxas-path=/p"),
        (c("-Xcuda-ptxas -v"), "ptxas=-v"),
        (c("-Xcuda-ptxas --maxrregcount=16 -Xcuda-ptxas -O1"), "ptxas=--maxrregcount=16,-O1"),
        (c("-Xptxas=-a,-b"), "ptxas=-a,-b"),
        (c("-flto=full"), "lto=Full"),
        (c("-flto"), "lto=Full"),
        (c("-foffload-lto=thin"), "lto=Thin"),
        (c("-flto=thin -fno-lto"), "lto=Off"),
        (c("-flto-partitions=4"), "parts=4"),
        (c("-mllvm -foo"), "mllvm=-foo"),
        (c("-Xlinker -u -Xlinker f"), "du=f"),
        (c("-Wl,-u,f,--plugin-opt=O1"), "O=O1 du=f"),
        (c("-Rpass=inline -fsave-optimization-record"), "remarks=-Rpass=inline,-fsave-optimization-record"),
        (c("-save-temps=obj"), "temps=1"),
        (c("--cuda-feature=+ptx88"), "features=+ptx88"),
        (c("-ftime-trace -fno-strict-aliasing -Wall -march=sm_90 -Xclang x -DA -D B -include f.h"), ""),
        (c("-lfoo -Ldir x.bc -l bar -L d2"), "dlibs=-lfoo,-Ldir,x.bc,-lbar,-Ld2"),
        (c("-u f -ug"), "du=f,g"),
        (l("-u f"), "du=f"),
        (l("-uf --undefined=g --undefined h"), "du=f,g,h"),
        (l("-lcudadevrt -l foo --library=bar --library baz -library=q"), "dlibs=-lcudadevrt,-lfoo,-lbar,-lbaz,-lq"),
        (l("-Ldir -L d2 --library-path=d3 x.a y.o"), "dlibs=-Ldir,-Ld2,-Ld3,x.a,y.o"),
        (l("-g"), "debug=full"),
        (l("--debug --plugin-opt=O3"), "O=O3 debug=lines"),
        (l("-lineinfo"), "debug=lines"),
        (l("--cuda-path=/c --ptxas-path=/p"), "cuda=/c ptxas-path=/p"),
        (l("--plugin-opt=O1"), "O=O1"),
        (l("-plugin-opt=Os"), "O=Os"),
        (l("-plugin-opt O2 -plugin x.so"), "O=O2"),
        (l("--lto-O2"), "O=O2"),
        (l("-O3"), "O=O3"),
        (l("--plugin-opt=lto-partitions=8 --plugin-opt=jobs=3"), "parts=8 ltojobs=3"),
        (l("--lto-partitions=2"), "parts=2"),
        (l("--plugin-opt=jobs=all"), "ltojobs=0"),
        (l("--plugin-opt=thinlto"), "lto=Thin"),
        (l("--plugin-opt=emit-asm"), "emit=Assembly"),
        (l("--lto-emit-llvm"), "emit=Bitcode"),
        (l("--plugin-opt=-mattr=+ptx88,+sm_90"), "features=+ptx88,+sm_90"),
        (l("--plugin-opt=-inline-threshold=3 -mllvm=-a -mllvm -b"), "mllvm=-inline-threshold=3,-a,-b"),
        (l("--plugin-opt=mcpu=sm_90 -arch sm_90 --arch=sm_90"), ""),
        (l("--plugin-opt=opt-remarks-filename=f --opt-remarks-format=yaml"), "remarks=opt-remarks-filename=f,--opt-remarks-format=yaml"),
        (l("--lto-newpm-passes=default<O1> --lto-debug-pass-manager"), "mllvm=-passes=default<O1>,-debug-pass-manager"),
        (l("-Xptxas -v -Xptxas=-w"), "ptxas=-v,-w"),
        (l("-maxrregcount=32 -maxrregcount 16"), "ptxas=--maxrregcount=32,--maxrregcount=16"),
        (l("-z muldefs"), "muldefs=1"),
        (l("-z relro"), "nvlink=-z,relro"),
        (l("--allow-multiple-definition"), "muldefs=1"),
        (l("-v --save-temps --dry-run"), "dv=1 dry=1 temps=1"),
        (
            l("--suppress-stack-size-warning -kernels-used k --use-host-info"),
            "nvlink=--suppress-stack-size-warning,-kernels-used,k,--use-host-info",
        ),
        (l("-r --whole-archive --no-whole-archive --no-undefined"), ""),
        // Triples
        (l("nvptx64-nvidia-cuda=-lfoo"), "dlibs=-lfoo"),
        (c("nvptx64-nvidia-cuda=-O3"), "O=O3"),
        (c("amdgcn-amd-amdhsa=-O3"), ""),
        (l("x86_64-unknown-linux-gnu=-lfoo i386=-lbar"), ""),
        (l("nvptx64=-lfoo"), ""),
        (l("--undefined=nvptx64=x"), "du=nvptx64=x"),
        (c("nvptx64-nvidia-cuda=-Xcuda-ptxas nvptx64-nvidia-cuda=--maxrregcount=16"), "ptxas=--maxrregcount=16"),
        // The two sides do not take each other's values.
        (format!("{} {} {}", c("-Xcuda-ptxas"), l("-lfoo"), c("-v")), "ptxas=-v dlibs=-lfoo"),
        (format!("{} {}", c("-O3"), l("--plugin-opt=O1")), "O=O1"),
        ("--device-compiler=-Xcuda-ptxas --device-compiler=-a --warplink-ptxas=-b --device-linker=-Xptxas=-c".into(), "ptxas=-a,-b,-c"),
    ];
    for (line, expected) in &rows {
        let parsed = parse(&format!("clang-linker-wrapper {line} a.o"));
        assert_eq!(facts(&parsed.options), *expected, "{line}");
        assert_eq!(join(&parsed.host.argv), "a.o", "{line}");
    }
    let raw = parse("clang-linker-wrapper --device-compiler=amdgcn-amd-amdhsa=-O3 --device-linker=-x=y").options.device_args;
    assert_eq!(raw[0].triple.as_deref(), Some("amdgcn-amd-amdhsa"));
    assert_eq!((raw[1].triple.as_deref(), raw[1].value.to_str()), (None, Some("-x=y")));
}

#[test]
fn our_own_options() {
    for (line, expected) in [
        ("--warplink-linker=mold", "linker=mold"),
        ("-warplink-linker=mold", "linker=mold"),
        ("--warplink-cuda-path=/c --warplink-ptxas-path=/p", "cuda=/c ptxas-path=/p"),
        ("--warplink-cuda-path=/c --device-compiler=--cuda-path=/d", "cuda=/c"),
        ("--warplink-ptxas=-v --warplink-ptxas=-O1", "ptxas=-v,-O1"),
        ("--warplink-ptx=none", "ptx=none"),
        ("--warplink-ptx=sm_90", "ptx=sm_90"),
        ("--warplink-ptx=90,compute_80,8.6,75-virtual,9.0+PTX,sm_90a,lto_100f", "ptx=sm_90+sm_80+sm_86+sm_75+sm_90+sm_90a+sm_100f"),
        ("--warplink-ptxas-mode=whole", "ptxas-mode=Whole"),
        ("--warplink-ptxas-mode=auto", ""),
        ("--warplink-opt-level=1 --device-compiler=-O3", "O=O1"),
        ("--warplink-compress=zstd --warplink-compression-level=3", "level=3 mode=Zstd"),
        ("--warplink-jobs=jobserver", "jobs=jobserver"),
        ("--warplink-max-memory=8G", "memory=8589934592"),
        ("--warplink-warn=no-icf,error=ptxas --warplink-warn=no-all", "warn=icf:off,ptxas:error,all:off"),
        // A compiler driver cuts a list behind -Wl, at its commas.
        ("--warplink-ptx=sm_80 sm_90 compute_86", "ptx=sm_80+sm_90+sm_86"),
        ("--warplink-warn=no-icf error=ptxas no-all", "warn=icf:off,ptxas:error,all:off"),
        ("--warplink-verbose --warplink-dry-run --warplink-save-temps", "dry=1 verbose=1 temps=1"),
        ("--warplink-verbose=no", ""),
        ("--warplink-verbose --warplink-verbose=0", ""),
        ("--warplink-time-trace=t --warplink-color=never", "trace=t color=Never"),
    ] {
        let parsed = parse(&format!("ld {line} a.o"));
        assert_eq!(facts(&parsed.options), expected, "{line}");
        assert_eq!(join(&parsed.host.argv), "a.o", "{line}");
    }
    // What may be a file is one.
    for (line, left) in [
        ("--warplink-ptx=all sm_90", "sm_90"),
        ("--warplink-ptx=none sm_90", "sm_90"),
        ("--warplink-ptx=sm_80 90", "90"),
        ("--warplink-ptx=sm_80 sm_x", "sm_x"),
        ("--warplink-warn=no-icf no-thing", "no-thing"),
        ("--warplink-jobs=2 sm_90", "sm_90"),
        ("--warplink-verbose sm_90 no-icf", "sm_90 no-icf"),
    ] {
        assert_eq!(join(&parse(&format!("ld {line}")).host.argv), left, "{line}");
    }
}

#[test]
fn the_environment_comes_second() {
    let facts_of = |line: &str, env: &[(&str, &str)]| parse_env(line, env).map(|parsed| facts(&parsed.options));
    let ok = |text: &str| Ok(text.to_owned());
    assert_eq!(facts_of("ld", &[("WARPLINK_PTX", "all"), ("WARPLINK_LINKER", "gold")]), ok("linker=gold ptx=all"));
    assert_eq!(facts_of("ld --warplink-ptx=none", &[("WARPLINK_PTX", "all")]), ok("ptx=none"));
    assert_eq!(facts_of("clang-linker-wrapper --linker-path=ld", &[("WARPLINK_LINKER", "gold")]), ok("linker=ld"));
    assert_eq!(facts_of("ld --device-compiler=--cuda-path=/line", &[("WARPLINK_CUDA_PATH", "/env")]), ok("cuda=/line"));
    assert_eq!(facts_of("ld --device-compiler=-O1", &[("WARPLINK_OPT_LEVEL", "3")]), ok("O=O1"));
    assert_eq!(facts_of("ld", &[("WARPLINK_OPT_LEVEL", "3")]), ok("O=O3"));
    assert_eq!(facts_of("ld --warplink-ptxas=-c", &[("WARPLINK_PTXAS", "-a '-b c'")]), ok("ptxas=-a,-b c,-c"));
    assert_eq!(facts_of("ld", &[("WARPLINK_VERBOSE", "1"), ("WARPLINK_DRY_RUN", "0"), ("WARPLINK_JOBS", "")]), ok("verbose=1"));
    assert_eq!(
        facts_of("ld", &[("WARPLINK_JOBS", "many")]),
        Err("WARPLINK_JOBS=many: expected a positive integer or 'jobserver', got 'many'".into())
    );
}

#[test]
fn errors_name_the_option_and_come_together() {
    for (line, expected) in [
        ("ld --warplink-ptz=all", "--warplink-ptz: unknown option; did you mean --warplink-ptx?"),
        ("ld --warplink-nonsense", "--warplink-nonsense: unknown option"),
        ("ld --warplink-jobs", "--warplink-jobs: expected =VALUE (N|jobserver)"),
        ("ld --warplink-max-memory=much", "--warplink-max-memory=much: expected a size such as 500M or 5G, got 'much'"),
        ("ld --warplink-jobs=0", "--warplink-jobs=0: expected a positive integer or 'jobserver', got '0'"),
        ("ld --wrapper-jobs=-1", "--wrapper-jobs=-1: expected a positive integer or 'jobserver', got '-1'"),
        ("ld --warplink-ptx=x", "--warplink-ptx=x: expected all, none or architectures such as sm_90, got 'x'"),
        ("ld --warplink-ptx=", "--warplink-ptx=: expected all, none or architectures such as sm_90, got ''"),
        ("ld --warplink-compress=gzip", "--warplink-compress=gzip: expected none, lz4, zstd or size, got 'gzip'"),
        ("ld --warplink-warn=x", "--warplink-warn=x: expected no-NAME, error=NAME or error, got 'x'"),
        ("ld --warplink-verbose=perhaps", "--warplink-verbose=perhaps: expected yes or no, got 'perhaps'"),
        ("clang-linker-wrapper --override-image=x", "--override-image=x: expected KIND=FILE"),
        ("clang-linker-wrapper --compression-level=max", "--compression-level=max: expected a number, got 'max'"),
        ("ld --device-compiler=-O9x", "-O9x: unknown optimisation level for the device"),
        ("ld --device-compiler=-Xcuda-ptxas", "--device-compiler=-Xcuda-ptxas: a value must follow as another --device-compiler="),
        (
            "ld --warplink-jobs=x --warplink-ptx=y",
            "--warplink-jobs=x: expected a positive integer or 'jobserver', got 'x'\n--warplink-ptx=y: expected all, none or architectures such as sm_90, got 'y'",
        ),
    ] {
        assert_eq!(parse_env(line, &[]).map(|_| ()), Err(expected.to_owned()), "{line}");
    }
}

#[test]
fn questions_are_answered_as_the_name_asks() {
    for (line, expected) in [
        ("clang-linker-wrapper --version", Some(Special::WrapperVersion)),
        ("clang-linker-wrapper-22 --help", Some(Special::WrapperHelp { hidden: false })),
        ("/x/clang-linker-wrapper --help-hidden", Some(Special::WrapperHelp { hidden: true })),
        ("clang-linker-wrapper -v", None),
        ("ld --version", Some(Special::LinkerVersion)),
        ("ld.warplink -version", Some(Special::LinkerVersion)),
        ("warplink --help", Some(Special::LinkerHelp)),
        ("ld --help-hidden", None),
        ("ld -v", None),
        // Not even a mistake stands in the way.
        ("ld --version --warplink-ptx=x", Some(Special::LinkerVersion)),
    ] {
        assert_eq!(parse(line).special, expected, "{line}");
    }
    assert_eq!(join(&parse("ld --version -m elf_x86_64").host.argv), "--version -m elf_x86_64");
    assert!(link_line::version_line().contains("(compatible with GNU ld)"));
    let help = link_line::help_text(&Invocation::Wrapper, false);
    assert!(help.contains("--linker-path=<path>") && help.contains("--warplink-ptx=all|none|ARCH,..."), "{help}");
    let help = link_line::help_text(&Invocation::Linker("ld".into()), true);
    assert!(!help.contains("--linker-path=") && help.contains("--device-linker="), "{help}");
}

#[test]
fn names_need_not_be_utf8() {
    let argv: Vec<OsString> =
        [&b"ld"[..], b"-o", b"o\xff", b"a\xfe.o", b"-l\xfd", b"--output=\xfc", b"-L\xfb", b"--warplink-cuda-path=\xfa", b"-\xf9"]
            .iter()
            .map(|bytes| OsStr::from_bytes(bytes).to_owned())
            .collect();
    let parsed = link_line::parse(argv.clone(), &|_| None).unwrap();
    let rest: Vec<OsString> = argv[1..].iter().filter(|arg| !arg.as_bytes().starts_with(b"--warplink")).cloned().collect();
    assert_eq!(parsed.host.argv, rest);
    assert_eq!(parsed.options.output.as_os_str().as_bytes(), b"\xfc");
    assert_eq!(parsed.options.cuda_path.unwrap().as_os_str().as_bytes(), b"\xfa");
    assert_eq!(parsed.host.search_dirs[0].path.as_os_str().as_bytes(), b"\xfb");
    assert_eq!(parsed.host.items[1].kind, ItemKind::Library(OsStr::from_bytes(b"\xfd").to_owned()));
}

/// Whatever words stand on a linker's line, those that are not ours come out as they went in.
#[test]
fn nothing_of_the_host_line_is_lost() {
    let pieces = [
        "-o",
        "x",
        "-",
        "--",
        "a.o",
        "-l",
        "-lfoo",
        "-z",
        "now",
        "--whole-archive",
        "-T",
        "-O",
        "2",
        "--icf",
        "all",
        "--no-such",
        "=",
        "-=",
        "--=",
        "---",
        "-Wl,x",
        "--version-script",
        "v",
        "-mllvm",
        "--save-temps",
        "--start-lib",
        "--pop-state",
        "-L",
        "-b",
        "binary",
        "--defsym",
        "a=b",
        "ü",
        "-ü",
        "--ü=ü",
        "",
        "@no-such-file",
        "-(",
        "-u",
        "--threads",
        "-G",
        "--wrap",
        "--output",
    ];
    let mut seed = 1u64;
    let mut next = |bound: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % bound
    };
    for _ in 0..5000 {
        let line: Vec<OsString> = (0..next(12)).map(|_| OsString::from(pieces[next(pieces.len())])).collect();
        let mut argv = vec![OsString::from("ld")];
        argv.extend(line.iter().cloned());
        let parsed = link_line::parse(argv, &|_| None).unwrap();
        assert_eq!(parsed.host.argv, line);
        for item in &parsed.host.items {
            assert!(item.position < line.len());
        }
    }
}
