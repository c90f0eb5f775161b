"""Makes the pictures of pages small: few colours are in a page, so each pixel is one byte that names its colour.

Chromium writes three bytes a pixel. The format is that of RFC 2083 (PNG), without interlacing.
"""

from __future__ import annotations

import struct
import zlib
from collections import Counter
from collections.abc import Iterator

_SIGNATURE = b"\x89PNG\r\n\x1a\n"
_COLOURS = 256
_RGB = 2
"""The type of colour that Chromium writes: red, green and blue, one byte each."""


def pack(picture: bytes) -> bytes:
    """Return a picture of at most 256 colours in fewer bytes; of more colours, similar ones become one."""
    chunks = list(_chunks(picture))
    width, height, depth, kind = struct.unpack(">IIBB", chunks[0][1][:10])
    assert (depth, kind) == (8, _RGB), "a picture of another kind"
    raw = zlib.decompress(b"".join(body for name, body in chunks if name == b"IDAT"))
    rows = _rows(raw, 3 * width)
    pixels = [row[place : place + 3] for row in rows for place in range(0, 3 * width, 3)]
    counts = Counter(pixels)
    common = [colour for colour, _ in counts.most_common(_COLOURS)]
    places = {colour: place for place, colour in enumerate(common)}
    for colour in counts.keys() - places.keys():
        places[colour] = min(range(len(common)), key=lambda place: _distance(common[place], colour))
    named = bytes(places[pixel] for pixel in pixels)
    lines = b"".join(b"\0" + named[start : start + width] for start in range(0, width * height, width))
    head = struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)
    parts = ((b"IHDR", head), (b"PLTE", b"".join(common)), (b"IDAT", zlib.compress(lines, 9)), (b"IEND", b""))
    return _SIGNATURE + b"".join(_chunk(name, body) for name, body in parts)


def _distance(one: bytes, other: bytes) -> int:
    return sum((left - right) ** 2 for left, right in zip(one, other, strict=True))


def _chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


def _chunks(picture: bytes) -> Iterator[tuple[bytes, bytes]]:
    """The names and bodies of a picture's chunks."""
    place = len(_SIGNATURE)
    while place < len(picture):
        (length,) = struct.unpack(">I", picture[place : place + 4])
        yield picture[place + 4 : place + 8], picture[place + 8 : place + 8 + length]
        place += 12 + length


def _rows(raw: bytes, length: int) -> Iterator[bytes]:
    """The rows of pixels, without the filters that each was written with."""
    above = bytes(length)
    for start in range(0, len(raw), length + 1):
        row = bytearray(raw[start + 1 : start + 1 + length])
        _unfilter(raw[start], row, above)
        above = bytes(row)
        yield above


def _unfilter(kind: int, row: bytearray, above: bytes) -> None:
    """Add to each byte what its filter took off: the byte of the pixel before, of the one above, or both."""
    if kind == 0:
        return
    for place in range(len(row)):
        left, corner = (row[place - 3], above[place - 3]) if place >= 3 else (0, 0)
        if kind == 4:
            added = _paeth(left, above[place], corner)
        else:
            added = (left, above[place], (left + above[place]) // 2)[kind - 1]
        row[place] = (row[place] + added) & 0xFF


def _paeth(left: int, above: int, corner: int) -> int:
    """Of three neighbours, the one that is nearest to their slope."""
    slope = left + above - corner
    return min((left, above, corner), key=lambda value: abs(slope - value))
