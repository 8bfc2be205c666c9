//! nvlink: joins the LTO module with device objects. Its messages are put into the user's terms, because it sees temporary files only.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use fatbin::wrapper::Wrapper;
use object::write::{Object, Relocation};
use object::{Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind};

use crate::command::describe;
use crate::error::{Error, Result};
use crate::extract::ImageClass;
use crate::lto::stem;
use crate::options::DeviceLib;
use crate::select::{DeviceObject, LinkJob};

use super::{Stage, failed, read_output, report_warnings, show};

/// Joins our own cubins, which lie at these paths, and the objects of the job.
pub(super) fn link(job: &LinkJob, own: Vec<PathBuf>, stage: &Stage) -> Result<Vec<u8>> {
    let arch = job.arch;
    let nvlink = stage.toolkit.nvlink.clone().ok_or_else(|| {
        Error::new(format!(
            "nvlink not found beside {}, though device code for {arch} needs it (or --warplink-ptxas-mode=whole)",
            stage.toolkit.ptxas.as_deref().unwrap_or(Path::new("ptxas")).display()
        ))
    })?;
    // What nvlink calls a file, and what the user does.
    let mut inputs: Vec<(PathBuf, String)> = Vec::new();
    for path in own {
        inputs.push((path, bitcode_origins(job).unwrap_or_default()));
    }
    for (index, object) in job.objects.iter().enumerate() {
        let (extension, bytes) = match object.class {
            ImageClass::Ptx => ("ptx", for_linking(job, object)?),
            ImageClass::Fatbin => ("fatbin", Cow::Borrowed(object.image)),
            ImageClass::LtoIr => ("o", Cow::Owned(as_host_object(object.image, index)?)),
            _ => ("cubin", for_linking(job, object)?),
        };
        let path = stage.temps.write(&format!("{}.{index}.{extension}", stem(job)), &bytes)?;
        inputs.push((path, object.origin.clone()));
    }
    let output = stage.temps.path(&format!("{}.linked.cubin", stem(job)))?;
    let mut command = stage.toolkit.command(&nvlink);
    command.arg("-m64").arg("-arch").arg(arch.to_string());
    if job.is_opaque() {
        let mut path = std::ffi::OsString::from("-nvvmpath=");
        path.push(nvvm_path(stage)?);
        command.arg("-lto").arg(path);
    }
    command.args.extend(stage.options.nvlink_args.iter().cloned());
    command.args.extend(inputs.iter().map(|(path, _)| path.clone().into()));
    for lib in stage.device_libs {
        let mut word = std::ffi::OsString::new();
        match lib {
            DeviceLib::Library(name) => {
                word.push("-l");
                word.push(name);
            }
            DeviceLib::SearchDir(dir) => {
                word.push("-L");
                word.push(dir);
            }
            DeviceLib::File(path) => word.push(path),
        }
        command.arg(word);
    }
    command.arg("-o").arg(&output);
    show(&command, stage);
    if stage.options.dry_run {
        return Ok(Vec::new());
    }
    let finished = stage.timing.stage("nvlink", stage.row, &stem(job), || command.run_captured_within(stage.options.tool_timeout))?;
    // nvlink only warns when it leaves an input out, and the program would lack that code.
    let dropped = finished.output.contains("SM Arch") && finished.output.contains("not found");
    let words = in_users_terms(&finished.output, &inputs);
    if !finished.status.success() || dropped {
        let errors: Vec<Error> = explained(&words, job, stage);
        if !errors.is_empty() {
            return Err(Error::all(errors).err().unwrap_or_else(|| Error::new("nvlink failed")));
        }
        let how = if dropped { "left device code out".to_owned() } else { describe(finished.status) };
        return Err(failed("nvlink", job, &command, &words, &how, &output, stage));
    }
    report_warnings("nvlink", arch, &words, false, stage);
    read_output(&output, "nvlink", job, &command, &words, stage)
}

/// The PTX or cubin of an object, in which references to kernels of other objects are those to kernels.
pub(crate) fn for_linking<'b>(job: &LinkJob, object: &DeviceObject<'b>) -> Result<Cow<'b, [u8]>> {
    if object.class != ImageClass::Ptx {
        return marked(job, object.image);
    }
    let changed = fatbin::ptx::with_kernels_declared(object.image, |name| job.kernels.contains(name));
    Ok(changed.map_or(Cow::Borrowed(object.image), Cow::Owned))
}

/// A cubin in which references to kernels are marked as such.
fn marked<'b>(job: &LinkJob, bytes: &'b [u8]) -> Result<Cow<'b, [u8]>> {
    if bytes.is_empty() || job.kernels.is_empty() {
        return Ok(Cow::Borrowed(bytes));
    }
    let changed = fatbin::cubin::Cubin::with_kernels_marked(bytes, |name| job.kernels.contains(name))
        .map_err(|error| Error::new(format!("device code for {}: {error}", job.arch)))?;
    Ok(changed.map_or(Cow::Borrowed(bytes), Cow::Owned))
}

/// A fat binary inside of a host object with what nvcc puts beside it: nvlink looks for bitcode nowhere else.
fn as_host_object(container: &[u8], index: usize) -> Result<Vec<u8>> {
    let failed = |error: object::write::Error| Error::new(format!("device bitcode made by nvcc: {error}"));
    let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let mut add = |name: &str, data: &[u8]| {
        let section = object.add_section(Vec::new(), name.as_bytes().to_vec(), SectionKind::Data);
        object.append_section_data(section, data, 8);
        section
    };
    let code = add(fatbin::SECTION_RELOCATABLE_FATBIN, container);
    let wrapper = Wrapper { version: fatbin::wrapper::VERSION_PLAIN, container: 0, parts: 0 };
    let segment = add(fatbin::SECTION_WRAPPER, &wrapper.to_bytes());
    add("__nv_module_id", format!("_warplink_{index}\0").as_bytes());
    let symbol = object.section_symbol(code);
    let flags = RelocationFlags::Elf { r_type: object::elf::R_X86_64_64 };
    object
        .add_relocation(segment, Relocation { offset: fatbin::wrapper::CONTAINER_OFFSET as u64, symbol, addend: 0, flags })
        .map_err(failed)?;
    object.write().map_err(failed)
}

/// The directory that nvlink finds `lib64/libnvvm.so` in. NVIDIA's Python packages have the library under its full name only.
fn nvvm_path(stage: &Stage) -> Result<PathBuf> {
    let root = stage.toolkit.root.clone().unwrap_or_default();
    let directories = [root.join("nvvm"), root];
    for directory in &directories {
        if directory.join("lib64/libnvvm.so").exists() {
            return Ok(directory.clone());
        }
    }
    for library in directories.iter().flat_map(|directory| [directory.join("lib64"), directory.join("lib")]) {
        let Ok(entries) = std::fs::read_dir(&library) else { continue };
        let mut names: Vec<PathBuf> = entries
            .flatten()
            .map(|entry| entry.path())
            .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("libnvvm.so")))
            .collect();
        names.sort();
        if let Some(path) = names.pop() {
            let path = path.canonicalize().unwrap_or(path);
            return stage.temps.directory_with_link("nvvm", "lib64/libnvvm.so", &path);
        }
    }
    Err(Error::new(format!(
        "libnvvm not found in the toolkit, which device bitcode made by nvcc -dlto needs; compile for a real architecture as well (looked in \
         {})",
        directories.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
    )))
}

/// The user's names for the files that a text names.
fn in_users_terms(text: &str, inputs: &[(PathBuf, String)]) -> String {
    inputs.iter().fold(text.to_owned(), |text, (path, origin)| text.replace(&path.display().to_string(), origin))
}

/// The errors that we can say better than nvlink: what the objects of a program disagree about.
fn explained(words: &str, job: &LinkJob, stage: &Stage) -> Vec<Error> {
    let mut seen = BTreeSet::new();
    let mut errors = Vec::new();
    for line in words.lines() {
        let Some((message, rest)) = line.split_once(": ").and_then(|(_, text)| text.split_once(" '")) else { continue };
        if message.contains("Unsupported .version") {
            errors.extend(too_new(rest.split('\'').next().unwrap_or_default(), line, job));
            continue;
        }
        let quoted: Vec<&str> = rest.split('\'').step_by(2).collect();
        let Some(&symbol) = quoted.first() else { continue };
        if !seen.insert((message.to_owned(), symbol.to_owned())) {
            continue;
        }
        let name = stage.diagnostics.name(symbol);
        let arch = job.arch;
        let first = || job.definers.get(symbol).cloned();
        let code = match message.trim() {
            "Undefined reference to" => "undefined-symbol",
            "Multiple definition of" => "duplicate-symbol",
            "Input file" => "toolkit-too-old",
            _ => "nvlink-failed",
        };
        let text = match (message.trim(), quoted.as_slice()) {
            ("Undefined reference to", [_, file, ..]) => {
                let hints: String = stage.explainer.hints(symbol, arch).iter().map(|hint| format!("\n>>> {hint}")).collect();
                format!("{file}: undefined device symbol: {name} for {arch}\n>>> referenced by {file}{hints}")
            }
            ("Multiple definition of", [_, file, other, ..]) => {
                format!(
                    "{file}: duplicate device symbol: {name} for {arch}\n>>> defined in {}\n>>> defined in {file}",
                    first().unwrap_or((*other).to_owned())
                )
            }
            ("Prototype doesn't match for", [_, file, other, ..]) => {
                let definer = first().unwrap_or((*other).to_owned());
                let user = users(symbol, job).into_iter().find(|user| *user != definer).unwrap_or((*file).to_owned());
                let way_out = if symbol.ends_with('z') {
                    "clang and nvcc pass the arguments of variadic device functions in different ways; compile both objects with one compiler"
                } else {
                    "compile both from one declaration"
                };
                format!(
                    "{user}: refers to {name} with another prototype than its definition has, for {arch}\n>>> defined in {definer}\n>>> referenced \
                     by {user}\n>>> {way_out}"
                )
            }
            ("Memory space doesn't match for", [_, file, other, ..]) => format!(
                "{file}: {name} is in another memory space here than in {other}, for {arch}\n>>> defined in {}\n>>> clang puts a const __device__ \
                 variable into constant memory where it defines it, which units compiled without -foffload-lto cannot know: compile both with it, \
                 or declare the variable __constant__ or not const",
                first().unwrap_or((*other).to_owned())
            ),
            ("Function", [kernel]) if rest.contains("not declared __global__") => {
                // Only cubins and PTX do not know what they launch, and only of kernels that nobody but nvlink sees.
                let Some(opaque) = job.objects.iter().find(|object| object.class == ImageClass::LtoIr) else { continue };
                format!(
                    "{}: {kernel} is launched by device code that is machine code already and took it for a function, for {arch}\n>>> compile \
                     the object that launches it with -foffload-lto, or {0} for a real architecture as well",
                    opaque.origin
                )
            }
            ("Input file", [file, ..]) if rest.contains("newer than toolkit") || rest.contains("abi does not match") => format!(
                "{file}: was made by a newer CUDA toolkit than the one that links it, for {arch}\n>>> {}\n>>> name the newer toolkit with --cuda-path=DIR",
                line.trim()
            ),
            _ => continue,
        };
        errors.push(Error::new(text).named(code));
    }
    errors
}

/// The objects that refer to a symbol; all bitcode is one object by now.
fn users(symbol: &str, job: &LinkJob) -> Vec<String> {
    let refers = |object: &&crate::select::DeviceObject| {
        crate::device_object::symbols(object.class, object.image).unwrap_or_default().iter().any(|s| s.name == symbol && !s.is_defined())
    };
    let objects = job.objects.iter().filter(refers).map(|object| object.origin.clone());
    objects.chain(bitcode_origins(job)).collect()
}

/// The LTO module, in the user's terms.
fn bitcode_origins(job: &LinkJob) -> Option<String> {
    let mut origins: Vec<&str> = job.members.iter().map(|member| member.origin.as_str()).take(3).collect();
    if job.members.len() > origins.len() {
        origins.push("...");
    }
    (!origins.is_empty()).then(|| origins.join(", "))
}

/// PTX that the toolkit's assembler is too old for; it does not say whose it was. `supported` is the newest version that it reads.
fn too_new(supported: &str, line: &str, job: &LinkJob) -> Vec<Error> {
    let Ok(supported) = supported.parse::<fatbin::ptx::Version>() else { return Vec::new() };
    let newer = |object: &&crate::select::DeviceObject| {
        object.class == ImageClass::Ptx && fatbin::ptx::Header::parse(object.image).is_ok_and(|header| header.version > supported)
    };
    job.objects
        .iter()
        .filter(newer)
        .map(|object| {
            Error::new(format!(
                "{}: was made by a newer CUDA toolkit than the one that links it, for {}\n>>> {}\n>>> name the newer toolkit with --cuda-path=DIR",
                object.origin,
                job.arch,
                line.trim()
            ))
            .named("toolkit-too-old")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_get_the_users_names() {
        let inputs = [(PathBuf::from("/t/sm_90.0.cubin"), "n.o".to_owned()), (PathBuf::from("/t/sm_90.cubin"), "a.o, b.o".to_owned())];
        assert_eq!(
            in_users_terms("nvlink error   : Undefined reference to '_Z1fv' in '/t/sm_90.0.cubin'\n", &inputs),
            "nvlink error   : Undefined reference to '_Z1fv' in 'n.o'\n"
        );
    }
}
