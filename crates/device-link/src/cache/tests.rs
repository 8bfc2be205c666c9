//! The cache as a link uses it: what switches it off, what damage does, what a disk that takes nothing does.

use std::ffi::OsString;
use std::path::Path;

use super::*;
use crate::link_line;

/// The options of a line.
pub(crate) fn line(arguments: &[&str], variables: &[(&str, &Path)]) -> Options {
    let env = |name: &str| variables.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_os_str().to_owned());
    let arguments = ["clang-linker-wrapper"].iter().chain(arguments).map(OsString::from).collect();
    link_line::parse(arguments, &env).unwrap().options
}

/// The cache of a link with these options.
pub(crate) fn open<'d>(options: &Options, diagnostics: &'d Diagnostics) -> Cache<'d> {
    Cache::open(options, &|_| None, diagnostics)
}

const KEY: Key = Key::from_bytes([3; 32]);

#[test]
fn where_it_lies() {
    let at = |options: &CacheOptions, xdg: &str, home: &str| {
        let env = |name: &str| match name {
            "XDG_CACHE_HOME" if !xdg.is_empty() => Some(OsString::from(xdg)),
            "HOME" if !home.is_empty() => Some(OsString::from(home)),
            _ => None,
        };
        directory(options, &env).map(|path| path.display().to_string())
    };
    let none = CacheOptions::default();
    let given = CacheOptions { dir: Some(PathBuf::from("/given")), ..CacheOptions::default() };
    let user = tempfile::tempdir().unwrap();
    let (home, below_home) = (user.path().display().to_string(), user.path().join(".cache/warplink").display().to_string());
    let (home, below_home) = (home.as_str(), below_home.as_str());
    for (options, xdg, home, expected) in [
        (&none, "/xdg", home, Some("/xdg/warplink")),
        (&none, "", home, Some(below_home)),
        (&none, "relative", home, Some(below_home)),
        (&none, "", "/no/such/home", None),
        (&none, "", "relative", None),
        (&none, "", "", None),
        (&given, "/xdg", home, Some("/given")),
    ] {
        assert_eq!(at(options, xdg, home).as_deref(), expected, "{xdg} {home}");
    }
}

#[test]
fn what_switches_it_off() {
    let dir = tempfile::tempdir().unwrap();
    let place = format!("--warplink-cache-dir={}", dir.path().join("c").display());
    for (argument, on) in [
        ("-o", true),
        ("--warplink-no-cache", false),
        ("--warplink-cache-size=0", false),
        ("--warplink-cache-size=1M", true),
        ("--save-temps", false),
        ("--dry-run", false),
        ("--wrapper-verbose", false),
        ("--warplink-verbose", true),
    ] {
        let options = line(&[&place, argument, "x"], &[]);
        let diagnostics = Diagnostics::new(&options);
        let cache = open(&options, &diagnostics);
        assert_eq!(cache.is_on(), on, "{argument}");
        cache.put(Kind::Link, &KEY, &[b"x"], &[]);
        assert_eq!(cache.get(Kind::Link, &KEY).is_some(), on, "{argument}");
    }
    for (variable, value, on) in [("WARPLINK_NO_CACHE", "1", false), ("WARPLINK_NO_CACHE", "0", true), ("WARPLINK_CACHE_SIZE", "0", false)]
    {
        let options = line(&[], &[(variable, Path::new(value)), ("WARPLINK_CACHE_DIR", &dir.path().join("d"))]);
        let diagnostics = Diagnostics::new(&options);
        assert_eq!(open(&options, &diagnostics).is_on(), on, "{variable}={value}");
    }
}

#[test]
fn sizes_are_written_as_people_write_them() {
    for (text, expected) in [
        ("0", 0),
        ("4096", 4096),
        ("1K", 1 << 10),
        ("500M", 500 << 20),
        ("2g", 2 << 30),
        ("3GiB", 3 << 30),
        ("3GB", 3 << 30),
        ("1T", 1 << 40),
    ] {
        assert_eq!(line(&[&format!("--warplink-cache-size={text}")], &[]).cache.size, Some(expected), "{text}");
    }
    for wrong in ["", "G", "-1", "1.5G", "1X", "99999999999T"] {
        let arguments = ["clang-linker-wrapper".into(), format!("--warplink-cache-size={wrong}").into()].to_vec();
        let error = link_line::parse(arguments, &|_| None).unwrap_err();
        assert!(error.to_string().contains("expected a size such as 500M or 5G"), "{wrong}: {error}");
    }
}

/// A cache in `dir/c` and what a damaged entry of it does.
fn damaged(wrong: impl Fn(&Path)) -> (bool, bool, bool) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = line(&["--warplink-warn=error=cache-damaged"], &[]);
    options.cache.dir = Some(dir.path().join("c"));
    let diagnostics = Diagnostics::new(&options);
    let cache = open(&options, &diagnostics);
    cache.put(Kind::Link, &KEY, &[b"fat binary"], &[]);
    let path = cache.store.as_ref().unwrap().path(Kind::Link, &KEY);
    wrong(&path);
    let found = cache.get(Kind::Link, &KEY).is_some();
    (found, diagnostics.failed(), path.symlink_metadata().is_ok())
}

#[test]
fn damage_is_a_miss_with_a_warning() {
    assert_eq!(damaged(|_| ()), (true, false, true));
    assert_eq!(damaged(|path| std::fs::remove_file(path).unwrap()), (false, false, false));
    let gone = (false, true, false);
    assert_eq!(damaged(|path| std::fs::write(path, "").unwrap()), gone);
    assert_eq!(damaged(|path| std::fs::write(path, "garbage".repeat(100)).unwrap()), gone);
    let flip = |path: &Path| {
        let mut bytes = std::fs::read(path).unwrap();
        *bytes.last_mut().unwrap() ^= 1;
        std::fs::write(path, bytes).unwrap();
    };
    assert_eq!(damaged(flip), gone);
    let cut = |path: &Path| {
        let bytes = std::fs::read(path).unwrap();
        std::fs::write(path, &bytes[..bytes.len() / 2]).unwrap();
    };
    assert_eq!(damaged(cut), gone);
    let link = |path: &Path| {
        std::fs::remove_file(path).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path).unwrap();
    };
    assert_eq!(damaged(link), gone);
}

#[test]
fn an_entry_under_the_name_of_another_is_damage() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = line(&["--warplink-warn=error=cache-damaged"], &[]);
    options.cache.dir = Some(dir.path().join("c"));
    let diagnostics = Diagnostics::new(&options);
    let cache = open(&options, &diagnostics);
    cache.put(Kind::Link, &KEY, &[b"fat binary"], &[]);
    cache.put(Kind::Code, &KEY, &[b"PTX"], &[]);
    let store = cache.store.as_ref().unwrap();
    std::fs::copy(store.path(Kind::Code, &KEY), store.path(Kind::Link, &KEY)).unwrap();
    assert_eq!(cache.get(Kind::Link, &KEY), None);
    assert!(diagnostics.failed());
    assert_eq!(cache.get(Kind::Code, &KEY).unwrap().section(0), b"PTX");
}

#[test]
fn a_place_that_takes_nothing_is_no_error() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = line(&[], &[]);
    options.cache.dir = Some(dir.path().join("c"));
    options.fatal_warnings = true;
    let diagnostics = Diagnostics::new(&options);
    let cache = open(&options, &diagnostics);
    // As root no permission stops us; a file in the way of the directory does.
    std::fs::write(dir.path().join("c/v1/tmp"), "").unwrap();
    cache.put(Kind::Link, &KEY, &[b"x"], &[]);
    assert_eq!(cache.get(Kind::Link, &KEY), None);
    std::fs::remove_dir_all(dir.path().join("c")).unwrap();
    cache.put(Kind::Link, &KEY, &[b"x"], &[]);
    drop(cache);
    options.cache.dir = Some(PathBuf::from("/proc/no/such/place"));
    assert!(!open(&options, &diagnostics).is_on());
    options.cache.dir = Some(PathBuf::from("/dev/null"));
    assert!(!open(&options, &diagnostics).is_on());
    assert!(!diagnostics.failed());
}

#[test]
fn what_is_too_large_is_not_kept() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = line(&["--warplink-cache-size=1000"], &[]);
    options.cache.dir = Some(dir.path().join("c"));
    let diagnostics = Diagnostics::new(&options);
    let cache = open(&options, &diagnostics);
    cache.put(Kind::Link, &KEY, &[&[0; 501]], &[]);
    assert_eq!(cache.get(Kind::Link, &KEY), None);
    cache.put(Kind::Link, &KEY, &[&[0; 500]], &[]);
    assert!(cache.get(Kind::Link, &KEY).is_some());
}

#[test]
fn statistics_count_entries_and_outcomes() {
    let dir = tempfile::tempdir().unwrap();
    let mut options = line(&["--warplink-cache-size=1G"], &[]);
    options.cache.dir = Some(dir.path().join("c"));
    assert!(Inspection::open(&options.cache, &|_| None).unwrap().is_none());
    let diagnostics = Diagnostics::new(&options);
    for _ in 0..2 {
        let cache = open(&options, &diagnostics);
        assert!(cache.get(Kind::Assembly, &Key::of(b"other")).is_none());
        if cache.get(Kind::Assembly, &KEY).is_none() {
            cache.put(Kind::Assembly, &KEY, &[b"cubin"], &[]);
        }
        assert!(cache.get(Kind::Tool, &KEY).is_none());
    }
    let inspection = Inspection::open(&options.cache, &|_| None).unwrap().unwrap();
    let stats = inspection.stats();
    assert_eq!((stats.directory, stats.limit), (dir.path().join("c"), 1 << 30));
    assert_eq!(stats.kinds[&Kind::Assembly], KindStats { entries: 1, bytes: 88 + 8 + 8 + 5, hits: 1, misses: 3 });
    assert_eq!(stats.kinds[&Kind::Tool], KindStats::default());
    inspection.clear().unwrap();
    assert_eq!(inspection.stats().kinds[&Kind::Assembly], KindStats::default());
}
