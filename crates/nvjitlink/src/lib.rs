//! NVIDIA's nvJitLink, the user's own copy, opened at run time and never linked in: PTX and cubins in, one cubin out, without a process.
//!
//! A crate of its own, beside `llvm-lto` the only one that may use `unsafe`, so that calls into somebody else's library are in one small
//! place: the names and types below are those of NVIDIA's documentation (docs.nvidia.com/cuda/nvjitlink), and nothing here knows of a link.
//! libnvptxcompiler, which has a similar interface, comes as a static library only and cannot be opened.
#![allow(unsafe_code)]

use std::ffi::{CStr, CString, OsStr, c_char, c_int, c_uint, c_void};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;
use std::sync::{Mutex, PoisonError};

type Handle = *mut c_void;
/// `nvJitLinkResult`.
type Status = c_int;

const SUCCESS: Status = 0;

/// What an input is: `nvJitLinkInputType`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InputKind {
    /// Machine code of a device, relocatable or not.
    Cubin,
    /// PTX, assembled first.
    Ptx,
}

impl InputKind {
    fn number(self) -> c_int {
        match self {
            InputKind::Cubin => 1,
            InputKind::Ptx => 2,
        }
    }
}

/// One input of a link.
#[derive(Debug, Clone, Copy)]
pub struct Input<'a> {
    /// What it is.
    pub kind: InputKind,
    /// What messages call it.
    pub name: &'a str,
    /// Its bytes.
    pub bytes: &'a [u8],
}

/// A finished link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Linked {
    /// The program.
    pub cubin: Vec<u8>,
    /// What the library had to say: warnings, or figures where an option asks for them.
    pub log: String,
}

/// Why there is no library, or no cubin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error(pub String);

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Error {}

/// The functions of the library.
struct Functions {
    create: unsafe extern "C" fn(*mut Handle, u32, *const *const c_char) -> Status,
    destroy: unsafe extern "C" fn(*mut Handle) -> Status,
    add_data: unsafe extern "C" fn(Handle, c_int, *const c_void, usize, *const c_char) -> Status,
    complete: unsafe extern "C" fn(Handle) -> Status,
    cubin_size: unsafe extern "C" fn(Handle, *mut usize) -> Status,
    cubin: unsafe extern "C" fn(Handle, *mut c_void) -> Status,
    error_log_size: unsafe extern "C" fn(Handle, *mut usize) -> Status,
    error_log: unsafe extern "C" fn(Handle, *mut c_char) -> Status,
    info_log_size: unsafe extern "C" fn(Handle, *mut usize) -> Status,
    info_log: unsafe extern "C" fn(Handle, *mut c_char) -> Status,
}

/// An opened library.
pub struct Library {
    functions: Functions,
    version: (u32, u32),
    path: PathBuf,
    /// NVIDIA does not say that two links may run at the same time.
    one: Mutex<()>,
    /// The functions are valid as long as it is open.
    _library: libloading::Library,
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "nvJitLink {}.{}", self.version.0, self.version.1)
    }
}

impl Library {
    /// Opens the library at this path; a bare name is looked for where the system looks for libraries.
    ///
    /// # Errors
    /// There is none, or it lacks a function: the words of the system.
    pub fn open(path: &Path) -> Result<Library, Error> {
        let named = |error: libloading::Error| Error(format!("{}: {error}", path.display()));
        // SAFETY: opening runs the initialisers of the library, which the caller has chosen.
        let library = unsafe { libloading::Library::new(path) }.map_err(named)?;
        // SAFETY: the types are those that NVIDIA documents for these names, which have not changed since CUDA 12.0.
        let (functions, version) = unsafe {
            let functions = Functions {
                create: *library.get(b"nvJitLinkCreate\0").map_err(named)?,
                destroy: *library.get(b"nvJitLinkDestroy\0").map_err(named)?,
                add_data: *library.get(b"nvJitLinkAddData\0").map_err(named)?,
                complete: *library.get(b"nvJitLinkComplete\0").map_err(named)?,
                cubin_size: *library.get(b"nvJitLinkGetLinkedCubinSize\0").map_err(named)?,
                cubin: *library.get(b"nvJitLinkGetLinkedCubin\0").map_err(named)?,
                error_log_size: *library.get(b"nvJitLinkGetErrorLogSize\0").map_err(named)?,
                error_log: *library.get(b"nvJitLinkGetErrorLog\0").map_err(named)?,
                info_log_size: *library.get(b"nvJitLinkGetInfoLogSize\0").map_err(named)?,
                info_log: *library.get(b"nvJitLinkGetInfoLog\0").map_err(named)?,
            };
            // Since CUDA 12.3.
            let mut version = (0, 0);
            if let Ok(ask) = library.get::<unsafe extern "C" fn(*mut c_uint, *mut c_uint) -> Status>(b"nvJitLinkVersion\0") {
                ask(&raw mut version.0, &raw mut version.1);
            }
            (functions, version)
        };
        let path = file_of(&functions).unwrap_or_else(|| path.to_owned());
        Ok(Library { functions, version, path, one: Mutex::new(()), _library: library })
    }

    /// The file that it was loaded from, wherever the system has found it.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its release as (major, minor), that of the toolkit that it comes with; (0, 0) before 12.3.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// Links. `options` are those of the library, such as `-arch=sm_90`, each in one word.
    ///
    /// # Errors
    /// An option or an input that it does not take: its own words.
    pub fn link(&self, options: &[String], inputs: &[Input]) -> Result<Linked, Error> {
        let c_string = |text: &str| CString::new(text).map_err(|_| Error(format!("'{}' holds a null byte", text.escape_default())));
        let words = options.iter().map(|option| c_string(option)).collect::<Result<Vec<_>, _>>()?;
        let pointers: Vec<*const c_char> = words.iter().map(|word| word.as_ptr()).collect();
        let count = u32::try_from(pointers.len()).map_err(|_| Error("too many options".to_owned()))?;
        let _one = self.one.lock().unwrap_or_else(PoisonError::into_inner);
        let mut link = Link { functions: &self.functions, handle: ptr::null_mut() };
        // SAFETY: the options outlive the call.
        let status = unsafe { (self.functions.create)(&raw mut link.handle, count, pointers.as_ptr()) };
        link.checked(status, "nvJitLinkCreate")?;
        let mut texts = Vec::new();
        for input in inputs {
            let name = c_string(input.name)?;
            let mut bytes = input.bytes;
            // As text, PTX ends in a null byte.
            if input.kind == InputKind::Ptx && bytes.last() != Some(&0) {
                let mut text = Vec::with_capacity(bytes.len() + 1);
                text.extend(bytes);
                text.push(0);
                texts.push(text);
                bytes = texts.last().map_or(bytes, Vec::as_slice);
            }
            // SAFETY: the handle is live; the data is as long as said, and lives until the link is complete.
            let status =
                unsafe { (self.functions.add_data)(link.handle, input.kind.number(), bytes.as_ptr().cast(), bytes.len(), name.as_ptr()) };
            link.checked(status, "nvJitLinkAddData")?;
        }
        // SAFETY: the handle is live.
        let status = unsafe { (self.functions.complete)(link.handle) };
        link.checked(status, "nvJitLinkComplete")?;
        let mut size = 0;
        // SAFETY: the handle is live.
        let status = unsafe { (self.functions.cubin_size)(link.handle, &raw mut size) };
        link.checked(status, "nvJitLinkGetLinkedCubinSize")?;
        let mut cubin = vec![0_u8; size];
        // SAFETY: the buffer is as large as the library said.
        let status = unsafe { (self.functions.cubin)(link.handle, cubin.as_mut_ptr().cast()) };
        link.checked(status, "nvJitLinkGetLinkedCubin")?;
        let log = link.log(self.functions.info_log_size, self.functions.info_log);
        Ok(Linked { cubin, log })
    }
}

/// The file that the functions come from.
fn file_of(functions: &Functions) -> Option<PathBuf> {
    let mut info = libc::Dl_info { dli_fname: ptr::null(), dli_fbase: ptr::null_mut(), dli_sname: ptr::null(), dli_saddr: ptr::null_mut() };
    // SAFETY: any address may be asked about; a name that comes back lives as long as the library is open, and is copied.
    unsafe {
        if libc::dladdr(functions.create as *const c_void, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(PathBuf::from(OsStr::from_bytes(CStr::from_ptr(info.dli_fname).to_bytes())))
    }
}

/// One link under way.
struct Link<'l> {
    functions: &'l Functions,
    /// Null until it is made.
    handle: Handle,
}

impl Link<'_> {
    fn checked(&self, status: Status, call: &str) -> Result<(), Error> {
        if status == SUCCESS {
            return Ok(());
        }
        let said = if self.handle.is_null() { String::new() } else { self.log(self.functions.error_log_size, self.functions.error_log) };
        let said = said.trim();
        Err(Error(if said.is_empty() { format!("{call}: {}", meaning(status)) } else { said.to_owned() }))
    }

    fn log(
        &self,
        size_of: unsafe extern "C" fn(Handle, *mut usize) -> Status,
        log: unsafe extern "C" fn(Handle, *mut c_char) -> Status,
    ) -> String {
        let mut size = 0;
        // SAFETY: the handle is live where this is called.
        if unsafe { size_of(self.handle, &raw mut size) } != SUCCESS || size == 0 {
            return String::new();
        }
        // One more byte than asked for: whether the null byte counts is not said.
        let mut text = vec![0_u8; size + 1];
        // SAFETY: the buffer is larger than the library said.
        if unsafe { log(self.handle, text.as_mut_ptr().cast()) } != SUCCESS {
            return String::new();
        }
        let end = text.iter().position(|&byte| byte == 0).unwrap_or(text.len());
        text.truncate(end);
        String::from_utf8_lossy(&text).into_owned()
    }
}

impl Drop for Link<'_> {
    fn drop(&mut self) {
        if !self.handle.is_null() {
            // SAFETY: the handle is live, and nobody uses it afterwards.
            unsafe { (self.functions.destroy)(&raw mut self.handle) };
        }
    }
}

/// What the documentation says of a result.
fn meaning(status: Status) -> String {
    match status {
        1 => "an option is not recognised".to_owned(),
        2 => "no architecture was given".to_owned(),
        3 => "an input is invalid".to_owned(),
        4 => "the PTX cannot be compiled".to_owned(),
        5 => "NVVM failed".to_owned(),
        6 => "an internal error".to_owned(),
        7 => "threads cannot be started".to_owned(),
        8 => "an input is not recognised".to_owned(),
        9 => "finalising failed".to_owned(),
        other => format!("error {other}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PTX: &[u8] = b".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n  ret;\n}\n";

    /// The library that the environment names, or that lies in the toolkit; None is said.
    fn library() -> Option<Library> {
        let named = std::env::var_os("WARPLINK_NVJITLINK").map(std::path::PathBuf::from);
        let toolkit = std::env::var_os("CUDA_PATH").map(std::path::PathBuf::from);
        let in_toolkit = ["lib64/libnvJitLink.so", "lib64/libnvJitLink.so.13", "lib/libnvJitLink.so.13", "lib64/libnvJitLink.so.12"];
        let path =
            named.or_else(|| in_toolkit.iter().map(|file| toolkit.clone().unwrap_or_default().join(file)).find(|path| path.is_file()));
        let Some(path) = path else {
            println!("skipped: no libnvJitLink in $CUDA_PATH, and $WARPLINK_NVJITLINK names none");
            return None;
        };
        Some(Library::open(&path).unwrap())
    }

    #[test]
    fn no_library_is_an_error() {
        let error = Library::open(Path::new("/no/such/libnvJitLink.so")).unwrap_err();
        assert!(error.to_string().starts_with("/no/such/libnvJitLink.so: "), "{error}");
    }

    #[test]
    fn ptx_becomes_a_cubin() {
        let Some(library) = library() else { return };
        let input = Input { kind: InputKind::Ptx, name: "k.ptx", bytes: PTX };
        let options = ["-arch=sm_80".to_owned(), "-O3".to_owned()];
        let linked = library.link(&options, &[input]).unwrap();
        assert_eq!(linked.cubin[..4], *b"\x7fELF");
        assert_eq!(library.link(&options, &[input]).unwrap(), linked);
        assert!(library.version() >= (12, 0), "{library:?}");
    }

    #[test]
    fn its_own_words_say_what_is_wrong() {
        let Some(library) = library() else { return };
        let arch = ["-arch=sm_80".to_owned()];
        let wrong = Input { kind: InputKind::Ptx, name: "bad.ptx", bytes: b".version 7.0\n.target sm_80\n.address_size 64\nnonsense\n" };
        let error = library.link(&arch, &[wrong]).unwrap_err();
        assert!(error.to_string().contains("bad.ptx"), "{error}");
        let garbage = Input { kind: InputKind::Cubin, name: "bad.cubin", bytes: b"\x7fELF no more" };
        assert!(library.link(&arch, &[garbage]).is_err());
        assert!(library.link(&["-arch=sm_80".to_owned(), "-no-such-option".to_owned()], &[]).is_err());
        let error = library.link(&["-arch=\0".to_owned()], &[]).unwrap_err();
        assert!(error.to_string().contains("null byte"), "{error}");
    }
}
