"""Decompresses request bodies by their ``Content-Encoding`` (RFC 9110, section 8.4).

Every endpoint that reads a body uses it, so the upstream gets the decompressed body. A thread decompresses in pieces
and stops at the limit, so that a few bytes cannot become gigabytes.
"""

from __future__ import annotations

import asyncio
import sys
import zlib
from collections.abc import Callable, Generator, Iterator, Sequence

import brotli
from starlette.requests import Request

from proxy.core.errors import BodyTooLarge, InvalidRequest, UnsupportedEncoding
from proxy.core.ports import Headers
from proxy.server.asgi import read_body
from proxy.server.errors import ENCODINGS

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

HEADER = b"content-encoding"
MAX_CODINGS = 3
"""The most codings of one body. Clients send one, and each needs its own pass over the body."""
MAX_FRAMES = 10_000
"""The most members of a gzip body or frames of a zstd body. Each costs microseconds, even when it is empty; bgzip makes
blocks of 64 KB, a thousand in a body of 64 MB."""
ZSTD_WINDOW_LOG = 23
"""8 MB, the largest window that a sender may use (RFC 9659, section 3)."""
_IN_BYTES = 65_536
_OUT_BYTES = 262_144
"""The sizes of one step. A step holds the interpreter's lock, and others wait for less than a millisecond."""
_GZIP, _ZLIB, _RAW = 31, 15, -15
"""Values of zlib's ``wbits``, which choose the frame around the deflated bytes."""


def is_encoded(headers: Headers) -> bool:
    """Tell whether a request names a content coding; nearly none does."""
    for name, _ in headers:  # noqa: SIM110 - it runs for every request, and a generator costs three times as much
        if name == HEADER:
            return True
    return False


async def read_plain_body(request: Request, max_bytes: int) -> bytes:
    """Read the whole body of a request and decompress it.

    :param max_bytes: the bound of the body as it was sent, and of what it becomes
    :raises BodyTooLarge: it is larger than ``max_bytes``
    :raises ClientGone: the client disconnected before the body was complete
    :raises UnsupportedEncoding, InvalidRequest: it cannot be decompressed
    """
    headers = request.headers.raw
    return await decoded_body(await read_body(request.receive, headers, max_bytes), headers, max_bytes)


async def decoded_body(body: bytes, headers: Headers, max_bytes: int) -> bytes:
    """Undo the codings that ``content-encoding`` names, the last coding first; nearly always there is none.

    :param max_bytes: the limit of the result, and of the result of each coding
    :raises UnsupportedEncoding: a coding is unknown, or there are more than ``MAX_CODINGS``
    :raises BodyTooLarge: the result is larger than ``max_bytes``
    :raises InvalidRequest: the bytes do not match the header
    """
    codings = _codings(headers) if is_encoded(headers) else ()
    return await asyncio.to_thread(_decoded, body, codings, max_bytes) if codings and body else body


def _codings(headers: Headers) -> list[str]:
    """Return the names of codings in the order in which they were applied, without ``identity``."""
    value = b",".join([value for name, value in headers if name == HEADER]).decode("latin-1")
    names = [name.strip().lower() for name in value.split(",")]
    codings = [name for name in names if name not in ("", "identity")]
    for coding in codings:
        if coding not in _READERS:
            raise UnsupportedEncoding(f"Content-Encoding {coding[:40]!r} is not supported; use one of {_SUPPORTED}.")
    if len(codings) > MAX_CODINGS:
        raise UnsupportedEncoding(f"More than {MAX_CODINGS} codings lie over the body; use one of {_SUPPORTED}.")
    return codings


def _decoded(body: bytes, codings: Sequence[str], max_bytes: int) -> bytes:
    """Undo codings whose names are known, in any thread."""
    for coding in reversed(codings):
        pieces: list[bytes] = []
        size = 0
        try:
            for piece in _READERS[coding](body):
                size += len(piece)
                if size > max_bytes:
                    raise BodyTooLarge(
                        f"The request body is larger than {max_bytes} bytes when it is decompressed. "
                        "Send a smaller one, or raise server.max_body_mb."
                    )
                pieces.append(piece)
        except (zlib.error, brotli.error, zstd.ZstdError, EOFError, ValueError) as error:
            raise InvalidRequest(
                f"The body is not what 'Content-Encoding: {coding}' says: {error}.", code="invalid_encoding"
            ) from error
        body = b"".join(pieces)
    return body


def _frames(body: bytes) -> Iterator[None]:
    """Yield once for each frame of a body.

    :raises ValueError: there are more than ``MAX_FRAMES``
    """
    for _ in range(MAX_FRAMES):
        yield
    raise ValueError(f"it has more than {MAX_FRAMES} frames, of {len(body)} bytes together")


def _gzip(body: bytes) -> Iterator[bytes]:
    """Decompress a series of members (RFC 1952, section 2.2); zeros after the last one are padding, as gzip has it."""
    at = 0
    for _ in _frames(body):
        at = yield from _inflated(body, at, _GZIP)
        if at == len(body) or (not body[at] and not body[at:].strip(b"\0")):
            return


def _deflate(body: bytes) -> Iterator[bytes]:
    """Decompress zlib's format (RFC 9110, section 8.4.1.2); some clients omit its frame."""
    framed = len(body) > 1 and body[0] & 0x0F == 8 and int.from_bytes(body[:2], "big") % 31 == 0
    if (yield from _inflated(body, 0, _ZLIB if framed else _RAW)) < len(body):
        raise ValueError("more bytes follow its end")


def _inflated(body: bytes, at: int, wbits: int) -> Generator[bytes, None, int]:
    """Decompress the deflated stream at ``at``, and return the position of its end."""
    reader, view = zlib.decompressobj(wbits), memoryview(body)
    while not reader.eof:
        chunk = view[at : at + _IN_BYTES]
        piece = reader.decompress(chunk, _OUT_BYTES)
        at += len(chunk) - len(reader.unconsumed_tail) - len(reader.unused_data)
        if not chunk and not piece and not reader.eof:
            raise ValueError("it ends before its end")
        yield piece
    return at


def _brotli(body: bytes) -> Iterator[bytes]:
    """Decompress one stream (RFC 7932)."""
    reader, at = brotli.Decompressor(), 0
    while not reader.is_finished():
        chunk = body[at : at + _IN_BYTES] if reader.can_accept_more_data() else b""
        at += len(chunk)
        piece = reader.process(chunk, output_buffer_limit=_OUT_BYTES)
        if not chunk and not piece and reader.can_accept_more_data() and not reader.is_finished():
            raise ValueError("it ends before its end")
        yield piece
    if at < len(body):
        raise ValueError("more bytes follow its end")


def _zstd(body: bytes) -> Iterator[bytes]:
    """Decompress a series of frames (RFC 8878, section 3)."""
    view, at = memoryview(body), 0
    for _ in _frames(body):
        reader = zstd.ZstdDecompressor(options={zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG})
        while not reader.eof:
            chunk = view[at : at + _IN_BYTES] if reader.needs_input else view[:0]
            at += len(chunk)
            piece = reader.decompress(chunk, _OUT_BYTES)
            if not chunk and not piece and reader.needs_input and not reader.eof:
                raise ValueError("it ends before its end")
            yield piece
        at -= len(reader.unused_data)
        if at == len(body):
            return


_READERS: dict[str, Callable[[bytes], Iterator[bytes]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "br": _brotli,
    "zstd": _zstd,
}
_SUPPORTED = ", ".join((*ENCODINGS, "identity"))
