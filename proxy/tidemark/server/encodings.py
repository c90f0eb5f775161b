"""Decompresses request bodies by their ``Content-Encoding`` (RFC 9110, section 8.4).

Every endpoint that reads a body uses it, so the upstream gets the decompressed body. A thread decompresses in pieces
(``codings/decoders.py``) and stops at the limit, so that a few bytes cannot become gigabytes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from starlette.requests import Request

from tidemark.codings.decoders import DECODE_ERRORS, DECODERS, coding_names
from tidemark.core.errors import BodyTooLarge, InvalidRequest, UnsupportedEncoding
from tidemark.core.ports import Headers
from tidemark.server.asgi import read_body
from tidemark.server.errors import ENCODINGS

HEADER = b"content-encoding"
MAX_CODINGS = 3
"""The most codings of one body. Clients send one, and each needs its own pass over the body."""
_SUPPORTED = ", ".join((*ENCODINGS, "identity"))


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
    codings = coding_names([value for name, value in headers if name == HEADER])
    for coding in codings:
        if coding not in DECODERS:
            raise UnsupportedEncoding(f"Content-Encoding {coding[:40]!r} is not supported; use one of {_SUPPORTED}.")
    if len(codings) > MAX_CODINGS:
        raise UnsupportedEncoding(f"More than {MAX_CODINGS} codings lie over the body; use one of {_SUPPORTED}.")
    return codings


def _decoded(body: bytes, codings: Sequence[str], max_bytes: int) -> bytes:
    """Undo codings whose names are known, in any thread."""
    for coding in reversed(codings):
        pieces: list[bytes] = []
        size = 0
        decoder = DECODERS[coding]()
        try:
            for piece in decoder.pieces(body):
                size += len(piece)
                if size > max_bytes:
                    raise BodyTooLarge(
                        f"The request body is larger than {max_bytes} bytes when it is decompressed. "
                        "Send a smaller one, or raise server.max_body_mb."
                    )
                pieces.append(piece)
            decoder.finish()
        except DECODE_ERRORS as error:
            raise InvalidRequest(
                f"The body is not what 'Content-Encoding: {coding}' says: {error}.", code="invalid_encoding"
            ) from error
        body = b"".join(pieces)
    return body
