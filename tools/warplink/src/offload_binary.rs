//! `llvm-offload-binary` and `clang-offload-packager`: packs device images for clang to embed, and takes them out again.
//!
//! Option for option and byte for byte LLVM 22's tool. What is ours: with `WARPLINK_PTX` set when a file is compiled, each CUDA image gets
//! the choice recorded under the key `ptx`, unless the line names one itself. That is the only place where a choice about PTX can be recorded
//! without a change to the build's own files. `WARPLINK_LAUNCH_GUARD` is recorded likewise, under the key `launch-guard`.

mod key_order;
mod static_archive;

use std::ffi::{OsStr, OsString};
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use device_link::error::{Context, Error, Result};
use device_link::launch_guard;
use fatbin::Arch;
use offload_object::{
    Archive, FileKind, HostObject, ImageKind, ImageSpec, OffloadImage, OffloadKind, file_kind, parse_section, write_v1, write_v2, write_v3,
};

const HELP: &str = "\
Packs device images into one file for clang to embed in a host object, or takes them out of an object, an archive or such a file.

usage: llvm-offload-binary -o FILE --image=KEY=VALUE,... [--image=...]
       llvm-offload-binary FILE [--image=KEY=VALUE,...] [--archive]

  -o FILE                 write the packed images to FILE
  --image=KEY=VALUE,...   an image to pack: file=FILE, kind=cuda|hip|openmp|sycl, triple=TRIPLE, arch=ARCH, and any key to record;
                          or the images to take out: those that have all the values, into file=FILE if that is given
  --archive               take out into a static archive
  --help, --version

With WARPLINK_PTX=all, none or architectures such as sm_80,sm_90 the choice is recorded in each CUDA image, for warplink to find at the link,
as it is with WARPLINK_LAUNCH_GUARD=on or off.
";

/// What the line asks for.
#[derive(Debug, Default, PartialEq, Eq)]
struct Args {
    output: Option<PathBuf>,
    input: Option<PathBuf>,
    images: Vec<OsString>,
    archive: bool,
    help: bool,
    version: bool,
    container: Container,
}

/// The container to write. All but the first are for tests of what reads them: LLVM 22 itself reads version 1 only.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Container {
    /// One binary for each image, as LLVM 15 to 22 write them.
    #[default]
    V1,
    /// One binary for all, as LLVM 23 writes it.
    V2,
    /// One binary for all, as LLVM 24 writes it.
    V3,
    /// The same, compressed with zstd.
    V3Compressed,
}

impl Container {
    fn named(name: &str) -> Result<Self> {
        Ok(match name {
            "1" => Container::V1,
            "2" => Container::V2,
            "3" => Container::V3,
            "3-compressed" => Container::V3Compressed,
            _ => return Err(Error::new(format!("--warplink-container={name}: expected 1, 2, 3 or 3-compressed"))),
        })
    }

    fn write(self, images: &[ImageSpec]) -> Vec<u8> {
        match self {
            Container::V1 => images.iter().flat_map(write_v1).collect(),
            Container::V2 => write_v2(images),
            Container::V3 => write_v3(images, None),
            Container::V3Compressed => write_v3(images, Some(3)),
        }
    }
}

/// Runs the tool. `args` begins with the program's name; `ptx` is what `WARPLINK_PTX` holds, `guard` what `WARPLINK_LAUNCH_GUARD` and
/// `container` what `WARPLINK_CONTAINER` does.
pub(crate) fn run(args: Vec<OsString>, ptx: Option<&str>, guard: Option<&str>, container: Option<&str>) -> Result<()> {
    let mut args = parse(device_link::response::expand(args)?.0.into_iter().skip(1))?;
    if let (Container::V1, Some(name)) = (args.container, container.filter(|name| !name.is_empty())) {
        args.container = Container::named(name)?;
    }
    if args.version {
        println!("warplink {} (takes the options of llvm-offload-binary 22)", env!("CARGO_PKG_VERSION"));
        return Ok(());
    }
    match (&args.output, &args.input) {
        (Some(_), Some(input)) if !args.help => {
            Err(Error::new(format!("{}: an input to take images from and -o exclude each other", input.display())))
        }
        (Some(output), None) if !args.help => pack(&args.images, output, ptx, guard, args.container),
        (None, Some(input)) if !args.help => unpack(input, &args.images, args.archive),
        _ => {
            print!("{HELP}");
            Ok(())
        }
    }
}

/// LLVM's command lines: one or two dashes, values after `=` or in the next word, the last `-o` counts.
fn parse(words: impl Iterator<Item = OsString>) -> Result<Args> {
    let mut args = Args::default();
    let mut words = words.peekable();
    let mut only_inputs = false;
    while let Some(word) = words.next() {
        let bytes = word.as_bytes();
        let name = match bytes.strip_prefix(b"--").or_else(|| bytes.strip_prefix(b"-")) {
            Some(b"") if bytes == b"--" && !only_inputs => {
                only_inputs = true;
                continue;
            }
            Some(name) if !name.is_empty() && !only_inputs => name,
            _ => {
                if let Some(first) = args.input.replace(PathBuf::from(&word)) {
                    return Err(Error::new(format!("{}: only one input is possible, and {} is one", word.display(), first.display())));
                }
                continue;
            }
        };
        let (name, value) = match name.iter().position(|&byte| byte == b'=') {
            Some(at) => (&name[..at], Some(OsStr::from_bytes(&name[at + 1..]).to_owned())),
            None => (name, None),
        };
        let mut value_or_next =
            || value.clone().or_else(|| words.next()).ok_or_else(|| Error::new(format!("{}: value is missing", word.display())));
        match name {
            b"o" => args.output = Some(value_or_next()?.into()),
            b"image" => args.images.push(value_or_next()?),
            b"warplink-container" => args.container = Container::named(&value_or_next()?.to_string_lossy())?,
            b"archive" => args.archive = value.is_none_or(|value| value != "false" && value != "0"),
            b"help" | b"h" | b"help-hidden" => args.help = true,
            b"version" => args.version = true,
            _ => return Err(Error::new(format!("{}: unknown option", word.display()))),
        }
    }
    Ok(args)
}

/// The keys and values of one `--image`. A key that comes again adds its value after a comma.
struct ImageArgs<'a> {
    text: &'a OsStr,
    pairs: Vec<(&'a [u8], Vec<u8>)>,
}

impl<'a> ImageArgs<'a> {
    fn new(text: &'a OsStr) -> Self {
        let mut pairs: Vec<(&[u8], Vec<u8>)> = Vec::new();
        for pair in text.as_bytes().split(|&byte| byte == b',') {
            let (key, value) = match pair.iter().position(|&byte| byte == b'=') {
                Some(at) => (&pair[..at], &pair[at + 1..]),
                None => (pair, &[][..]),
            };
            match pairs.iter_mut().find(|(known, _)| *known == key) {
                Some((_, known)) => known.extend([b",", value].concat()),
                None => pairs.push((key, value.to_vec())),
            }
        }
        ImageArgs { text, pairs }
    }

    fn get(&self, key: &str) -> Option<&[u8]> {
        self.pairs.iter().find(|(known, _)| *known == key.as_bytes()).map(|(_, value)| value.as_slice())
    }

    fn file(&self) -> Option<&OsStr> {
        self.get("file").map(OsStr::from_bytes)
    }

    fn utf8<'b>(&self, bytes: &'b [u8]) -> Result<&'b str> {
        std::str::from_utf8(bytes).map_err(|_| Error::new(format!("--image={}: not UTF-8", self.text.display())))
    }

    /// What is recorded: everything but `file` and `kind`, in the order in which LLVM stores it.
    fn strings(&self) -> Result<Vec<(String, String)>> {
        let keys: Vec<&[u8]> = self.pairs.iter().map(|(key, _)| *key).collect();
        let ordered = key_order::of(&keys).into_iter().filter_map(|index| self.pairs.get(index));
        let recorded = ordered.filter(|(key, _)| !matches!(*key, b"file" | b"kind"));
        recorded.map(|(key, value)| Ok((self.utf8(key)?.to_owned(), self.utf8(value)?.to_owned()))).collect()
    }
}

fn pack(images: &[OsString], output: &Path, ptx: Option<&str>, guard: Option<&str>, container: Container) -> Result<()> {
    let ptx = ptx.filter(|value| !value.trim().is_empty());
    let ptx = ptx.map(|value| ptx_value(value).map_err(|text| Error::new(format!("WARPLINK_PTX: {text}")))).transpose()?;
    let guard = guard.filter(|value| !value.trim().is_empty());
    let guard = guard.map(|value| guard_value(value).map_err(|text| Error::new(format!("WARPLINK_LAUNCH_GUARD: {text}")))).transpose()?;
    let mut packed = Vec::new();
    for text in images {
        let mut args = ImageArgs::new(text);
        let kind = OffloadKind::from_name(&String::from_utf8_lossy(args.get("kind").unwrap_or_default()));
        if let (Some(ptx), OffloadKind::CUDA, None) = (&ptx, kind, args.get("ptx")) {
            args.pairs.push((b"ptx", ptx.clone().into_bytes()));
        }
        if let (Some(guard), OffloadKind::CUDA, None) = (&guard, kind, args.get(launch_guard::KEY)) {
            args.pairs.push((launch_guard::KEY.as_bytes(), guard.clone().into_bytes()));
        }
        let files = args.file().ok_or_else(|| Error::new(format!("--image={}: 'file' is missing", text.display())))?;
        for file in files.as_bytes().split(|&byte| byte == b',').map(OsStr::from_bytes) {
            let image = read(Path::new(file))?;
            packed.push(ImageSpec { image_kind: image_kind(file, &image), offload_kind: kind, flags: 0, strings: args.strings()?, image });
        }
    }
    write(output, &container.write(&packed))
}

/// clang names bitcode `.o`, so contents come first; for all else the name says it.
fn image_kind(file: &OsStr, image: &[u8]) -> ImageKind {
    if file_kind(image) == FileKind::Bitcode {
        return ImageKind::Bitcode;
    }
    let name = Path::new(file).file_name().unwrap_or_default().to_string_lossy();
    name.rsplit_once('.').map_or(ImageKind::None, |(_, extension)| ImageKind::from_extension(extension))
}

/// `on` or `off` in any usual spelling, as it is recorded.
pub(crate) fn guard_value(text: &str) -> std::result::Result<String, String> {
    match launch_guard::metadata_wants(text) {
        Some(true) => Ok("on".to_owned()),
        Some(false) => Ok("off".to_owned()),
        None => Err(format!("expected on or off, got '{text}'")),
    }
}

/// `all`, `none` or a list of architectures in any usual spelling, as it is recorded: `sm_80,sm_90`.
pub(crate) fn ptx_value(text: &str) -> std::result::Result<String, String> {
    let text = text.trim();
    for word in ["all", "none"] {
        if text.eq_ignore_ascii_case(word) {
            return Ok(word.to_owned());
        }
    }
    let mut archs: Vec<Arch> = Vec::new();
    for word in text.split([',', ';', ' ']).filter(|word| !word.is_empty()) {
        let name = ["-real", "-virtual", "+PTX"].iter().find_map(|suffix| word.strip_suffix(suffix)).unwrap_or(word);
        let arch = name.parse().map_err(|_| format!("'{word}' is neither all, none nor an architecture such as sm_90"))?;
        if !archs.contains(&arch) {
            archs.push(arch);
        }
    }
    if archs.is_empty() {
        return Err("expected all, none or architectures such as sm_90".to_owned());
    }
    Ok(archs.iter().map(Arch::to_string).collect::<Vec<_>>().join(","))
}

fn unpack(input: &Path, wanted: &[OsString], archive: bool) -> Result<()> {
    let bytes = read(input)?;
    let mut images: Vec<(String, ImageSpec)> = Vec::new();
    for_each_image(&input.display().to_string(), input, &bytes, &mut |origin, image| images.push((origin.to_owned(), image.into())))?;
    if wanted.is_empty() {
        return extract(input, images.iter().map(|(_, image)| image));
    }
    for text in wanted {
        let args = ImageArgs::new(text);
        let matches = |image: &ImageSpec| {
            let value = |key: &[u8]| image.strings.iter().find(|(known, _)| known.as_bytes() == key).map_or("", |(_, value)| value);
            args.pairs.iter().all(|(key, wanted)| match *key {
                b"file" => true,
                b"kind" => OffloadKind::from_name(&String::from_utf8_lossy(wanted)) == image.offload_kind,
                key => value(key).as_bytes() == wanted,
            })
        };
        let found: Vec<&(String, ImageSpec)> = images.iter().filter(|(_, image)| matches(image)).collect();
        let Some((_, last)) = found.last() else { continue };
        match args.file() {
            Some(file) if archive => {
                let members: Vec<_> = found.iter().map(|(origin, image)| (origin.as_str(), image.image.as_slice())).collect();
                write(Path::new(file), &static_archive::write(&members)?)?;
            }
            None if archive => return Err(Error::new(format!("--image={}: 'file' is missing", text.display()))),
            Some(file) => {
                if found.len() > 1 {
                    eprintln!("warplink: warning: {}: {} images match, the last one is written", file.display(), found.len());
                }
                write(Path::new(file), &last.image)?;
            }
            None => extract(input, found.iter().map(|(_, image)| image))?,
        }
    }
    Ok(())
}

/// Writes images into the current directory, named as LLVM names them.
fn extract<'a>(input: &Path, images: impl Iterator<Item = &'a ImageSpec>) -> Result<()> {
    for (number, image) in images.enumerate() {
        let value = |key: &str| image.strings.iter().find(|(known, _)| known == key).map_or("", |(_, value)| value.as_str());
        let mut name = input.file_stem().unwrap_or_default().to_owned();
        // What is recorded must not lead out of the directory.
        let parts = [value("triple"), value("arch")].map(|part| part.replace('/', "_"));
        for part in parts.iter().filter(|part| !part.is_empty()) {
            name.push(format!("-{part}"));
        }
        name.push(format!(".{number}.{}", image.image_kind.name()));
        write(Path::new(&name), &image.image)?;
    }
    Ok(())
}

/// Calls `visit` with every device image of an object, an archive, a thin archive's members or a bare offload binary, and the name of the
/// object that holds it. `name` is what messages call the file, `path` where thin archives look for their members.
pub(crate) fn for_each_image(name: &str, path: &Path, bytes: &[u8], visit: &mut impl FnMut(&str, &OffloadImage)) -> Result<()> {
    match file_kind(bytes) {
        FileKind::Text | FileKind::Unknown | FileKind::Empty | FileKind::Cubin | FileKind::Fatbin => {
            Err(Error::new(format!("{name}: not an object, an archive or an offload binary")))
        }
        _ => visit_file(name, path, bytes, visit),
    }
}

fn visit_file(name: &str, path: &Path, bytes: &[u8], visit: &mut impl FnMut(&str, &OffloadImage)) -> Result<()> {
    let context = || name.to_owned();
    match file_kind(bytes) {
        FileKind::OffloadBinary => parse_section(bytes).context(context)?.iter().for_each(|image| visit(name, image)),
        FileKind::ElfRelocatable | FileKind::ElfShared | FileKind::ElfExecutable | FileKind::Coff => {
            for section in HostObject::parse(bytes).context(context)?.offload_sections().context(context)? {
                parse_section(section).context(context)?.iter().for_each(|image| visit(name, image));
            }
        }
        FileKind::Archive | FileKind::ThinArchive => {
            for member in Archive::parse(bytes).context(context)?.members() {
                let member = member.context(context)?;
                let member_name = format!("{name}({})", String::from_utf8_lossy(member.name));
                match member.data {
                    Some(data) => visit_file(&member_name, path, data, visit)?,
                    None => {
                        let path = thin_member_path(path, member.name);
                        visit_file(&member_name, &path, &std::fs::read(&path).context(|| member_name.clone())?, visit)?;
                    }
                }
            }
        }
        FileKind::Bitcode if bytes.windows(20).any(|window| window == b"llvm.embedded.object") => {
            return Err(Error::new(format!("{name}: host bitcode; device images in it are seen by compilers and linkers only")));
        }
        _ => {}
    }
    Ok(())
}

/// Where the member of a thin archive lies.
pub(crate) fn thin_member_path(archive: &Path, member: &[u8]) -> PathBuf {
    archive.parent().unwrap_or(Path::new("")).join(OsStr::from_bytes(member))
}

/// A file's contents; `-` is standard input.
fn read(path: &Path) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    let result = match path.as_os_str().as_bytes() {
        b"-" => std::io::stdin().read_to_end(&mut bytes).map(|_| bytes),
        _ => std::fs::read(path),
    };
    result.context(|| path.display().to_string())
}

/// Writes a file that appears only when it is complete; `-` is standard output, and devices and pipes are written to directly.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let name = || path.display().to_string();
    if path.as_os_str() == "-" {
        return std::io::stdout().write_all(bytes).context(name);
    }
    let path = &std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    if std::fs::metadata(path).is_ok_and(|metadata| !metadata.is_file()) {
        return std::fs::write(path, bytes).context(name);
    }
    let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mode = std::fs::metadata(path).map_or(0o666, |metadata| metadata.permissions().mode());
    let file = tempfile::Builder::new().prefix(".warplink-").permissions(std::fs::Permissions::from_mode(mode & 0o777)).tempfile_in(dir);
    let mut file = file.context(name)?;
    file.write_all(bytes).context(name)?;
    file.persist(path).map_err(|error| error.error).context(name)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    fn args(words: &[&str]) -> Result<Args> {
        parse(words.iter().map(OsString::from))
    }

    #[test]
    fn command_lines_as_llvm_takes_them() {
        let expected = Args { output: Some("out".into()), images: vec!["a=1".into(), "b=2".into()], ..Args::default() };
        for words in [
            &["-o", "out", "--image=a=1", "--image=b=2"][..],
            &["-o=out", "-image=a=1", "-image", "b=2"],
            &["--image", "a=1", "-o", "other", "--o", "out", "--image=b=2"],
        ] {
            assert_eq!(args(words).unwrap(), expected);
        }
        let expected = Args { input: Some("-".into()), archive: true, ..Args::default() };
        assert_eq!(args(&["-", "--archive"]).unwrap(), expected);
        assert_eq!(args(&["-archive=true", "--", "-"]).unwrap(), expected);
        assert_eq!(args(&["--", "-o"]).unwrap().input, Some("-o".into()));
        assert!(args(&["--help"]).unwrap().help);
        assert_eq!(args(&["--imag=x"]).unwrap_err().text(), "--imag=x: unknown option");
        assert_eq!(args(&["-o"]).unwrap_err().text(), "-o: value is missing");
        assert_eq!(args(&["a", "b"]).unwrap_err().text(), "b: only one input is possible, and a is one");
    }

    #[test]
    fn choices_about_ptx() {
        for (text, expected) in [
            ("all", Ok("all")),
            (" None ", Ok("none")),
            ("sm_90", Ok("sm_90")),
            ("sm_90, 80;9.0+PTX compute_86", Ok("sm_90,sm_80,sm_86")),
            ("90a,100f,80-virtual", Ok("sm_90a,sm_100f,sm_80")),
            ("", Err("expected all, none or architectures such as sm_90")),
            ("yes", Err("'yes' is neither all, none nor an architecture such as sm_90")),
            ("sm_90,all", Err("'all' is neither all, none nor an architecture such as sm_90")),
        ] {
            assert_eq!(ptx_value(text).as_deref().map_err(String::as_str), expected, "{text}");
        }
    }

    /// LLVM's tool, or a line that says that there is none.
    fn llvm() -> Option<PathBuf> {
        let dirs = std::env::var_os("LLVM").into_iter().chain(std::env::var_os("PATH"));
        let dirs: Vec<PathBuf> = dirs.flat_map(|dirs| std::env::split_paths(&dirs).collect::<Vec<_>>()).collect();
        let found = dirs.iter().map(|dir| dir.join("llvm-offload-binary")).find(|path| path.is_file());
        if found.is_none() {
            eprintln!("skipped: no llvm-offload-binary");
        }
        found
    }

    fn ours(dir: &Path, words: &[&str], ptx: Option<&str>) -> Result<()> {
        // Paths are made absolute, since tests share one current directory.
        let absolute = |word: &str| word.replace("@/", &format!("{}/", dir.display()));
        run(
            std::iter::once("llvm-offload-binary".to_owned()).chain(words.iter().map(|word| absolute(word))).map(OsString::from).collect(),
            ptx,
            None,
            None,
        )
    }

    fn theirs(dir: &Path, tool: &Path, words: &[&str]) {
        let words = words.iter().map(|word| word.replace("@/", &format!("{}/", dir.display())));
        assert!(Command::new(tool).args(words).status().unwrap().success());
    }

    fn scratch() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("a.o"), b"BC\xc0\xde bitcode that is named as an object").unwrap();
        std::fs::write(dir.path().join("b.cubin"), b"odd").unwrap();
        dir
    }

    #[test]
    fn same_bytes_as_llvm() {
        let Some(tool) = llvm() else { return };
        let dir = scratch();
        let dir = dir.path();
        let many: String = (0..60).map(|i| format!(",key{i}={i},k{}={i}", i * i)).collect();
        let long: String =
            (1..64).map(|len| format!(",{}=x", &"abcdefghijklmnopqrstuvwxyz0123456789_-ABCDEFGHIJKLMNOPQRSTUVWXYZ+"[..len])).collect();
        for images in [
            &["--image=file=@/a.o,triple=nvptx64-nvidia-cuda,arch=sm_80,kind=cuda,feature=+ptx88"][..],
            &["--image=file=@/a.o,triple=t,arch=sm_80,kind=cuda", "--image=kind=hip,arch=gfx90a:xnack+,file=@/b.cubin"],
            &["--image=file=@/a.o,file=@/b.cubin,triple=t,triple=u,kind=sycl"],
            &["--image=file=@/b.cubin,triple=t,novalue,=k,,arch="],
            &["--image=file=@/b.cubin,ptx=sm_90,ptx=sm_80,zeta=1,kind=cuda"],
            &[&format!("--image=file=@/b.cubin,triple=t{many}")],
            &[&format!("--image=file=@/b.cubin,triple=t{long}")],
            &[],
        ] {
            theirs(dir, &tool, &[&["-o", "@/theirs"], images].concat());
            ours(dir, &[&["-o", "@/ours"], images].concat(), None).unwrap();
            let [theirs, ours] = ["theirs", "ours"].map(|name| std::fs::read(dir.join(name)).unwrap());
            assert!(ours == theirs, "{images:?}");
        }
        // A recorded choice is as if the line had named it.
        theirs(dir, &tool, &["-o", "@/theirs", "--image=file=@/a.o,triple=t,arch=sm_80,kind=cuda,ptx=sm_90,ptx=sm_80"]);
        ours(dir, &["-o", "@/ours", "--image=file=@/a.o,triple=t,arch=sm_80,kind=cuda"], Some("90;80")).unwrap();
        assert_eq!(std::fs::read(dir.join("ours")).unwrap(), std::fs::read(dir.join("theirs")).unwrap());
    }

    fn recorded(file: &Path) -> Vec<Option<String>> {
        let bytes = std::fs::read(file).unwrap();
        parse_section(&bytes).unwrap().iter().map(|image| image.get("ptx").map(str::to_owned)).collect()
    }

    #[test]
    fn ptx_is_recorded_in_cuda_images_that_do_not_say() {
        let dir = scratch();
        let images =
            ["kind=cuda", "kind=cuda,ptx=none", "kind=hip", "kind=openmp"].map(|more| format!("--image=file=@/a.o,triple=t,{more}"));
        let words: Vec<&str> = ["-o", "@/out"].into_iter().chain(images.iter().map(String::as_str)).collect();
        let out = dir.path().join("out");
        ours(dir.path(), &words, Some("All")).unwrap();
        assert_eq!(recorded(&out), [Some("all".into()), Some("none".into()), None, None]);
        ours(dir.path(), &words, Some(" ")).unwrap();
        assert_eq!(recorded(&out), [None, Some("none".into()), None, None]);
        let error = ours(dir.path(), &words, Some("sm_9000000000000")).unwrap_err();
        assert_eq!(error.text(), "WARPLINK_PTX: 'sm_9000000000000' is neither all, none nor an architecture such as sm_90");
    }

    #[test]
    fn images_are_taken_out_again() {
        let dir = scratch();
        let path = |name: &str| dir.path().join(name);
        ours(
            dir.path(),
            &["-o", "@/in", "--image=file=@/a.o,triple=t,arch=sm_80,kind=cuda", "--image=file=@/b.cubin,triple=t,arch=sm_90,kind=cuda"],
            None,
        )
        .unwrap();
        ours(dir.path(), &["@/in", "--image=file=@/80,arch=sm_80,kind=cuda", "--image=file=@/last,triple=t"], None).unwrap();
        assert_eq!(std::fs::read(path("80")).unwrap(), std::fs::read(path("a.o")).unwrap());
        assert_eq!(std::fs::read(path("last")).unwrap(), b"odd");
        ours(dir.path(), &["@/in", "--image=file=@/hip,kind=hip", "--image=file=@/other,arch=sm_75"], None).unwrap();
        assert!(!path("hip").exists() && !path("other").exists());

        ours(dir.path(), &["@/in", "--archive", "--image=file=@/all.a,triple=t"], None).unwrap();
        let bytes = std::fs::read(path("all.a")).unwrap();
        let members: Vec<_> = Archive::parse(&bytes).unwrap().members().map(|member| member.unwrap()).collect();
        assert_eq!(
            members.iter().map(|member| (member.name, member.data.unwrap().len())).collect::<Vec<_>>(),
            [(&b"in"[..], 39), (b"in", 3)]
        );

        let error = |words: &[&str]| ours(dir.path(), words, None).unwrap_err().text().replace(&format!("{}/", dir.path().display()), "@/");
        assert_eq!(error(&["@/nope"]), "@/nope: no such file or directory");
        assert_eq!(error(&["@/b.cubin"]), "@/b.cubin: not an object, an archive or an offload binary");
        assert_eq!(error(&["-o", "@/x", "@/in"]), "@/in: an input to take images from and -o exclude each other");
        assert_eq!(error(&["-o", "@/x", "--image=triple=t"]), "--image=triple=t: 'file' is missing");
        assert_eq!(error(&["-o", "@/x", "--image=file=@/nope"]), "@/nope: no such file or directory");
        assert_eq!(error(&["-o", "@/no/x", "--image=file=@/a.o"]), "@/no/x: no such file or directory");
        assert_eq!(error(&["@/in", "--archive", "--image=arch=sm_80"]), "--image=arch=sm_80: 'file' is missing");
        assert!(!path("x").exists());
    }

    #[test]
    fn files_keep_their_mode_and_devices_are_written_to() {
        let dir = scratch();
        let out = dir.path().join("out");
        std::fs::write(&out, b"").unwrap();
        std::fs::set_permissions(&out, std::fs::Permissions::from_mode(0o640)).unwrap();
        write(&out, b"new").unwrap();
        assert_eq!(std::fs::metadata(&out).unwrap().permissions().mode() & 0o777, 0o640);
        write(Path::new("/dev/null"), b"gone").unwrap();
        assert!(std::fs::metadata("/dev/null").is_ok_and(|metadata| !metadata.is_file()));
        std::os::unix::fs::symlink("out", dir.path().join("link")).unwrap();
        write(&dir.path().join("link"), b"through").unwrap();
        assert_eq!(std::fs::read(&out).unwrap(), b"through");
    }
}
