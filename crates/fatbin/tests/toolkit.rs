//! Against NVIDIA's tools: the bytes of `fatbinary` 13.0, what `cuobjdump` reads and says, and
//! goblin's view of the same files. Skipped where CUDA_PATH names no toolkit.

use fatbin::cubin::{Cubin, SymbolKind};
use fatbin::{Arch, Compression, Image, Kind, SECTION_FATBIN, containers, ptx, read, section_containers, write};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Every architecture that ptxas 13.0 assembles for.
const ARCHES: [&str; 22] = [
    "75", "80", "86", "87", "88", "89", "90", "90a", "100", "100a", "100f", "103", "103a", "103f", "110", "110a", "120", "120a", "120f",
    "121", "121a", "121f",
];

struct Toolkit {
    bin: PathBuf,
    dir: tempfile::TempDir,
}

impl Toolkit {
    fn find() -> Option<Toolkit> {
        let bin = PathBuf::from(std::env::var_os("CUDA_PATH")?).join("bin");
        bin.join("fatbinary").exists().then(|| Toolkit { bin, dir: tempfile::tempdir().unwrap() })
    }

    fn run(&self, tool: &str, args: &[&str]) -> String {
        let output = Command::new(self.bin.join(tool))
            .args(args)
            .current_dir(self.dir.path())
            .output()
            .unwrap_or_else(|error| panic!("{tool}: {error}"));
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{tool} {args:?}\n{text}{errors}");
        text
    }

    /// Whether `fatbinary` is of the release whose bytes we write.
    fn is_13_0(&self) -> bool {
        self.run("fatbinary", &["--version"]).contains("release 13.0")
    }

    fn save(&self, name: &str, bytes: &[u8]) {
        fs::write(self.dir.path().join(name), bytes).unwrap();
    }

    fn load(&self, name: &str) -> Vec<u8> {
        fs::read(self.dir.path().join(name)).unwrap()
    }

    /// Assembles `text` and gives the cubin.
    fn assemble(&self, name: &str, text: &str, arch: &str, options: &[&str]) -> Vec<u8> {
        self.save(&format!("{name}.ptx"), text.as_bytes());
        let (source, output) = (format!("{name}.ptx"), format!("{name}.cubin"));
        let gpu = format!("-arch=sm_{arch}");
        self.run("ptxas", &[&[&gpu, &source, "-o", &output], options].concat());
        self.load(&output)
    }

    /// What `fatbinary` makes of `images`.
    fn fatbinary(&self, images: &[Image<'_>], options: &[&str]) -> Vec<u8> {
        let mut args: Vec<String> = options.iter().map(|option| (*option).to_owned()).collect();
        args.push("--create=theirs.fatbin".to_owned());
        for (index, image) in images.iter().enumerate() {
            let kind = match image.kind {
                Kind::Elf => "elf",
                Kind::Ptx => "ptx",
                Kind::Nvvm => "nvvm",
                other => panic!("{other}"),
            };
            let file = format!("image{index}");
            self.save(&file, image.data);
            let sm = image.arch.to_string().replace("sm_", "");
            args.push(format!("--image3=kind={kind},sm={sm},file={file}"));
        }
        self.run("fatbinary", &args.iter().map(String::as_str).collect::<Vec<_>>());
        self.load("theirs.fatbin")
    }

    fn check_same(&self, what: &str, images: &[Image<'_>], options: &[&str]) {
        let ours = write(images).unwrap();
        let theirs = self.fatbinary(images, options);
        if ours != theirs {
            let at = ours.iter().zip(&theirs).position(|(a, b)| a != b);
            panic!("{what} {options:?}: {} and {} bytes, first difference at {at:?}", ours.len(), theirs.len());
        }
    }
}

/// Runs `test` with the toolkit, or says that it does not.
fn with_toolkit(test: impl FnOnce(&Toolkit)) {
    match Toolkit::find() {
        Some(toolkit) => test(&toolkit),
        None => println!("skipped: CUDA_PATH names no CUDA toolkit"),
    }
}

fn with_toolkit_13_0(test: impl FnOnce(&Toolkit)) {
    with_toolkit(|toolkit| {
        if toolkit.is_13_0() {
            test(toolkit);
        } else {
            println!("skipped: the bytes are those of fatbinary 13.0, CUDA_PATH has another");
        }
    });
}

/// A text of test-inputs/fatbin with the directives of `arch`.
fn text(name: &str, arch: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../test-inputs/fatbin").join(name);
    let text = fs::read_to_string(&path).unwrap();
    let version = ptx::lowest_version(arch.parse().unwrap()).unwrap();
    let mut lines = Vec::new();
    for line in text.lines() {
        if line.starts_with(".version") {
            lines.push(format!(".version {version}"));
        } else if line.starts_with(".target") {
            lines.push(format!(".target sm_{arch}"));
        } else {
            lines.push(line.to_owned());
        }
    }
    lines.join("\n") + "\n"
}

fn image<'a>(kind: Kind, arch: &str, data: &'a [u8], compression: Compression) -> Image<'a> {
    Image { kind, arch: arch.parse().unwrap(), data, ident: None, options: "", debug: false, compression }
}

/// The options of `fatbinary` that say how to compress: what they are, and what that means for
/// cubins and for PTX.
const MODES: [(&[&str], Compression, Compression); 7] = [
    (&["--compress-mode=none"], Compression::None, Compression::None),
    (&["--compress=false", "--compress-all"], Compression::None, Compression::None),
    (&[], Compression::None, Compression::ZSTD),
    (&["--compress-mode=balance"], Compression::None, Compression::ZSTD),
    (&["--compress-all"], Compression::ZSTD, Compression::ZSTD),
    (&["-c"], Compression::ZSTD, Compression::ZSTD),
    (&["--compress-all", "--compress-mode=size"], Compression::ZSTD_SIZE, Compression::ZSTD_SIZE),
];

#[test]
fn same_bytes_for_every_architecture_and_mode() {
    with_toolkit_13_0(|toolkit| {
        for arch in ARCHES {
            let ptx = text("kernels.ptx", arch);
            let whole = toolkit.assemble("whole", &ptx, arch, &[]);
            let outside = text("calls_out.ptx", arch);
            let relocatable = toolkit.assemble("relocatable", &outside, arch, &["-c"]);
            for (options, elf, text) in MODES {
                let cubin = if options == ["-c"] { &relocatable } else { &whole };
                let images = [image(Kind::Elf, arch, cubin, elf), image(Kind::Ptx, arch, ptx.as_bytes(), text)];
                toolkit.check_same(arch, &images, options);
            }
        }
    });
}

#[test]
fn same_bytes_for_debug_images() {
    with_toolkit_13_0(|toolkit| {
        for arch in ["75", "90a", "100f", "120"] {
            let ptx = text("kernels.ptx", arch);
            let cubin = toolkit.assemble("debug", &ptx, arch, &["-g"]);
            let images = [
                Image { debug: true, ..image(Kind::Elf, arch, &cubin, Compression::ZSTD) },
                Image { debug: true, ..image(Kind::Ptx, arch, ptx.as_bytes(), Compression::ZSTD) },
            ];
            toolkit.check_same(arch, &images, &["-g"]);
        }
    });
}

#[test]
fn same_bytes_for_several_architectures() {
    with_toolkit_13_0(|toolkit| {
        let cubins: Vec<_> = ARCHES.iter().map(|arch| toolkit.assemble("many", &text("kernels.ptx", arch), arch, &[])).collect();
        let ptx = text("kernels.ptx", "80");
        for compression in [Compression::None, Compression::ZSTD] {
            let mut images: Vec<_> = ARCHES.iter().zip(&cubins).map(|(arch, cubin)| image(Kind::Elf, arch, cubin, compression)).collect();
            images.insert(3, image(Kind::Ptx, "80", ptx.as_bytes(), compression));
            // Older PTX may stand for a later architecture.
            images.push(image(Kind::Ptx, "120", ptx.as_bytes(), compression));
            let option = match compression {
                Compression::None => "--compress-mode=none",
                _ => "--compress-all",
            };
            toolkit.check_same("all", &images, &[option]);
        }
        toolkit.check_same("none", &[], &[]);
    });
}

#[test]
fn same_bytes_for_every_length_of_ident_and_options() {
    with_toolkit_13_0(|toolkit| {
        let ptx = text("kernels.ptx", "90");
        let cubin = toolkit.assemble("named", &ptx, "90", &[]);
        let mercury = toolkit.assemble("mercury", &text("kernels.ptx", "100a"), "100a", &[]);
        for len in 0..=17 {
            let ident = "abcdefghijklmnopq".get(..len).unwrap();
            let options = "-O3 --fmad=false x".get(..len).unwrap();
            let with = |image| Image { ident: Some(ident), options, ..image };
            let images = [
                with(image(Kind::Elf, "90", &cubin, Compression::None)),
                with(image(Kind::Ptx, "90", ptx.as_bytes(), Compression::ZSTD)),
                with(image(Kind::Elf, "100a", &mercury, Compression::None)),
            ];
            let (ident, options) = (format!("--ident={ident}"), format!("--cmdline={options}"));
            let mut args = vec![&options[..]];
            // fatbinary wants a value behind --ident.
            if len > 0 {
                args.push(&ident);
            }
            toolkit.check_same("ident and options", &images, &args);
        }
    });
}

#[test]
fn same_bytes_for_stored_bitcode() {
    with_toolkit_13_0(|toolkit| {
        for len in 8..=14 {
            let bitcode = b"ABCD\x02\x03 bitcode".get(..len).unwrap();
            let image = Image { options: "-O3", ..image(Kind::Nvvm, "90a", bitcode, Compression::None) };
            toolkit.check_same("bitcode", &[image], &["--compress-mode=none", "--cicc-cmdline=-O3"]);
        }
    });
}

#[test]
fn same_bytes_for_odd_text() {
    with_toolkit_13_0(|toolkit| {
        let odd = text("text.ptx", "75");
        let tail = |end: &str| format!("{}{end}", odd.trim_end());
        for ptx in [
            odd.clone(),
            odd.replace('\n', "\r\n"),
            tail("  "),
            tail(" // no newline"),
            tail("\n/* open"),
            tail("\n/* a */ /* b */\t\t/* c */  x"),
            tail("\n/ / * \" \\\" // */ \" // \"a\"  \"b\" "),
            tail("\u{e9} \u{a0}  \u{b}  \u{c} x"),
        ] {
            for (options, compression) in [(&["--compress-mode=none"][..], Compression::None), (&[], Compression::ZSTD)] {
                let images = [image(Kind::Ptx, "75", ptx.as_bytes(), compression)];
                toolkit.check_same(&format!("{ptx:?}"), &images, options);
            }
        }
    });
}

/// Enough kernels for zstd to need several blocks: 128 KiB each.
fn large_text(arch: &str) -> String {
    let mut large = text("kernels.ptx", arch);
    for number in 0..1500u32 {
        let constant = number.wrapping_mul(2_654_435_761);
        large += &format!(
            "\n.visible .entry k{number}(.param .u64 p)\n{{\n\t.reg .b32 %r<4>;\n\t.reg .b64 \
             %rd<4>;\n\tld.param.u64 %rd1, [p];\n\tcvta.to.global.u64 %rd2, %rd1;\n\tld.global.u32 \
             %r1, [%rd2];\n\tmad.lo.u32 %r2, %r1, {constant}, {number};\n\tst.global.u32 [%rd2], \
             %r2;\n\tret;\n}}\n"
        );
    }
    large
}

#[test]
fn same_bytes_for_large_images() {
    with_toolkit_13_0(|toolkit| {
        let ptx = large_text("80");
        let cubin = toolkit.assemble("large", &ptx, "80", &[]);
        assert!(ptx.len() > 300_000 && cubin.len() > 1_000_000);
        for (options, elf, text) in MODES {
            let images = [image(Kind::Elf, "80", &cubin, elf), image(Kind::Ptx, "80", ptx.as_bytes(), text)];
            toolkit.check_same("large", &images, options);
        }
    });
}

#[test]
fn reads_what_fatbinary_writes() {
    with_toolkit(|toolkit| {
        let ptx = text("kernels.ptx", "90");
        let cubin = toolkit.assemble("read", &ptx, "90", &[]);
        let images = [image(Kind::Elf, "90", &cubin, Compression::None), image(Kind::Ptx, "90", ptx.as_bytes(), Compression::None)];
        for mode in ["none", "speed", "balance", "size", "default"] {
            let mode = format!("--compress-mode={mode}");
            let bytes = toolkit.fatbinary(&images, &[&mode, "--compress-all", "--cmdline=-O3"]);
            let entries = read(&bytes).unwrap();
            assert_eq!(entries.len(), 2, "{mode}");
            assert!(entries[0].payload().unwrap().starts_with(&cubin), "{mode}");
            let text = entries[1].payload().unwrap();
            assert_eq!(ptx::symbols(&text), ptx::symbols(ptx.as_bytes()), "{mode}");
            assert_eq!(entries[1].options.as_deref(), Some("-O3"));
        }
    });
}

#[test]
fn cuobjdump_extracts_what_was_put_in() {
    with_toolkit(|toolkit| {
        let ptx = text("kernels.ptx", "90");
        let ninety = toolkit.assemble("x90", &ptx, "90", &[]);
        let hundred = toolkit.assemble("x100", &text("kernels.ptx", "100a"), "100a", &[]);
        let large = large_text("80");
        let eighty = toolkit.assemble("x80", &large, "80", &[]);
        let compressions = [
            Compression::None,
            Compression::Lz4,
            Compression::Zstd(-5),
            Compression::Zstd(1),
            Compression::ZSTD,
            Compression::ZSTD_SIZE,
            Compression::Zstd(22),
        ];
        for compression in compressions {
            let bytes = write(&[
                image(Kind::Elf, "90", &ninety, compression),
                image(Kind::Elf, "100a", &hundred, compression),
                image(Kind::Elf, "80", &eighty, compression),
                image(Kind::Ptx, "90", ptx.as_bytes(), compression),
                image(Kind::Ptx, "80", large.as_bytes(), compression),
            ])
            .unwrap();
            let dir = tempfile::tempdir_in(toolkit.dir.path()).unwrap();
            fs::write(dir.path().join("a.fatbin"), &bytes).unwrap();
            let status = Command::new(toolkit.bin.join("cuobjdump"))
                .args(["-xelf", "all", "-xptx", "all", "a.fatbin"])
                .current_dir(dir.path())
                .output()
                .unwrap();
            assert!(status.status.success(), "{compression:?}: {status:?}");
            let mut found = BTreeMap::new();
            for file in fs::read_dir(dir.path()).unwrap() {
                let path = file.unwrap().path();
                let name = path.file_name().unwrap().to_string_lossy().into_owned();
                found.insert(name, fs::read(&path).unwrap());
            }
            let file = |middle: &str, end: &str| {
                let mut named = found.iter().filter(|(name, _)| name.contains(middle) && name.ends_with(end));
                named.next().unwrap_or_else(|| panic!("{middle}: {:?}", found.keys())).1
            };
            assert!(*file("sm_90.", ".cubin") == ninety, "{compression:?}");
            assert!(*file("sm_100a.", ".cubin") == hundred, "{compression:?}");
            assert!(*file("sm_80.", ".cubin") == eighty, "{compression:?}");
            for (name, text) in [("sm_90.", &ptx), ("sm_80.", &large)] {
                assert_eq!(ptx::symbols(file(name, ".ptx")), ptx::symbols(text.as_bytes()), "{compression:?}");
            }
        }
    });
}

/// `cuobjdump -res-usage`: for each function, the numbers by name.
fn resource_usage(toolkit: &Toolkit, file: &str) -> BTreeMap<String, BTreeMap<String, u64>> {
    let mut functions = BTreeMap::new();
    let mut name = String::new();
    for line in toolkit.run("cuobjdump", &["-res-usage", file]).lines().map(str::trim) {
        if let Some(rest) = line.strip_prefix("Function ") {
            name = rest.trim_end_matches(':').to_owned();
        } else if line.starts_with("REG:") {
            let numbers = line.split(' ').filter_map(|field| {
                let (key, value) = field.split_once(':')?;
                Some((key.to_owned(), value.parse().ok()?))
            });
            functions.insert(name.clone(), numbers.collect());
        }
    }
    functions
}

#[test]
fn kernels_need_what_cuobjdump_says() {
    with_toolkit(|toolkit| {
        for (input, options) in [("kernels.ptx", &[][..]), ("kernels.ptx", &["-c"]), ("kernels.ptx", &["-g"]), ("calls_out.ptx", &["-c"])] {
            for arch in ARCHES {
                let bytes = toolkit.assemble("usage", &text(input, arch), arch, options);
                let usage = resource_usage(toolkit, "usage.cubin");
                let cubin = Cubin::parse(&bytes).unwrap();
                assert_eq!(cubin.arch().sm, arch.parse::<Arch>().unwrap().sm);
                assert_eq!(cubin.is_relocatable(), options == ["-c"]);
                let kernels = cubin.kernels().unwrap();
                assert_eq!(kernels.len(), if input == "kernels.ptx" { 4 } else { 1 });
                for kernel in kernels {
                    let theirs = &usage[kernel.name];
                    let mut ours = BTreeMap::from([
                        ("REG".to_owned(), u64::from(kernel.registers.unwrap())),
                        ("STACK".to_owned(), u64::from(kernel.stack)),
                        ("SHARED".to_owned(), kernel.shared),
                    ]);
                    for (bank, size) in &kernel.constants {
                        ours.insert(format!("CONSTANT[{bank}]"), *size);
                    }
                    let mut theirs = theirs.clone();
                    if cubin.is_relocatable() {
                        // It says 0 while the kernel's own frame is all that is known.
                        ours.remove("STACK");
                        theirs.remove("STACK");
                    }
                    theirs.retain(|key, _| !["LOCAL", "TEXTURE", "SURFACE", "SAMPLER"].contains(&&key[..]));
                    assert_eq!(ours, theirs, "{input} {options:?} sm_{arch} {}", kernel.name);
                }
            }
        }
    });
}

#[test]
fn spills_are_those_that_ptxas_reports() {
    with_toolkit_13_0(|toolkit| {
        // More values alive than registers, and an array that is no spill.
        let values: Vec<u32> = (0..64).collect();
        let loads: String = values.iter().map(|i| format!("ld.volatile.global.u32 %r{i}, [%rd1+{}];\n", 4 * i)).collect();
        let stores: String = values.iter().map(|i| format!("st.volatile.global.u32 [%rd1+{}], %r{i};\n", 4 * i)).collect();
        let head = "(.param .u64 p) {\n.reg .u32 %r<64>; .reg .b64 %rd<3>;\n.local .align 4 .b8 array[64];\nld.param.u64 %rd1, [p];\n";
        for arch in ["75", "80", "90", "100", "120"] {
            let text = format!(
                ".version 9.0\n.target sm_{arch}\n.address_size 64\n.visible .entry spills{head}{loads}{stores}ret; }}\n\
                 .visible .entry array{head}ld.global.u64 %rd2, [%rd1];\nst.local.u32 [%rd2], 7;\nld.local.u32 %r1, [%rd2+4];\n\
                 st.global.u32 [%rd1], %r1;\nret; }}\n"
            );
            toolkit.save("spills.ptx", text.as_bytes());
            let gpu = format!("-arch=sm_{arch}");
            let output = Command::new(toolkit.bin.join("ptxas"))
                .args(["-v", "-maxrregcount=32", &gpu, "spills.ptx", "-o", "spills.cubin"])
                .current_dir(toolkit.dir.path())
                .output()
                .expect("ptxas");
            let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
            let number = |word: &str| -> u64 {
                let before =
                    said.split(word).filter_map(|part| part.trim_end().strip_suffix(" bytes")?.rsplit([' ', ',']).next()?.parse().ok());
                before.max().unwrap_or_else(|| panic!("{word}: {said}"))
            };
            let bytes = toolkit.load("spills.cubin");
            let kernels = Cubin::parse(&bytes).and_then(|cubin| cubin.kernels()).unwrap();
            let spills = |name: &str| kernels.iter().find(|kernel| kernel.name == name).and_then(|kernel| kernel.spills).expect(name);
            assert!(number("spill stores") > 0, "{said}");
            assert_eq!((spills("spills").stores, spills("spills").loads), (number("spill stores"), number("spill loads")), "sm_{arch}");
            assert_eq!(spills("array"), fatbin::Spills::default(), "sm_{arch}");
            assert!(kernels.iter().all(|kernel| kernel.max_registers == Some(32)), "sm_{arch}");
        }
    });
}

#[test]
fn clusters_are_read() {
    with_toolkit_13_0(|toolkit| {
        let text = ".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n.reqnctapercluster 2, 4, 1\n.maxntid 128, 1, 1\n{ ret; }\n";
        let bytes = toolkit.assemble("cluster", text, "90", &[]);
        let kernels = Cubin::parse(&bytes).and_then(|cubin| cubin.kernels()).unwrap();
        assert_eq!(kernels.first().and_then(|kernel| kernel.cluster), Some([2, 4, 1]));
    });
}

#[test]
fn notes_of_the_kernels() {
    with_toolkit(|toolkit| {
        for arch in ARCHES {
            let bytes = toolkit.assemble("notes", &text("kernels.ptx", arch), arch, &[]);
            let cubin = Cubin::parse(&bytes).unwrap();
            let kernels = cubin.kernels().unwrap();
            let kernel = |name: &str| kernels.iter().find(|kernel| kernel.name == name).unwrap();
            assert_eq!(kernel("bounded").max_threads, Some([128, 2, 1]));
            assert_eq!(kernel("bounded").barriers, 1);
            assert_eq!(kernel("bounded").parameters, Some(12));
            assert_eq!(kernel("exact").required_threads, Some([32, 1, 1]));
            assert_eq!(kernel("stacked").stack, 400);
            assert_eq!((kernel("empty").max_threads, kernel("empty").barriers), (None, 0));
            let mut variables: Vec<_> = cubin.variables().map(|symbol| (symbol.name, symbol.size)).collect();
            variables.sort_unstable();
            assert_eq!(variables, [("coefficients", 64), ("counter", 4), ("hidden", 8), ("table", 40)]);
            // Of the suffixes, only the `a` is in the file.
            let suffix = if arch.ends_with('a') { "a" } else { "" };
            assert_eq!(cubin.arch().to_string(), format!("sm_{}{suffix}", arch.trim_end_matches(['a', 'f'])));
        }
    });
}

/// What LLVM declares as a function becomes what nvcc declares as a kernel: the marked cubin is the one that ptxas makes of the right
/// declaration, but for the place of names in the string table.
#[test]
fn references_to_kernels_are_those_of_ptxas() {
    with_toolkit(|toolkit| {
        let text = |arch: &str, declared: &str| {
            format!(
                ".version 8.8\n.target sm_{arch}\n.address_size 64\n.extern {declared} child(.param .b64 a);\n\
                 .extern .func (.param .b32 r) launch(.param .b64 k, .param .b64 p);\n\
                 .visible .global .align 8 .u64 table[1] = {{child}};\n\
                 .visible .entry parent(.param .u64 p)\n{{\n.reg .b64 %d;\nmov.b64 %d, child;\n{{\n.param .b64 k;\n.param .b64 q;\n\
                 .param .b32 r;\nst.param.b64 [k], %d;\nst.param.b64 [q], 0;\ncall.uni (r), launch, (k, q);\n}}\nret;\n}}\n"
            )
        };
        for arch in ["75", "80", "90", "90a", "100", "120"] {
            let function = toolkit.assemble("function", &text(arch, ".func"), arch, &["-c"]);
            let kernel = toolkit.assemble("kernel", &text(arch, ".entry"), arch, &["-c"]);
            let marked = Cubin::with_kernels_marked(&function, |name| name == "child").unwrap().expect(arch);
            let [marked, kernel] = [&marked, &kernel].map(|bytes| Cubin::parse(bytes).unwrap());
            assert_eq!(marked.symbols(), kernel.symbols(), "sm_{arch}");
            let mut compared = 0;
            for section in marked.sections().iter().filter(|section| section.name.starts_with(".rel") || section.name == ".nv.callgraph") {
                assert_eq!(Some(section.data), kernel.section(section.name), "{} of sm_{arch}", section.name);
                compared += 1;
            }
            assert!(compared >= 3, "sm_{arch}");
        }
    });
}

#[test]
fn goblin_sees_the_same_cubins() {
    with_toolkit(|toolkit| {
        for arch in ARCHES {
            for (input, options) in [("kernels.ptx", &[][..]), ("calls_out.ptx", &["-c"])] {
                let bytes = toolkit.assemble("goblin", &text(input, arch), arch, options);
                let ours = Cubin::parse(&bytes).unwrap();
                let theirs = goblin::elf::Elf::parse(&bytes).unwrap();
                let sections: Vec<_> =
                    theirs.section_headers.iter().map(|s| (theirs.shdr_strtab.get_at(s.sh_name).unwrap(), s.sh_type, s.sh_size)).collect();
                let our_sections: Vec<_> = ours.sections().iter().map(|s| (s.name, s.kind, s.size)).collect();
                assert_eq!(our_sections, sections);
                for (section, header) in ours.sections().iter().zip(&theirs.section_headers) {
                    if !section.data.is_empty() {
                        let start = header.sh_offset as usize;
                        assert_eq!(section.data, &bytes[start..start + section.data.len()]);
                    }
                }
                let symbols: Vec<_> = theirs
                    .syms
                    .iter()
                    .skip(1)
                    .map(|s| (theirs.strtab.get_at(s.st_name).unwrap(), s.st_size, s.st_value, (s.st_shndx != 0).then_some(s.st_shndx)))
                    .collect();
                let our_symbols: Vec<_> = ours.symbols().iter().map(|s| (s.name, s.size, s.value, s.section)).collect();
                assert_eq!(our_symbols, symbols);
                let kernels = theirs.syms.iter().filter(|s| s.is_function() && s.st_other & 16 != 0);
                let ours = ours.symbols().iter().filter(|s| s.kind == SymbolKind::Kernel).count();
                assert_eq!(ours, kernels.count());
            }
        }
    });
}

#[test]
fn truncated_cubins_are_survived() {
    with_toolkit(|toolkit| {
        let bytes = toolkit.assemble("short", &text("kernels.ptx", "100a"), "100a", &[]);
        for end in 0..bytes.len() {
            if let Ok(cubin) = Cubin::parse(&bytes[..end]) {
                let _ = cubin.kernels();
            }
        }
    });
}

#[test]
fn goblin_sees_the_containers_of_an_object() {
    with_toolkit(|toolkit| {
        let ptx = text("kernels.ptx", "90");
        let cubin = toolkit.assemble("object", &ptx, "90", &[]);
        let one = write(&[image(Kind::Elf, "90", &cubin, Compression::ZSTD)]).unwrap();
        let two = write(&[image(Kind::Ptx, "90", ptx.as_bytes(), Compression::Lz4)]).unwrap();
        toolkit.save("one.fatbin", &one);
        toolkit.save("two.fatbin", &two);
        toolkit.save(
            "host.s",
            b".section .nv_fatbin,\"a\"\n.p2align 4\n.incbin \"one.fatbin\"\n.p2align 6\n.incbin \
              \"two.fatbin\"\n.section .note.GNU-stack\n",
        );
        let output = Command::new("cc").args(["-c", "host.s", "-o", "host.o"]).current_dir(toolkit.dir.path()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let object = toolkit.load("host.o");
        let elf = goblin::elf::Elf::parse(&object).unwrap();
        let section = elf.section_headers.iter().find(|s| elf.shdr_strtab.get_at(s.sh_name) == Some(SECTION_FATBIN)).unwrap();
        let start = section.sh_offset as usize;
        let content = &object[start..start + section.sh_size as usize];
        let in_section: Vec<_> =
            section_containers(content).map(|(offset, container)| (offset + start, container.unwrap().bytes().to_vec())).collect();
        assert_eq!(in_section.iter().map(|(_, bytes)| bytes).collect::<Vec<_>>(), [&one, &two]);
        let in_object: Vec<_> = containers(&object).map(|(offset, container)| (offset, container.unwrap().bytes().to_vec())).collect();
        assert_eq!(in_object, in_section);
    });
}
