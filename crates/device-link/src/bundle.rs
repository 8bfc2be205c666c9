//! One fat binary from the images of all architectures.

use fatbin::{Compression, Image, Kind};

use crate::assemble::DeviceImage;
use crate::error::{Error, Result};
use crate::options::{CompressMode, Options};
use crate::toolchain::cuda::Toolkit;

/// zstd's level where nobody asks for another: NVIDIA's own.
const ZSTD_LEVEL: i32 = 5;
/// zstd's level for the smallest result: NVIDIA's own.
const SIZE_LEVEL: i32 = 19;

/// Packs images, which come in the order of their architectures, cubin before PTX.
pub fn bundle(images: &[DeviceImage], options: &Options, toolkit: &Toolkit) -> Result<Vec<u8>> {
    let compression = compression(options, images, toolkit);
    let mut list = Vec::new();
    for image in images {
        let common = Image {
            kind: Kind::Elf,
            arch: image.arch,
            data: &[],
            ident: None,
            options: &image.ptxas_options,
            debug: image.debug,
            compression,
        };
        if let Some(cubin) = &image.cubin {
            list.push(Image { data: cubin, ..common });
        }
        if let Some(ptx) = &image.ptx {
            list.push(Image { kind: Kind::Ptx, data: ptx, ..common });
        }
    }
    fatbin::write(&list).map_err(|error| Error::new(format!("{}: fat binary: {error}", options.output.display())))
}

/// zstd needs a driver of CUDA 12.4 or later, which a program of such a toolkit is made for; older ones read LZ4 and stored images.
fn compression(options: &Options, images: &[DeviceImage], toolkit: &Toolkit) -> Compression {
    let level = options.compression_level;
    match options.compress_mode {
        Some(CompressMode::None) => return Compression::None,
        Some(CompressMode::Lz4) => return Compression::Lz4,
        Some(CompressMode::Zstd) => return Compression::Zstd(level.unwrap_or(ZSTD_LEVEL)),
        Some(CompressMode::Size) => return Compression::Zstd(level.unwrap_or(SIZE_LEVEL)),
        None => {}
    }
    if options.compress == Some(false) {
        return Compression::None;
    }
    if level.is_some() {
        return Compression::Zstd(level.unwrap_or(ZSTD_LEVEL));
    }
    // Cubins of CUDA 13 carry the new ELF ABI, so that no file of the toolkit has to be read to know.
    let new_abi = images
        .iter()
        .filter_map(|image| image.cubin.as_deref())
        .any(|cubin| cubin.get(7..9).is_some_and(|abi| abi == [0x41, 8]) && cubin.get(49).is_some_and(|&sm| sm < 100));
    if new_abi || toolkit.version().is_some_and(|version| version >= (12, 4)) {
        Compression::Zstd(ZSTD_LEVEL)
    } else if options.compress == Some(true) {
        Compression::Lz4
    } else {
        Compression::None
    }
}
