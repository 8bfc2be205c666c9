//! Inflates zlib data (RFC 1950 and 1951), which version 3 offload binaries hold where LLVM was built without zstd.
//!
//! Written here because such binaries are rare, and the size of the result is known and small: not worth a dependency of every link.

use crate::error::{Error, OrError, Result};

const DAMAGED: Error = Error("zlib data is damaged");

/// Inflates `data` to exactly `len` bytes.
///
/// # Errors
/// The stream is malformed, its checksum is wrong, or it holds more or less than `len` bytes.
pub(crate) fn inflate(data: &[u8], len: usize) -> Result<Vec<u8>> {
    let &[cmf, flg, ref body @ ..] = data else {
        return Err(DAMAGED);
    };
    // Method 8 is deflate; bit 5 asks for a preset dictionary, which nobody writes.
    if cmf & 0x0f != 8 || flg & 0x20 != 0 || (u16::from(cmf) << 8 | u16::from(flg)) % 31 != 0 {
        return Err(DAMAGED);
    }
    let mut bits = Bits { data: body, position: 0, buffer: 0, count: 0 };
    let mut out = Vec::new();
    loop {
        let last = bits.take(1)? == 1;
        match bits.take(2)? {
            0 => stored(&mut bits, &mut out, len)?,
            1 => {
                let (literals, distances) = fixed_codes()?;
                block(&mut bits, &mut out, len, &literals, &distances)?;
            }
            2 => {
                let (literals, distances) = dynamic_codes(&mut bits)?;
                block(&mut bits, &mut out, len, &literals, &distances)?;
            }
            _ => return Err(DAMAGED),
        }
        if last {
            break;
        }
    }
    if out.len() != len {
        return Err(Error("zlib data has another size than stated"));
    }
    if bits.checksum()? != adler32(&out) {
        return Err(Error("zlib data has a wrong checksum"));
    }
    Ok(out)
}

/// Deflate's bit order: bytes from low to high, each from its least significant bit.
struct Bits<'a> {
    data: &'a [u8],
    position: usize,
    buffer: u32,
    count: u32,
}

impl Bits<'_> {
    fn take(&mut self, count: u32) -> Result<u32> {
        while self.count < count {
            let byte = *self.data.get(self.position).ok_or(DAMAGED)?;
            self.position += 1;
            self.buffer |= u32::from(byte) << self.count;
            self.count += 8;
        }
        let value = self.buffer & ((1 << count) - 1);
        self.buffer >>= count;
        self.count -= count;
        Ok(value)
    }

    /// Drops the rest of the current byte. At most 7 bits are buffered, so no whole byte is lost.
    fn align(&mut self) {
        self.buffer = 0;
        self.count = 0;
    }

    fn bytes(&mut self, len: usize) -> Result<&[u8]> {
        let rest = self.data.get(self.position..).ok_or(DAMAGED)?;
        self.position += len;
        rest.get(..len).ok_or(DAMAGED)
    }

    fn checksum(&mut self) -> Result<u32> {
        self.align();
        self.bytes(4)?.try_into().map(u32::from_be_bytes).or_error(DAMAGED.0)
    }
}

/// A canonical Huffman code: how many codes there are of each length, and the symbols in code order.
struct Code {
    counts: [u16; 16],
    symbols: Vec<u16>,
}

impl Code {
    fn new(lengths: &[u8]) -> Result<Self> {
        let mut counts = [0u16; 16];
        let mut by_length: Vec<(u8, u16)> = Vec::with_capacity(lengths.len());
        for (symbol, &length) in (0u16..).zip(lengths) {
            if length > 0 {
                *counts.get_mut(usize::from(length)).ok_or(DAMAGED)? += 1;
                by_length.push((length, symbol));
            }
        }
        // More codes than the lengths have room for cannot be told apart.
        let mut room = 1i32;
        for &count in counts.iter().skip(1) {
            room = room * 2 - i32::from(count);
            if room < 0 {
                return Err(DAMAGED);
            }
        }
        by_length.sort();
        Ok(Code { counts, symbols: by_length.into_iter().map(|(_, symbol)| symbol).collect() })
    }

    fn decode(&self, bits: &mut Bits) -> Result<u16> {
        let (mut code, mut first, mut index) = (0i32, 0i32, 0i32);
        for &count in self.counts.iter().skip(1) {
            code |= bits.take(1)? as i32;
            let count = i32::from(count);
            if code - count < first {
                let position = usize::try_from(index + code - first).or_error(DAMAGED.0)?;
                return self.symbols.get(position).copied().ok_or(DAMAGED);
            }
            index += count;
            first = (first + count) << 1;
            code <<= 1;
        }
        Err(DAMAGED)
    }
}

fn stored(bits: &mut Bits, out: &mut Vec<u8>, limit: usize) -> Result<()> {
    bits.align();
    let &[a, b, c, d] = bits.bytes(4)? else {
        return Err(DAMAGED);
    };
    let len = u16::from_le_bytes([a, b]);
    if len != !u16::from_le_bytes([c, d]) || out.len() + usize::from(len) > limit {
        return Err(DAMAGED);
    }
    out.extend_from_slice(bits.bytes(usize::from(len))?);
    Ok(())
}

fn fixed_codes() -> Result<(Code, Code)> {
    let mut lengths = [8u8; 288];
    lengths[144..256].fill(9);
    lengths[256..280].fill(7);
    Ok((Code::new(&lengths)?, Code::new(&[5; 30])?))
}

fn dynamic_codes(bits: &mut Bits) -> Result<(Code, Code)> {
    const ORDER: [usize; 19] = [16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15];
    let literal_count = bits.take(5)? as usize + 257;
    let distance_count = bits.take(5)? as usize + 1;
    let length_count = bits.take(4)? as usize + 4;
    let mut code_lengths = [0u8; 19];
    for &symbol in ORDER.iter().take(length_count) {
        code_lengths[symbol] = bits.take(3)? as u8;
    }
    let code = Code::new(&code_lengths)?;
    let total = literal_count + distance_count;
    let mut lengths: Vec<u8> = Vec::with_capacity(total);
    while lengths.len() < total {
        let (value, repeat) = match code.decode(bits)? {
            16 => (*lengths.last().ok_or(DAMAGED)?, 3 + bits.take(2)?),
            17 => (0, 3 + bits.take(3)?),
            18 => (0, 11 + bits.take(7)?),
            length => (length as u8, 1),
        };
        lengths.resize(lengths.len() + repeat as usize, value);
    }
    if lengths.len() != total {
        return Err(DAMAGED);
    }
    let (literals, distances) = lengths.split_at(literal_count);
    Ok((Code::new(literals)?, Code::new(distances)?))
}

fn block(bits: &mut Bits, out: &mut Vec<u8>, limit: usize, literals: &Code, distances: &Code) -> Result<()> {
    const LENGTHS: [(u16, u8); 29] = [
        (3, 0),
        (4, 0),
        (5, 0),
        (6, 0),
        (7, 0),
        (8, 0),
        (9, 0),
        (10, 0),
        (11, 1),
        (13, 1),
        (15, 1),
        (17, 1),
        (19, 2),
        (23, 2),
        (27, 2),
        (31, 2),
        (35, 3),
        (43, 3),
        (51, 3),
        (59, 3),
        (67, 4),
        (83, 4),
        (99, 4),
        (115, 4),
        (131, 5),
        (163, 5),
        (195, 5),
        (227, 5),
        (258, 0),
    ];
    const DISTANCES: [(u16, u8); 30] = [
        (1, 0),
        (2, 0),
        (3, 0),
        (4, 0),
        (5, 1),
        (7, 1),
        (9, 2),
        (13, 2),
        (17, 3),
        (25, 3),
        (33, 4),
        (49, 4),
        (65, 5),
        (97, 5),
        (129, 6),
        (193, 6),
        (257, 7),
        (385, 7),
        (513, 8),
        (769, 8),
        (1025, 9),
        (1537, 9),
        (2049, 10),
        (3073, 10),
        (4097, 11),
        (6145, 11),
        (8193, 12),
        (12289, 12),
        (16385, 13),
        (24577, 13),
    ];
    let extended = |bits: &mut Bits, table: &[(u16, u8)], index: u16| -> Result<usize> {
        let &(base, extra) = table.get(usize::from(index)).ok_or(DAMAGED)?;
        Ok(usize::from(base) + bits.take(u32::from(extra))? as usize)
    };
    loop {
        match literals.decode(bits)? {
            256 => return Ok(()),
            symbol @ 0..256 => {
                if out.len() >= limit {
                    return Err(DAMAGED);
                }
                out.push(symbol as u8);
            }
            symbol => {
                let len = extended(bits, &LENGTHS, symbol - 257)?;
                let symbol = distances.decode(bits)?;
                let distance = extended(bits, &DISTANCES, symbol)?;
                let start = out.len().checked_sub(distance).ok_or(DAMAGED)?;
                if out.len() + len > limit {
                    return Err(DAMAGED);
                }
                // Source and target may overlap, so byte by byte.
                for position in start..start + len {
                    let byte = *out.get(position).ok_or(DAMAGED)?;
                    out.push(byte);
                }
            }
        }
    }
}

fn adler32(data: &[u8]) -> u32 {
    let (mut a, mut b) = (1u32, 0u32);
    // 5552 bytes is the most that cannot overflow before the remainder is taken.
    for chunk in data.chunks(5552) {
        for &byte in chunk {
            a += u32::from(byte);
            b += a;
        }
        a %= 65521;
        b %= 65521;
    }
    b << 16 | a
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `zlib.compress(b"hello hello hello hello", 9)`: one block with fixed codes.
    const FIXED: [u8; 16] = [0x78, 0xda, 0xcb, 0x48, 0xcd, 0xc9, 0xc9, 0x57, 0xc8, 0x40, 0x27, 0x01, 0x68, 0x03, 0x08, 0xb1];
    const TEXT: &[u8] = b"hello hello hello hello";

    /// The same tool's stream for [`dynamic_text`]: one block with codes of its own.
    const DYNAMIC: &str = "\
        78da2dd1d1aea420144451401104d46fb445a56dfcffd7a99db9ef273b39b5ccbe7f0e73b5a79bb3f5c3fc8ef69a7efe4e73eddf6a5a7d1f53f7fe98\
        fb3aaba9f5bc8c6e77733f6f35bd7e77cbb1bdde76d8fbe8cd7efad36c3d3ebbdd95b65569fb51dade4adb4bd7b62b6dbbd2f656da35a55d55dadd4a\
        bbaab46b4a3b8e5d57dafd9476a7d2ee52daa9bcbb4369d7951e0ea58757d7c3a9f450951e1ea58747e941e53a5c4a0fbbd243557ad8ff8edfe1507a\
        6c4a8f4de991f2f8517a7c941ebbd263537afce97afc2a3dbe4a8f7af21e4f95fda9b4ef4afb5769ff55da73ec9bd2be2bed1fa5fd4765afadabd793\
        1fafad6fafadaf49f3f5495bf7495bdf93b66e93b6ae93b6be276d5d276ddd266dfd77acad7f93b63e27dd5e415bef01c600638031c0189009300618\
        038c01c600638031c018618c1c4718238c11c608638431c218618c304664228c11c619c619c619c619c619c619c699e319c619c619c619c699b1138c\
        09c604638231c198604c302618138c09c604638231c19861cc306618338c99728631c39861cc306664328c19c60c6381b1c058602c3016180bc705c6\
        026381b1c058602c3016181718176416181718171817181718171817181718ff1fc3b8c0b8c2b8c2b8c2b8c2b8c2b8c2b822b3c2b8c2b8c2b8c2b8c2\
        b8c1b8c1b8c1b871bcc1b8c1b8c1b8c1f80f4b1046c2";

    fn dynamic_text() -> Vec<u8> {
        (0..1000usize).map(|i| if i % 5 == 0 { (i / 64) as u8 } else { (i * i / 7 % 13) as u8 + b'a' }).collect()
    }

    fn stored_stream(data: &[u8]) -> Vec<u8> {
        let mut out = vec![0x78, 0x01, 0x01];
        out.extend((data.len() as u16).to_le_bytes());
        out.extend((!(data.len() as u16)).to_le_bytes());
        out.extend(data);
        out.extend(adler32(data).to_be_bytes());
        out
    }

    #[test]
    fn fixed_and_stored_blocks() {
        assert_eq!(inflate(&FIXED, TEXT.len()).unwrap(), TEXT);
        assert_eq!(inflate(&stored_stream(TEXT), TEXT.len()).unwrap(), TEXT);
        assert_eq!(inflate(&stored_stream(b""), 0).unwrap(), b"");
    }

    #[test]
    fn dynamic_blocks() {
        let stream: Vec<u8> =
            DYNAMIC.as_bytes().chunks(2).map(|hex| u8::from_str_radix(std::str::from_utf8(hex).unwrap(), 16).unwrap()).collect();
        assert_eq!(inflate(&stream, 1000).unwrap(), dynamic_text());
        for len in 0..stream.len() {
            assert!(inflate(&stream[..len], 1000).is_err(), "{len}");
        }
    }

    #[test]
    fn damage_is_an_error() {
        for len in 0..FIXED.len() {
            assert!(inflate(&FIXED[..len], TEXT.len()).is_err(), "{len}");
        }
        for bit in 0..FIXED.len() * 8 {
            let mut bytes = FIXED;
            bytes[bit / 8] ^= 1 << (bit % 8);
            // Bits after the end of the block, and the level in the header that no one checks alone, do not matter.
            if let Ok(out) = inflate(&bytes, TEXT.len()) {
                assert_eq!(out, TEXT, "{bit}");
            }
        }
        assert!(inflate(&FIXED, TEXT.len() - 1).is_err());
        assert!(inflate(&FIXED, TEXT.len() + 1).is_err());
    }
}
