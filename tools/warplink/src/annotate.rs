//! `warplink annotate`: records the choices about PTX and the launch guard in objects and archives that are compiled already, or shows what
//! is recorded.

use std::collections::HashSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use device_link::error::{Context, Error, Result};
use device_link::launch_guard;
use offload_object::{Archive, FileKind, OffloadKind, file_kind, set_metadata};
use tempfile::NamedTempFile;

use crate::offload_binary::{for_each_image, guard_value, ptx_value, thin_member_path};

/// The key of an image's strings that holds the choice about PTX.
const KEY: &str = "ptx";

/// A key and its new value; none takes it out.
type Change<'a> = (&'static str, Option<&'a str>);

/// Arguments of `warplink annotate`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Record for which architectures PTX is to be embedded at the link: all, none, or a list such as sm_80,sm_90
    #[arg(long, value_name = "CHOICE", value_parser = ptx_value, required_unless_present_any = ["show", "clear", "launch_guard"])]
    ptx: Option<String>,
    /// Record whether the program is to say on stderr why a launch fails: on or off
    #[arg(long, value_name = "on|off", value_parser = guard_value)]
    launch_guard: Option<String>,
    /// Take out what is recorded
    #[arg(long, conflicts_with_all = ["ptx", "launch_guard"])]
    clear: bool,
    /// Print what is recorded, after any change
    #[arg(long)]
    show: bool,
    /// Objects, archives and offload binaries, which are changed in place; of a thin archive, its members
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
}

/// Changes and shows what `args` asks for. Either all files are changed or, after an error in one of them, none.
pub(crate) fn run(args: &Args) -> Result<()> {
    let all = [(KEY, args.ptx.as_deref()), (launch_guard::KEY, args.launch_guard.as_deref())];
    let changes: Vec<Change> = all.into_iter().filter(|(_, value)| args.clear || value.is_some()).collect();
    if !changes.is_empty() {
        annotate(&args.files, &changes)?;
    }
    if args.show {
        let mut out = String::new();
        for file in &args.files {
            out += &shown(file)?;
        }
        std::io::stdout().write_all(out.as_bytes()).context(|| "standard output")?;
    }
    Ok(())
}

fn annotate(files: &[PathBuf], changes: &[Change]) -> Result<()> {
    let mut seen = HashSet::new();
    let mut ready = Vec::new();
    let mut errors = Vec::new();
    let mut images = 0;
    for file in files {
        let name = file.display().to_string();
        if let Err(error) = prepare(&name, file, changes, &mut seen, &mut ready, &mut images) {
            errors.push(error);
        }
    }
    Error::all(errors)?;
    if images == 0 {
        let names: Vec<_> = files.iter().map(|file| file.display().to_string()).collect();
        eprintln!("warplink: warning: {}: no CUDA device images to annotate", names.join(", "));
    }
    // From here on every new file is complete and on disk beside the old one; what is left is to rename them.
    for (path, new) in ready {
        new.persist(&path).map_err(|error| error.error).context(|| path.display().to_string())?;
    }
    Ok(())
}

/// Writes the changed file beside `path`, or those of the members that it names. Adds to `images` how many CUDA images it has.
fn prepare(
    name: &str,
    path: &Path,
    changes: &[Change],
    seen: &mut HashSet<PathBuf>,
    ready: &mut Vec<(PathBuf, NamedTempFile)>,
    images: &mut usize,
) -> Result<()> {
    // A link stays one, and a file that is named twice is changed once.
    let path = std::fs::canonicalize(path).context(|| name.to_owned())?;
    if !seen.insert(path.clone()) {
        return Ok(());
    }
    let bytes = std::fs::read(&path).context(|| name.to_owned())?;
    if file_kind(&bytes) == FileKind::ThinArchive {
        for member in Archive::parse(&bytes).context(|| name.to_owned())?.members() {
            let member = member.context(|| name.to_owned())?;
            let member_name = format!("{name}({})", String::from_utf8_lossy(member.name));
            if member.nested.is_some() {
                return Err(Error::new(format!(
                    "{member_name}: is an archive of its own, whose members would move; annotate it and make {name} anew"
                )));
            }
            prepare(&member_name, &thin_member_path(&path, member.name), changes, seen, ready, images)?;
        }
        return Ok(());
    }
    let (mut new, mut changed) = (bytes.clone(), 0);
    for (key, value) in changes {
        let (written, count) =
            set_metadata(&new, key, *value).map_err(|error| Error::new(error.0).wrap(culprit(name, &bytes, key, *value)))?;
        (new, changed) = (written, changed + count);
    }
    for_each_image(name, &path, &bytes, &mut |_, image| *images += usize::from(image.offload_kind.contains(OffloadKind::CUDA)))?;
    if changed > 0 {
        let dir = path.parent().unwrap_or(Path::new("/"));
        let mut file = tempfile::Builder::new().prefix(".warplink-").tempfile_in(dir).context(|| name.to_owned())?;
        file.write_all(&new).context(|| name.to_owned())?;
        let permissions = std::fs::metadata(&path).context(|| name.to_owned())?.permissions();
        file.as_file().set_permissions(permissions).context(|| name.to_owned())?;
        ready.push((path, file));
    }
    Ok(())
}

/// The object that cannot be changed: the file, or the archive member at fault.
fn culprit(name: &str, bytes: &[u8], key: &str, value: Option<&str>) -> String {
    let members = Archive::parse(bytes).into_iter().flat_map(|archive| archive.members().flatten());
    let fails = |data: &[u8]| {
        // Members that are no objects at all are no error in an archive.
        !matches!(file_kind(data), FileKind::Text | FileKind::Unknown | FileKind::Empty | FileKind::Cubin | FileKind::Fatbin)
            && set_metadata(data, key, value).is_err()
    };
    let member = members.into_iter().find(|member| member.data.is_some_and(fails));
    member.map_or(name.to_owned(), |member| format!("{name}({})", String::from_utf8_lossy(member.name)))
}

/// One line for each device image: `lib.a(m.o): cuda sm_90: feature=+ptx88, ptx=all`.
fn shown(file: &Path) -> Result<String> {
    let name = file.display().to_string();
    let bytes = std::fs::read(file).context(|| name.clone())?;
    let mut out = String::new();
    for_each_image(&name, file, &bytes, &mut |origin, image| {
        let kinds: Vec<_> = image.offload_kind.names().collect();
        let kinds = if kinds.is_empty() { "none".to_owned() } else { kinds.join("+") };
        let arch = if image.arch().is_empty() { "generic" } else { image.arch() };
        let recorded = image.strings.iter().filter(|(key, _)| key != "triple" && key != "arch");
        let mut recorded: Vec<_> = recorded.map(|(key, value)| format!("{key}={}", value.escape_debug())).collect();
        recorded.sort();
        let recorded = if recorded.is_empty() { "nothing recorded".to_owned() } else { recorded.join(", ") };
        out += &format!("{origin}: {kinds} {arch}: {recorded}\n");
    })?;
    if out.is_empty() {
        out = format!("{name}: no device images\n");
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use offload_object::{ImageKind, ImageSpec, write_v1};

    use super::*;

    fn binary(kind: OffloadKind, arch: &str) -> Vec<u8> {
        write_v1(&ImageSpec {
            image_kind: ImageKind::Bitcode,
            offload_kind: kind,
            flags: 0,
            strings: vec![("arch".into(), arch.into()), ("triple".into(), "t".into())],
            image: b"BC\xc0\xde".to_vec(),
        })
    }

    fn scratch() -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let both = [binary(OffloadKind::CUDA, "sm_90"), binary(OffloadKind::HIP, "gfx90a")].concat();
        std::fs::write(dir.path().join("a.bin"), both).unwrap();
        std::fs::write(dir.path().join("b.bin"), binary(OffloadKind::CUDA, "sm_80")).unwrap();
        dir
    }

    fn paths(dir: &Path, names: &[&str]) -> Vec<PathBuf> {
        names.iter().map(|name| dir.join(name)).collect()
    }

    /// What is shown of a file, without the directory.
    fn show(dir: &Path, name: &str) -> String {
        shown(&dir.join(name)).unwrap().replace(&format!("{}/", dir.display()), "")
    }

    fn names_in(dir: &Path) -> Vec<String> {
        let mut names: Vec<_> = std::fs::read_dir(dir).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn files_are_changed_in_place_and_back() {
        let dir = scratch();
        let dir = dir.path();
        std::os::unix::fs::symlink("b.bin", dir.join("link")).unwrap();
        std::fs::set_permissions(dir.join("b.bin"), std::fs::Permissions::from_mode(0o751)).unwrap();
        let old = std::fs::read(dir.join("b.bin")).unwrap();
        annotate(&paths(dir, &["a.bin", "link", "b.bin"]), &[(KEY, Some("sm_80,sm_90"))]).unwrap();
        assert_eq!(show(dir, "a.bin"), "a.bin: cuda sm_90: ptx=sm_80,sm_90\na.bin: hip gfx90a: nothing recorded\n");
        assert_eq!(show(dir, "b.bin"), "b.bin: cuda sm_80: ptx=sm_80,sm_90\n");
        assert!(std::fs::symlink_metadata(dir.join("link")).unwrap().is_symlink());
        assert_eq!(std::fs::metadata(dir.join("b.bin")).unwrap().permissions().mode() & 0o7777, 0o751);
        annotate(&paths(dir, &["b.bin"]), &[(launch_guard::KEY, Some("off")), (KEY, None)]).unwrap();
        assert_eq!(show(dir, "b.bin"), "b.bin: cuda sm_80: launch-guard=off\n");
        annotate(&paths(dir, &["b.bin"]), &[(launch_guard::KEY, None)]).unwrap();
        assert_eq!(std::fs::read(dir.join("b.bin")).unwrap(), old);
        assert_eq!(names_in(dir), ["a.bin", "b.bin", "link"]);
    }

    #[test]
    fn one_error_and_nothing_is_changed() {
        let dir = scratch();
        let dir = dir.path();
        let old = std::fs::read(dir.join("a.bin")).unwrap();
        std::fs::write(dir.join("text"), "no object\n").unwrap();
        std::fs::write(dir.join("cut.bin"), &old[..100]).unwrap();
        let error = annotate(&paths(dir, &["a.bin", "text", "cut.bin", "nope"]), &[(KEY, Some("all"))]).unwrap_err();
        let texts: Vec<_> = error.each().iter().map(|error| error.text().replace(&format!("{}/", dir.display()), "")).collect();
        let expected = [
            "text: not an object, an archive or an offload binary",
            "cut.bin: offload binary goes past the end of its section",
            "nope: no such file or directory",
        ];
        assert_eq!(texts, expected);
        assert_eq!(std::fs::read(dir.join("a.bin")).unwrap(), old);
        assert_eq!(names_in(dir), ["a.bin", "b.bin", "cut.bin", "text"]);
    }

    fn ar() -> Option<PathBuf> {
        let dirs = std::env::var_os("LLVM").into_iter().chain(std::env::var_os("PATH"));
        let dirs: Vec<PathBuf> = dirs.flat_map(|dirs| std::env::split_paths(&dirs).collect::<Vec<_>>()).collect();
        let found = dirs.iter().flat_map(|dir| [dir.join("llvm-ar"), dir.join("ar")]).find(|path| path.is_file());
        if found.is_none() {
            eprintln!("skipped: no ar");
        }
        found
    }

    #[test]
    fn archives_thin_and_not() {
        let Some(ar) = ar() else { return };
        let dir = scratch();
        let dir = dir.path();
        let run = |args: &[&str]| assert!(Command::new(&ar).current_dir(dir).args(args).status().unwrap().success());
        std::fs::write(dir.join("notes.txt"), "not an object\n").unwrap();
        run(&["rc", "lib.a", "a.bin", "notes.txt", "b.bin"]);
        annotate(&paths(dir, &["lib.a"]), &[(KEY, Some("all"))]).unwrap();
        assert_eq!(
            show(dir, "lib.a"),
            "lib.a(a.bin): cuda sm_90: ptx=all\nlib.a(a.bin): hip gfx90a: nothing recorded\nlib.a(b.bin): cuda sm_80: ptx=all\n"
        );
        assert_eq!(show(dir, "b.bin"), "b.bin: cuda sm_80: nothing recorded\n");

        std::fs::create_dir(dir.join("sub")).unwrap();
        std::fs::rename(dir.join("b.bin"), dir.join("sub/b.bin")).unwrap();
        run(&["rcT", "thin.a", "a.bin", "sub/b.bin"]);
        let index = std::fs::read(dir.join("thin.a")).unwrap();
        annotate(&paths(dir, &["thin.a"]), &[(KEY, Some("none"))]).unwrap();
        assert_eq!(show(dir, "sub/b.bin"), "sub/b.bin: cuda sm_80: ptx=none\n");
        assert!(show(dir, "thin.a").starts_with("thin.a(a.bin): cuda sm_90: ptx=none\n"));
        assert_eq!(std::fs::read(dir.join("thin.a")).unwrap(), index);

        std::fs::write(dir.join("bad.bin"), &binary(OffloadKind::CUDA, "sm_80")[..100]).unwrap();
        run(&["rc", "bad.a", "a.bin", "bad.bin"]);
        let error = annotate(&paths(dir, &["bad.a"]), &[(KEY, Some("all"))]).unwrap_err().text();
        assert!(error.ends_with("bad.a(bad.bin): offload binary goes past the end of its section"), "{error}");
    }

    #[test]
    fn command_line() {
        use clap::Parser;
        #[derive(Debug, Parser)]
        struct Line {
            #[command(flatten)]
            args: Args,
        }
        let parse = |words: &[&str]| Line::try_parse_from([&["annotate"], words].concat()).map(|line| line.args);
        assert_eq!(parse(&["--ptx=90,80", "a.o"]).unwrap().ptx.as_deref(), Some("sm_90,sm_80"));
        assert!(parse(&["--show", "a.o"]).unwrap().ptx.is_none());
        assert_eq!(parse(&["--launch-guard=0", "a.o"]).unwrap().launch_guard.as_deref(), Some("off"));
        assert!(parse(&["--clear", "a.o"]).unwrap().clear);
        for wrong in
            [&["a.o"][..], &["--ptx=all"], &["--ptx=maybe", "a.o"], &["--clear", "--ptx=all", "a.o"], &["--launch-guard=maybe", "a.o"]]
        {
            assert!(parse(wrong).is_err(), "{wrong:?}");
        }
    }
}
