//! Device links for programs that make code at run time: a JIT compiler such as CUDA.jl's, or a runtime that offloads.
//!
//! What does not change from one link to the next is worked out once, by [`DeviceLinker::new`]: options, the toolkit, the identity of everything
//! that takes part. A [`LinkJob`] has what does change: code as bytes, and the names that must stay findable. The result is one image for
//! one architecture, which `cuModuleLoadData` takes. `examples/jit.rs` does it from source to result.
//!
//! ```no_run
//! use device_link::jit::{DeviceLinker, LinkConfig, LinkJob};
//!
//! let linker = DeviceLinker::new(&LinkConfig::new("sm_90".parse()?))?;
//! let bitcode = std::fs::read("kernel.bc")?;
//! let job = LinkJob::new().input("kernel.bc", &bitcode[..]).root("my_kernel");
//! let id = job.id();
//! let image = linker.link(&job)?;
//! // From here on, without a lock and without an allocation:
//! assert!(linker.lookup(&id).is_some_and(|known| known.cubin == image.cubin));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | what |
//! |---|---|
//! | `config` | the static part |
//! | `job` | the dynamic part, and its content id |
//! | `table` | what is there already |
//! | `make` | one link |
//!
//! Messages go nowhere: errors are returned, warnings come with the image. All of it may be called from several threads; one content is
//! linked once, whoever asks for it at the same time waits. LLVM ends the process on some mistakes of its own (see [`crate::on_fatal_error`]).

mod config;
mod job;
mod make;
mod table;

use std::collections::HashSet;
use std::ffi::OsString;
use std::fmt;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use fatbin::Arch;
use fatbin::cubin::Cubin;
use nvjitlink::Library;

pub use self::config::{Assembler, DiskCache, KernelSetting, LinkConfig, OptLevel};
pub use self::job::LinkJob;
pub use crate::cache::Hash as ContentId;
pub use crate::cache::Warning;
use crate::cache::{Cache, Fields, Kind};
use crate::diagnostics::Diagnostics;
use crate::error::{Context, Error, Result};
use crate::link_line;
use crate::options::{Options, PtxChoice};
use crate::toolchain::cuda::Toolkit;
use crate::toolchain::{Env, process_env};
use table::Table;

/// Finished device code for one architecture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceImage {
    /// The architecture.
    pub arch: Arch,
    /// Machine code, ready for `cuModuleLoadData`.
    pub cubin: Vec<u8>,
    /// The program's PTX, where [`LinkConfig::keep_ptx`] asks for it and all inputs were bitcode.
    pub ptx: Option<Vec<u8>>,
    /// What there was to say about it, in the order in which it came up.
    pub warnings: Vec<Warning>,
}

impl DeviceImage {
    /// The mangled names of its kernels, in alphabetical order.
    ///
    /// # Errors
    /// The cubin is damaged.
    pub fn kernels(&self) -> Result<Vec<String>> {
        let damaged = |error: fatbin::Error| Error::new(error.to_string());
        let kernels = Cubin::parse(&self.cubin).map_err(damaged)?.kernels().map_err(damaged)?;
        let mut names: Vec<String> = kernels.into_iter().map(|kernel| kernel.name.to_owned()).collect();
        names.sort();
        Ok(names)
    }
}

/// Links device code, and knows what it has linked. Images stay until the linker is dropped.
pub struct DeviceLinker {
    arch: Arch,
    options: Options,
    toolkit: Toolkit,
    library: Option<Library>,
    identity: ContentId,
    images: Table<Arc<DeviceImage>>,
    /// What is being linked by some thread.
    under_way: Mutex<HashSet<ContentId>>,
    /// One of these is done.
    done: Condvar,
}

impl fmt::Debug for DeviceLinker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DeviceLinker").field("arch", &self.arch).field("identity", &self.identity).finish_non_exhaustive()
    }
}

impl DeviceLinker {
    /// Works out what all links have in common. Reads the environment for the places of the toolkit and of the cache, and for nothing else.
    ///
    /// # Errors
    /// There is no toolkit, or no libnvJitLink where one is asked for; LLVM does not know an option.
    pub fn new(config: &LinkConfig) -> Result<DeviceLinker> {
        let options = options(config)?;
        let toolkit = Toolkit::find(&options, ENV)?;
        let library = match &config.assembler {
            Assembler::Process => None,
            Assembler::InProcess(path) => Some(Library::open(path).map_err(|error| Error::new(error.to_string()))?),
        };
        if library.is_none() && toolkit.ptxas.is_none() {
            return Err(toolkit.missing(&format!("device code for {}", config.arch)));
        }
        if !options.mllvm.is_empty() {
            crate::parse_llvm_options(&options.mllvm).map_err(|error| Error::new(error.to_string()))?;
        }
        let identity = identity(config, &options, &toolkit, library.as_ref())?;
        Ok(DeviceLinker {
            arch: config.arch,
            options,
            toolkit,
            library,
            identity,
            images: Table::default(),
            under_way: Mutex::default(),
            done: Condvar::new(),
        })
    }

    /// The hash of the static part: the settings, and the contents of ptxas, nvlink or libnvJitLink and of this program. Two linkers of one
    /// identity make the same image of the same content, on any machine.
    pub fn identity(&self) -> ContentId {
        self.identity
    }

    /// The image of this content, if this linker has linked it. Takes no lock and allocates nothing.
    #[inline]
    pub fn lookup(&self, id: &ContentId) -> Option<&Arc<DeviceImage>> {
        self.images.get(id)
    }

    /// Links a job, or finds it linked: by this linker, or in the cache on disk.
    ///
    /// # Errors
    /// What is wrong with the code, as a link on the command line says it.
    pub fn link(&self, job: &LinkJob) -> Result<Arc<DeviceImage>> {
        let id = job.id();
        if let Some(image) = self.lookup(&id) {
            return Ok(image.clone());
        }
        let _claim = self.claim(id);
        // Who had the claim before may have made it.
        if let Some(image) = self.lookup(&id) {
            return Ok(image.clone());
        }
        let image = Arc::new(make::image(self, job)?);
        Ok(self.images.insert(id, image.clone()).unwrap_or(&image).clone())
    }

    /// Waits until no other thread links this content.
    fn claim(&self, id: ContentId) -> Claim<'_> {
        let mut under_way = self.under_way.lock().unwrap_or_else(PoisonError::into_inner);
        while !under_way.insert(id) {
            under_way = self.done.wait(under_way).unwrap_or_else(PoisonError::into_inner);
        }
        Claim { linker: self, id }
    }
}

/// One content is this thread's to link.
struct Claim<'l> {
    linker: &'l DeviceLinker,
    id: ContentId,
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.linker.under_way.lock().unwrap_or_else(PoisonError::into_inner).remove(&self.id);
        self.linker.done.notify_all();
    }
}

/// Where the toolkit and the cache are looked for.
const ENV: Env = &process_env;

/// The options of a link line that says what the configuration does, and that no variable changes.
fn options(config: &LinkConfig) -> Result<Options> {
    let mut options = link_line::parse(vec![OsString::from("ld")], &|_| None)?.options;
    options.cuda_path.clone_from(&config.toolkit);
    options.opt_level = config.level;
    options.ptxas_args = config.ptxas_arguments.iter().map(OsString::from).collect();
    options.kernels.clone_from(&config.kernels);
    options.mllvm.clone_from(&config.llvm_options);
    options.ptx = Some(if config.keep_ptx { PtxChoice::All } else { PtxChoice::None });
    // They come with the image.
    options.no_warnings = true;
    match &config.cache {
        DiskCache::Off => options.cache.off = true,
        DiskCache::Usual => {}
        DiskCache::At(place) => options.cache.dir = Some(place.clone()),
    }
    Ok(options)
}

/// See [`DeviceLinker::identity`].
fn identity(config: &LinkConfig, options: &Options, toolkit: &Toolkit, library: Option<&Library>) -> Result<ContentId> {
    let LinkConfig { arch, level, toolkit: _, assembler: _, ptxas_arguments, kernels, llvm_options, keep_ptx, cache: _ } = config;
    let diagnostics = Diagnostics::new(options);
    let cache = Cache::open(options, ENV, &diagnostics);
    let of = |path: Option<&Path>, runs: bool| {
        path.map(|path| cache.identity(path, runs).context(|| format!("{}: cannot be read", path.display()))).transpose()
    };
    let (ptxas, nvlink, file) = match library {
        None => (of(toolkit.ptxas.as_deref(), true)?, of(toolkit.nvlink.as_deref(), true)?, None),
        Some(library) => (None, None, of(Some(library.path()), false)?),
    };
    let mut fields = Fields::new(Kind::Image);
    fields
        .value("warplink", cache.identity_of_process().context(|| "this program's own file cannot be read".to_owned())?)
        .value("ptxas", ptxas)
        .value("nvlink", nvlink)
        .value("nvJitLink", file)
        .value("architecture", arch)
        .value("level", level)
        .value("ptxas's arguments", ptxas_arguments)
        .value("kernels", kernels)
        .value("LLVM's options", llvm_options)
        .value("PTX", keep_ptx);
    Ok(fields.key())
}

#[cfg(test)]
mod tests;
