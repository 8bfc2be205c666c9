"""Prints for each PNG (8 bits a channel, not interlaced) its name and the mean brightness of its pixels, 0 to 255."""

import struct
import sys
import zlib


def rows(data):
    at, packed, width, channels = 8, b"", 0, 0
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        body = data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            width, _, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            assert depth == 8 and not interlaced
            channels = {0: 1, 2: 3, 6: 4}[colour]
        elif kind == b"IDAT":
            packed += body
        at += length + 12
    plain, stride = zlib.decompress(packed), width * channels
    before = bytearray(stride)
    for start in range(0, len(plain), stride + 1):
        method, row = plain[start], bytearray(plain[start + 1 : start + 1 + stride])
        for i in range(stride):
            left = row[i - channels] if i >= channels else 0
            up = before[i]
            corner = before[i - channels] if i >= channels else 0
            if method == 1:
                row[i] = row[i] + left & 255
            elif method == 2:
                row[i] = row[i] + up & 255
            elif method == 3:
                row[i] = row[i] + (left + up) // 2 & 255
            elif method == 4:
                guess = left + up - corner
                row[i] = row[i] + min((left, up, corner), key=lambda value: abs(guess - value)) & 255
        yield row, channels
        before = row


for path in sys.argv[1:]:
    total = count = 0
    for row, channels in rows(open(path, "rb").read()):
        for channel in range(min(channels, 3)):
            total += sum(row[channel::channels])
            count += len(row) // channels
    print(path, total // count)
