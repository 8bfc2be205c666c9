//! Which release made a piece of bitcode, read without LLVM: its reader gives up at the first thing that it does not know, and then the
//! release is what a person has to be told.
//!
//! Bitcode begins with an identification block (number 13), whose record 1 is a string such as `LLVM22.1.8`. The format is that of
//! <https://llvm.org/docs/BitCodeFormat.html>; its containers of abbreviations, blocks and records have not changed since LLVM 2.

const IDENTIFICATION_BLOCK: u64 = 13;
const STRING_RECORD: u64 = 1;
/// Longest string that is believed.
const MAX_STRING: u64 = 256;
/// More operands than an abbreviation of LLVM's has; each use of one costs as much as it has of them.
const MAX_OPERANDS: u64 = 64;

/// The name and version of the compiler that made `bitcode`, such as `LLVM22.1.8`. `None` if it does not say, or is no bitcode.
pub fn bitcode_producer(bitcode: &[u8]) -> Option<String> {
    let bitcode = match bitcode {
        // A wrapper: magic, version, offset, size, CPU.
        [0xde, 0xc0, 0x17, 0x0b, ..] => bitcode.get(crate::bytes::u32_le(bitcode, 8)? as usize..)?,
        _ => bitcode,
    };
    let mut bits = Bits { bytes: bitcode.strip_prefix(b"BC\xc0\xde")?, at: 0 };
    // ENTER_SUBBLOCK: block number, width of abbreviation numbers, alignment, length in words.
    if (bits.fixed(2)?, bits.vbr(8)?) != (1, IDENTIFICATION_BLOCK) {
        return None;
    }
    let width = bits.vbr(4)?;
    bits.align();
    bits.fixed(32)?;
    let mut abbreviations: Vec<Vec<Operand>> = Vec::new();
    loop {
        let (code, operands) = match bits.fixed(width)? {
            0 | 1 => return None,
            2 => {
                abbreviations.push(bits.abbreviation()?);
                continue;
            }
            3 => {
                let (code, count) = (bits.vbr(6)?, bits.vbr(6)?);
                let operands = (0..count.min(MAX_STRING)).map(|_| bits.vbr(6)).collect::<Option<Vec<u64>>>()?;
                (code, operands)
            }
            number => {
                let abbreviation = abbreviations.get(usize::try_from(number - 4).ok()?)?;
                let mut record = bits.record(abbreviation)?.into_iter();
                (record.next()?, record.collect())
            }
        };
        if code == STRING_RECORD {
            let text: Option<Vec<u8>> = operands.into_iter().map(|operand| u8::try_from(operand).ok()).collect();
            return String::from_utf8(text?).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic() || byte == b' '));
        }
    }
}

/// How an abbreviation stores one operand.
#[derive(Clone, Copy)]
enum Operand {
    Literal(u64),
    Fixed(u64),
    Vbr(u64),
    /// Of what follows it.
    Array,
    Char6,
}

/// Reads fields of bits, the lowest first.
pub(crate) struct Bits<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) at: usize,
}

impl Bits<'_> {
    pub(crate) fn fixed(&mut self, width: u64) -> Option<u64> {
        if width > 64 {
            return None;
        }
        let mut value = 0;
        for shift in 0..width {
            let byte = self.bytes.get(self.at / 8)?;
            value |= u64::from(byte >> (self.at % 8) & 1) << shift;
            self.at += 1;
        }
        Some(value)
    }

    /// A number in chunks of `width` bits, of which the highest says that there are more.
    pub(crate) fn vbr(&mut self, width: u64) -> Option<u64> {
        if !(2..=32).contains(&width) {
            return None;
        }
        let (mut value, mut shift) = (0u64, 0);
        loop {
            let chunk = self.fixed(width)?;
            let more = chunk >> (width - 1);
            value |= (chunk & ((1 << (width - 1)) - 1)).checked_shl(shift)?;
            if more == 0 {
                return Some(value);
            }
            shift += width as u32 - 1;
        }
    }

    pub(crate) fn align(&mut self) {
        self.at = self.at.next_multiple_of(32);
    }

    fn abbreviation(&mut self) -> Option<Vec<Operand>> {
        let count = self.vbr(5).filter(|&count| count <= MAX_OPERANDS)?;
        let mut operands = Vec::new();
        for _ in 0..count {
            operands.push(if self.fixed(1)? == 1 {
                Operand::Literal(self.vbr(8)?)
            } else {
                match self.fixed(3)? {
                    1 => Operand::Fixed(self.vbr(5)?),
                    2 => Operand::Vbr(self.vbr(5)?),
                    3 => Operand::Array,
                    4 => Operand::Char6,
                    _ => return None,
                }
            });
        }
        Some(operands)
    }

    fn operand(&mut self, operand: Operand) -> Option<u64> {
        match operand {
            Operand::Literal(value) => Some(value),
            Operand::Fixed(width) => self.fixed(width),
            Operand::Vbr(width) => self.vbr(width),
            Operand::Char6 => {
                let alphabet = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._";
                alphabet.get(self.fixed(6)? as usize).map(|&byte| byte.into())
            }
            Operand::Array => None,
        }
    }

    fn record(&mut self, abbreviation: &[Operand]) -> Option<Vec<u64>> {
        let mut record = Vec::new();
        let mut operands = abbreviation.iter();
        while let Some(&operand) = operands.next() {
            if let Operand::Array = operand {
                let element = *operands.next()?;
                for _ in 0..self.vbr(6)?.min(MAX_STRING) {
                    record.push(self.operand(element)?);
                }
            } else {
                record.push(self.operand(operand)?);
            }
        }
        Some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The identification block of LLVM 22.1.8, as `llvm-as` writes it, up to the module.
    const BLOCK: [u8; 36] = [
        0x42, 0x43, 0xc0, 0xde, 0x35, 0x14, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x62, 0x0c, 0x30, 0x24, 0x4a, 0x59, 0xbe, 0xa6, 0x6d, 0xfb,
        0xb5, 0xcf, 0x0b, 0x51, 0x80, 0x4c, 0x01, 0x00, 0x00, 0x00, 0x21, 0x0c, 0x00, 0x00,
    ];

    #[test]
    fn the_release_is_read() {
        assert_eq!(bitcode_producer(&BLOCK).as_deref(), Some("LLVM22.1.8"));
        let wrapped = [&[0xde, 0xc0, 0x17, 0x0b, 0, 0, 0, 0, 20, 0, 0, 0, 36, 0, 0, 0, 7, 0, 0, 1][..], &BLOCK].concat();
        assert_eq!(bitcode_producer(&wrapped).as_deref(), Some("LLVM22.1.8"));
    }

    #[test]
    fn records_without_abbreviations_are_read() {
        // Written bit by bit: value and width.
        let mut bits: Vec<bool> = Vec::new();
        let mut put = |value: u64, width: usize| bits.extend((0..width).map(|bit| value >> bit & 1 == 1));
        for (value, width) in [(1, 2), (13, 8), (3, 4), (0, 18), (0, 32), (3, 3), (1, 6), (3, 6)] {
            put(value, width);
        }
        for byte in *b"L24" {
            // 6-bit chunks with five bits of the number in each.
            put(u64::from(byte) & 31 | 32, 6);
            put(u64::from(byte) >> 5, 6);
        }
        let mut bytes = b"BC\xc0\xde".to_vec();
        bytes.extend(bits.chunks(8).map(|bits| bits.iter().enumerate().fold(0, |byte, (at, &bit)| byte | u8::from(bit) << at)));
        assert_eq!(bitcode_producer(&bytes).as_deref(), Some("L24"));
    }

    /// A file whose abbreviations and records of three bits each would be worth a million operations per byte.
    #[test]
    fn abbreviations_are_short() {
        let with = |operands: u64| {
            let mut bits: Vec<bool> = Vec::new();
            let mut put = |value: u64, width: usize| bits.extend((0..width).map(|bit| value >> bit & 1 == 1));
            for (value, width) in [(1, 2), (13, 8), (3, 4), (0, 18), (0, 32), (2, 3)] {
                put(value, width);
            }
            // The number of operands, in 5-bit chunks with four bits each; literals, of which the first is the code.
            put(operands & 15 | 16, 5);
            put(operands >> 4, 5);
            for operand in 0..operands {
                put(1, 1);
                put(if operand == 0 { STRING_RECORD } else { u64::from(b'L') }, 8);
            }
            put(4, 3);
            let bytes = bits.chunks(8).map(|bits| bits.iter().enumerate().fold(0, |byte, (at, &bit)| byte | u8::from(bit) << at));
            b"BC\xc0\xde".iter().copied().chain(bytes).collect::<Vec<u8>>()
        };
        assert_eq!(bitcode_producer(&with(4)).as_deref(), Some("LLL"));
        assert_eq!(bitcode_producer(&with(MAX_OPERANDS)).map(|text| text.len()), Some(63));
        assert_eq!(bitcode_producer(&with(MAX_OPERANDS + 1)), None);
    }

    #[test]
    fn damaged_blocks_never_panic() {
        for len in 0..BLOCK.len() {
            let _ = bitcode_producer(&BLOCK[..len]);
        }
        for at in 0..BLOCK.len() {
            for value in 0..=255 {
                let mut damaged = BLOCK;
                damaged[at] = value;
                let _ = bitcode_producer(&damaged);
            }
        }
        for other in [&b""[..], b"BC\xc0\xde", b"\x7fELF", &[0xff; 100]] {
            assert_eq!(bitcode_producer(other), None);
        }
    }
}
