"""later_llvm.py PRODUCER EPOCH < BITCODE > BITCODE: gives bitcode another identification block, as a
release with that name and that epoch (0 for all so far) would write it. The block keeps its length,
since other blocks are found by their distance from it."""

import sys


class Bits:
    def __init__(self):
        self.value, self.count = 0, 0

    def fixed(self, number, width):
        self.value |= number << self.count
        self.count += width

    def vbr(self, number, width):
        top = 1 << (width - 1)
        while number >= top:
            self.fixed(number & (top - 1) | top, width)
            number >>= width - 1
        self.fixed(number, width)

    def align(self):
        self.count = (self.count + 31) // 32 * 32

    def record(self, code, numbers):  # UNABBREV_RECORD
        self.fixed(3, 3)
        self.vbr(code, 6)
        self.vbr(len(numbers), 6)
        for number in numbers:
            self.vbr(number, 6)

    def string(self, code, text):  # DEFINE_ABBREV: the code, an array of six-bit characters
        alphabet = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._"
        self.fixed(2, 3)
        self.vbr(3, 5)
        self.fixed(1, 1)
        self.vbr(code, 8)
        for encoding in 3, 4:
            self.fixed(encoding << 1, 4)
        self.fixed(4, 3)
        self.vbr(len(text), 6)
        for character in text:
            self.fixed(alphabet.index(character), 6)

    def bytes(self):
        self.align()
        return self.value.to_bytes(self.count // 8, "little")


bitcode = sys.stdin.buffer.read()
assert bitcode[:4] == b"BC\xc0\xde" and bitcode[4] & 3 == 1, "not plain bitcode"
length = 4 * int.from_bytes(bitcode[8:12], "little")
for short in False, True:
    body = Bits()
    if short:
        body.string(1, sys.argv[1])
    else:
        body.record(1, sys.argv[1].encode())
    body.record(2, [int(sys.argv[2])])
    body.fixed(0, 3)  # END_BLOCK
    block = body.bytes()
    if len(block) == length:
        break
else:
    sys.exit(f"{sys.argv[1]} does not fit into {length} bytes")
head = Bits()
head.fixed(1, 2)  # ENTER_SUBBLOCK
head.vbr(13, 8)
head.vbr(3, 4)  # width of record numbers; LLVM's own is 5
sys.stdout.buffer.write(bitcode[:4] + head.bytes() + bitcode[8:12] + block + bitcode[12 + length :])
