"""Writes and reads files of Zstandard frames, each of which can be read alone.

Any program for Zstandard reads such a file as a whole (RFC 8878, section 3.1). What ends in the middle of a frame is
whole up to that frame, and each frame has a checksum of its content.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import BinaryIO

from tidemark.core.frozen import frozen

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

_IN_BYTES = 262_144
_OUT_BYTES = 1_048_576
MAX_FRAME_BYTES = 268_435_456
"""The content of a frame may be larger only if its compressed bytes are many, too. A file of 33 KB could hold
gigabytes; a frame has a few megabytes, or one conversation, whose messages are compressed already."""
MOST_RATIO = 100
"""The content of a larger frame for each of its compressed bytes."""
_OPTIONS: dict[int, int] = {zstd.CompressionParameter.compression_level: 3, zstd.CompressionParameter.checksum_flag: 1}


@frozen
class Frame:
    """One frame of a file: its first byte, the byte after its end, and its content."""

    start: int
    end: int
    content: bytes


class BrokenFrame(ValueError):
    """A frame cannot be read; all before it can."""

    def __init__(self, start: int, cause: str, *, is_cut: bool) -> None:
        super().__init__(cause)
        self.start = start
        """The frame's first byte in the file."""
        self.is_cut = is_cut
        """Whether the file ends before the frame does."""


class FrameWriter:
    """Compresses what it is given into a file. Mutable: the frame under way and its size."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._compressor = zstd.ZstdCompressor(options=_OPTIONS)
        self.size = 0
        """Bytes of content in the frame under way."""

    def add(self, content: bytes) -> None:
        self._file.write(self._compressor.compress(content))
        self.size += len(content)

    def end(self) -> None:
        """End the frame, and hand all of it to the operating system."""
        self._file.write(self._compressor.flush(zstd.ZstdCompressor.FLUSH_FRAME))
        self._file.flush()
        self.size = 0


def read_frames(file: BinaryIO, start: int = 0, *, max_bytes: int = MAX_FRAME_BYTES) -> Iterator[Frame]:
    """Yield the frames of a file, from the one that begins at a byte.

    :param max_bytes: the content of a frame beyond which it must have many compressed bytes, too
    :raises BrokenFrame: one is damaged, cut or too large
    """
    file.seek(start)
    rest = b""
    while True:
        decompressor, pieces, size, content = zstd.ZstdDecompressor(), [], 0, 0
        while not decompressor.eof:
            compressed = rest or file.read(_IN_BYTES)
            rest = b""
            if not compressed and not size:
                return
            if not compressed:
                raise BrokenFrame(start, "the file ends within a frame", is_cut=True)
            size += len(compressed)
            while not decompressor.eof:
                try:
                    piece = decompressor.decompress(compressed, _OUT_BYTES)
                except zstd.ZstdError as error:
                    raise BrokenFrame(start, str(error), is_cut=False) from error
                pieces.append(piece)
                content += len(piece)
                if content > max(max_bytes, MOST_RATIO * size):
                    raise BrokenFrame(start, f"it would inflate to more than {content:,} bytes", is_cut=False)
                compressed = b""
                if decompressor.needs_input:
                    break
        rest = decompressor.unused_data
        end = start + size - len(rest)
        yield Frame(start, end, b"".join(pieces))
        start = end
