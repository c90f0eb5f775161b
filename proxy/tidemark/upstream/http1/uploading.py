"""Writes a request's body to a connection while it arrives, so that it is never in memory as a whole.

``connection.py`` starts it after the head of such a request. It waits if the server takes no more for now.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable
from contextlib import aclosing
from typing import Protocol

from tidemark.core.ports import Upload
from tidemark.upstream.http1.failures import UploadBroken

LAST_CHUNK = b"0\r\n\r\n"


class UploadTarget(Protocol):
    """The connection, as an upload sees it."""

    def wait_until_writable(self) -> Awaitable[None]:
        """Wait while the server takes no more."""
        ...

    def write_piece(self, data: bytes) -> None:
        """Write, and give the server the whole of its time again.

        :raises ConnectionError: the connection is closed
        """
        ...


async def upload_to(target: UploadTarget, upload: Upload) -> None:
    """Write the whole body, framed as the head of its request says (RFC 9112, section 6).

    :raises OSError: the body broke off, or is not of the length that was announced
    """
    chunked = upload.length is None
    async with aclosing(pieces_of(upload)) as pieces:
        async for piece in pieces:
            await target.wait_until_writable()
            target.write_piece(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)
    if chunked:
        await target.wait_until_writable()
        target.write_piece(LAST_CHUNK)


async def pieces_of(upload: Upload) -> AsyncGenerator[bytes, None]:
    """Yield the pieces of a body, none of them empty.

    :raises OSError: the body broke off, or is not of the length that was announced
    """
    size, length = 0, upload.length
    async with aclosing(upload.pieces):
        async for piece in upload.pieces:
            size += len(piece)
            if length is not None and size > length:
                raise UploadBroken("the body is longer than its Content-Length")
            if piece:
                yield piece
    if length is not None and size < length:
        raise UploadBroken(f"the body ended {length - size} bytes before its Content-Length")
