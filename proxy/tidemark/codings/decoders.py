"""Decoders of content codings (RFC 9110, section 8.4). They take bytes as these come, and give bounded pieces.

The server decodes request bodies with them (``server/encodings.py``), and the pipeline the replies of upstreams that
compress unasked (``pipeline/plain_replies.py``).
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from typing import Protocol

import brotli

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

MAX_FRAMES = 10_000
"""The most members of a gzip body or frames of a zstd body. Each costs microseconds, even when it is empty; bgzip makes
blocks of 64 KB, a thousand in a body of 64 MB."""
ZSTD_WINDOW_LOG = 23
"""8 MB, the largest window that a sender may use (RFC 9659, section 3)."""
OUT_BYTES = 262_144
"""The largest piece that a step gives; Brotli's may be twice as large. A step holds the interpreter's lock for less
than a millisecond."""
DECODE_ERRORS = (zlib.error, brotli.error, zstd.ZstdError, EOFError, ValueError)
"""What a decoder raises if the bytes are not of its coding."""
_IN_BYTES = 65_536
_GZIP, _ZLIB, _RAW = 31, 15, -15
"""Values of zlib's ``wbits``, which choose the frame around the deflated bytes."""
_CUT = "it ends before its end"
_MORE = "more bytes follow its end"


class Decoder(Protocol):
    """Undoes one coding of one body."""

    def pieces(self, data: bytes) -> Iterator[bytes]:
        """Take in the next bytes, and yield what they become in pieces of ``OUT_BYTES``.

        The iterator must be used up before the next call. It raises one of ``DECODE_ERRORS``.
        """
        ...

    def finish(self) -> None:
        """Note that no more bytes come.

        :raises ValueError: the body ends before its end
        """
        ...


class _Gzip:
    """Decodes a series of members (RFC 1952, section 2.2); zeros after the last one are padding, as gzip has it."""

    def __init__(self) -> None:
        self._reader = zlib.decompressobj(_GZIP)
        self._frames = 1
        self._in_padding = False

    def pieces(self, data: bytes) -> Iterator[bytes]:
        view, at = memoryview(data), 0
        while True:
            if self._reader.eof:
                if at == len(view):
                    return
                if self._in_padding or not view[at]:
                    self._skip_padding(data[at:])
                    return
                self._frames = _next_frame(self._frames)
                self._reader = zlib.decompressobj(_GZIP)
            at += yield from _inflated(self._reader, view[at:])
            if not self._reader.eof:
                return

    def finish(self) -> None:
        if not self._reader.eof:
            raise ValueError(_CUT)

    def _skip_padding(self, rest: bytes) -> None:
        self._in_padding = True
        if rest.strip(b"\0"):
            raise ValueError(_MORE)


class _Deflate:
    """Decodes zlib's format (RFC 9110, section 8.4.1.2); some senders omit its frame."""

    def __init__(self) -> None:
        self._start = b""
        self._reader = zlib.decompressobj(_ZLIB)
        self._begun = False

    def pieces(self, data: bytes) -> Iterator[bytes]:
        if not self._begun:
            self._start += data
            if len(self._start) < 2:
                return
            data = self._start
            self._begin(data)
        read = 0 if self._reader.eof else (yield from _inflated(self._reader, memoryview(data)))
        if self._reader.eof and read < len(data):
            raise ValueError(_MORE)

    def finish(self) -> None:
        if not self._reader.eof:
            raise ValueError(_CUT)

    def _begin(self, start: bytes) -> None:
        self._begun = True
        if start[0] & 0x0F != 8 or int.from_bytes(start[:2], "big") % 31 != 0:
            self._reader = zlib.decompressobj(_RAW)


class _Brotli:
    """Decodes one stream (RFC 7932)."""

    def __init__(self) -> None:
        self._reader = brotli.Decompressor()

    def pieces(self, data: bytes) -> Iterator[bytes]:
        reader, at = self._reader, 0
        while not reader.is_finished():
            chunk = data[at : at + _IN_BYTES] if reader.can_accept_more_data() else b""
            at += len(chunk)
            piece = reader.process(chunk, output_buffer_limit=OUT_BYTES)
            if piece:
                yield piece
            elif not chunk and reader.can_accept_more_data() and not reader.is_finished():
                return
        if at < len(data):
            raise ValueError(_MORE)

    def finish(self) -> None:
        if not self._reader.is_finished():
            raise ValueError(_CUT)


class _Zstandard:
    """Decodes a series of frames (RFC 8878, section 3)."""

    def __init__(self) -> None:
        self._reader = _zstandard_reader()
        self._frames = 1

    def pieces(self, data: bytes) -> Iterator[bytes]:
        view, at = memoryview(data), 0
        while True:
            if self._reader.eof:
                if at == len(view):
                    return
                self._frames = _next_frame(self._frames)
                self._reader = _zstandard_reader()
            reader = self._reader
            chunk = view[at : at + _IN_BYTES] if reader.needs_input else view[:0]
            at += len(chunk)
            piece = reader.decompress(chunk, OUT_BYTES)
            if reader.eof:
                at -= len(reader.unused_data)
            if piece:
                yield piece
            elif not chunk and reader.needs_input and not reader.eof:
                return

    def finish(self) -> None:
        if not self._reader.eof:
            raise ValueError(_CUT)


def _inflated(reader: zlib._Decompress, view: memoryview) -> Generator[bytes, None, int]:
    """Yield what bytes become, up to the reader's end or theirs, and return how many were read."""
    at = 0
    while True:
        chunk = view[at : at + _IN_BYTES]
        piece = reader.decompress(chunk, OUT_BYTES)
        at += len(chunk) - len(
            reader.unused_data if reader.eof else reader.unconsumed_tail
        )  # at the end both may have it
        if piece:
            yield piece
        if reader.eof or not (piece or chunk):
            return at


def _next_frame(frames: int) -> int:
    """Return the number of frames with one more.

    :raises ValueError: there are more than ``MAX_FRAMES``
    """
    if frames >= MAX_FRAMES:
        message = f"it has more than {MAX_FRAMES} frames"
        raise ValueError(message)
    return frames + 1


def _zstandard_reader() -> zstd.ZstdDecompressor:
    return zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})


DECODERS: dict[str, Callable[[], Decoder]] = {
    "gzip": _Gzip,
    "x-gzip": _Gzip,
    "deflate": _Deflate,
    "br": _Brotli,
    "zstd": _Zstandard,
}
"""A new decoder by the name of a coding, in lower case."""


def coding_names(values: list[bytes]) -> list[str]:
    """Return the codings of a body in the order in which they were applied, in lower case, without ``identity``.

    :param values: those of all its ``Content-Encoding`` lines
    """
    names = [name.strip().lower() for name in b",".join(values).decode("latin-1").split(",")]
    return [name for name in names if name not in ("", "identity")]
