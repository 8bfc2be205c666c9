//! Links a kernel as a JIT would, loads the image with the driver API and runs it.
//!
//! `cargo run --release -p device-link --example jit [ARCH [LIBNVJITLINK]]`: the architecture is that of the first GPU, without one sm_90; with
//! the name of a libnvJitLink no process is started. The kernel is LLVM's text here; a JIT has bitcode in its memory.
//!
//! A program that launches kernels cannot do without `unsafe`: nothing checks that arguments fit. All of it is in `driver` below.
#![allow(unsafe_code)]

use std::error::Error;

use device_link::jit::{Assembler, DeviceLinker, LinkConfig, LinkJob};

/// `out[i] = weight(i)`, with the function in a module of its own.
const KERNEL: &str = r#"
target triple = "nvptx64-nvidia-cuda"
declare float @weight(i32)
declare i32 @llvm.nvvm.read.ptx.sreg.tid.x()
define ptx_kernel void @fill(ptr addrspace(1) %out) {
  %i = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %w = call float @weight(i32 %i)
  %place = getelementptr float, ptr addrspace(1) %out, i32 %i
  store float %w, ptr addrspace(1) %place
  ret void
}
"#;

const WEIGHT: &str = r#"
target triple = "nvptx64-nvidia-cuda"
define float @weight(i32 %i) {
  %x = uitofp i32 %i to float
  %y = fmul float %x, 5.000000e-01
  ret float %y
}
"#;

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let driver = driver::Driver::open();
    let found = driver.as_ref().ok().map(driver::Driver::architecture);
    let arch = arguments.next().or(found).unwrap_or_else(|| "sm_90".to_owned());

    // The static part, once.
    let mut config = LinkConfig::new(arch.parse()?);
    if let Some(library) = arguments.next() {
        config.assembler = Assembler::InProcess(library.into());
    }
    let linker = DeviceLinker::new(&config)?;

    // The dynamic part, for every piece of code.
    let (kernel, weight) = (llvm_lto::assemble(KERNEL)?, llvm_lto::assemble(WEIGHT)?);
    let job = LinkJob::new().input("kernel.bc", kernel).library("weight.bc", weight).root("fill");
    let id = job.id();
    linker.link(&job)?;

    // What is there is found by its id.
    let image = linker.lookup(&id).ok_or("the image is gone")?;
    println!("{} for {}: {} bytes", image.kernels()?.join(", "), image.arch, image.cubin.len());
    match driver {
        Ok(driver) => println!("it wrote {:?}", driver.run(&image.cubin, c"fill", 4)?),
        Err(error) => println!("it was not run: {error}"),
    }
    Ok(())
}

/// The few functions of the CUDA driver API that it takes to run a kernel on the first GPU, from the driver that is installed.
mod driver {
    use std::error::Error;
    use std::ffi::{CStr, c_char, c_int, c_uint, c_void};
    use std::ptr;

    /// `CUresult`
    type Status = c_int;

    /// An initialised driver with a GPU whose context is current in this thread.
    pub(crate) struct Driver {
        library: libloading::Library,
        device: c_int,
    }

    impl Driver {
        /// Opens the driver's library and makes the first GPU's context the current one.
        pub(crate) fn open() -> Result<Driver, Box<dyn Error>> {
            // SAFETY: the driver's own library; types are those of NVIDIA's documentation of the driver API.
            unsafe {
                let library = libloading::Library::new("libcuda.so.1").map_err(|error| format!("there is no CUDA driver ({error})"))?;
                let mut driver = Driver { library, device: 0 };
                driver.checked("cuInit", |init: unsafe extern "C" fn(c_uint) -> Status| init(0))?;
                let mut device = 0;
                driver.checked("cuDeviceGet", |get: unsafe extern "C" fn(*mut c_int, c_int) -> Status| get(&raw mut device, 0))?;
                driver.device = device;
                let mut context = ptr::null_mut();
                type Retain = unsafe extern "C" fn(*mut *mut c_void, c_int) -> Status;
                driver.checked("cuDevicePrimaryCtxRetain", |retain: Retain| retain(&raw mut context, device))?;
                driver.checked("cuCtxSetCurrent", |set: unsafe extern "C" fn(*mut c_void) -> Status| set(context))?;
                Ok(driver)
            }
        }

        /// The GPU's architecture, such as `sm_90`.
        pub(crate) fn architecture(&self) -> String {
            // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR
            let [major, minor] = [75, 76].map(|attribute| {
                let mut value = 0;
                type Get = unsafe extern "C" fn(*mut c_int, c_int, c_int) -> Status;
                // SAFETY: the device is the driver's; the value outlives the call.
                let got = unsafe { self.checked("cuDeviceGetAttribute", |get: Get| get(&raw mut value, attribute, self.device)) };
                got.map_or(0, |()| value)
            });
            format!("sm_{major}{minor}")
        }

        /// Loads an image and runs a kernel of it that writes one float per thread to where its one argument points.
        pub(crate) fn run(&self, image: &[u8], kernel: &CStr, threads: usize) -> Result<Vec<f32>, Box<dyn Error>> {
            let mut result = vec![0_f32; threads];
            let size = size_of_val(result.as_slice());
            let (mut module, mut function, mut memory) = (ptr::null_mut::<c_void>(), ptr::null_mut::<c_void>(), 0_u64);
            type LoadData = unsafe extern "C" fn(*mut *mut c_void, *const c_void) -> Status;
            type GetFunction = unsafe extern "C" fn(*mut *mut c_void, *mut c_void, *const c_char) -> Status;
            type Launch = unsafe extern "C" fn(
                *mut c_void,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                c_uint,
                *mut c_void,
                *mut *mut c_void,
                *mut *mut c_void,
            ) -> Status;
            // SAFETY: the image is a whole cubin; the kernel takes one pointer and writes a float for each thread of the one block.
            unsafe {
                self.checked("cuModuleLoadData", |load: LoadData| load(&raw mut module, image.as_ptr().cast()))?;
                self.checked("cuModuleGetFunction", |get: GetFunction| get(&raw mut function, module, kernel.as_ptr()))?;
                self.checked("cuMemAlloc_v2", |alloc: unsafe extern "C" fn(*mut u64, usize) -> Status| alloc(&raw mut memory, size))?;
                let mut arguments = [(&raw mut memory).cast::<c_void>()];
                self.checked("cuLaunchKernel", |launch: Launch| {
                    launch(function, 1, 1, 1, threads as c_uint, 1, 1, 0, ptr::null_mut(), arguments.as_mut_ptr(), ptr::null_mut())
                })?;
                type Copy = unsafe extern "C" fn(*mut c_void, u64, usize) -> Status;
                self.checked("cuMemcpyDtoH_v2", |copy: Copy| copy(result.as_mut_ptr().cast(), memory, size))?;
                self.checked("cuMemFree_v2", |free: unsafe extern "C" fn(u64) -> Status| free(memory))?;
                self.checked("cuModuleUnload", |unload: unsafe extern "C" fn(*mut c_void) -> Status| unload(module))?;
            }
            Ok(result)
        }

        /// Calls a function of the driver. Its type must be that of the name.
        unsafe fn checked<F: Copy>(&self, name: &str, call: impl FnOnce(F) -> Status) -> Result<(), Box<dyn Error>> {
            // SAFETY: the caller vouches for the type.
            let function = unsafe { self.library.get::<F>(name.as_bytes())? };
            let status = call(*function);
            if status != 0 { Err(format!("there is no GPU that it could run on ({name}: error {status})").into()) } else { Ok(()) }
        }
    }
}
