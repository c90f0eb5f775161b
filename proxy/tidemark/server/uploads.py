"""Reads request bodies while they are sent on, so that they are never in memory as a whole.

``endpoints/forwarding.py`` uses it; only what may be JSON is read whole. ``spools.py`` keeps the beginning of a body
whose model decides where it goes.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from io import BytesIO
from types import TracebackType
from typing import Self

from starlette.types import Message, Receive

from tidemark.core.ports import Headers
from tidemark.server.asgi import too_large, wait_for_disconnect

AHEAD_BYTES = 262_144
"""How much of a body is read before somebody takes it. Reading ahead shows a client's disconnection early."""
IN_MEMORY_BYTES = 1_048_576
"""A form of this length at most is read whole."""
_BEFORE_JSON = b" \t\r\n\v\f\0\xef\xbb\xbf\xff\xfe"
"""White space, and what UTF-8, UTF-16 and UTF-32 may have before the first character."""
UNTYPED = (b"", b"text/plain")
"""Media types that say nothing of a body: ``requests`` and ``fetch`` state none for bytes, or plain text."""


async def object_or_pieces(
    pieces: AsyncGenerator[bytes, None], max_bytes: int, note_kept: Callable[[], object]
) -> bytes | AsyncGenerator[bytes, None]:
    """Look at the beginning of a body that may be JSON, whatever its type says.

    :param max_bytes: of an object
    :param note_kept: called before more of the body is kept
    :returns: a JSON object as a whole, else the body in pieces
    :raises BodyTooLarge: the object is larger than ``max_bytes``
    """
    beginning = b""
    async for piece in pieces:
        beginning += piece
        if beginning.strip(_BEFORE_JSON) or len(beginning) >= AHEAD_BYTES:
            break
    text = beginning.lstrip(_BEFORE_JSON)
    if text and not text.startswith(b"{"):  # white space may go on for long, and an object follow
        return _continued(beginning, pieces)
    note_kept()
    return await whole_body(_continued(beginning, pieces), max_bytes)


async def whole_body(pieces: AsyncGenerator[bytes, None], max_bytes: int) -> bytes:
    """Return a body as a whole.

    :raises BodyTooLarge: it is larger than ``max_bytes``
    """
    whole = BytesIO()
    async for piece in pieces:
        whole.write(piece)
        if whole.tell() > max_bytes:
            raise too_large(max_bytes)
    return whole.getvalue()


async def _continued(beginning: bytes, pieces: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    if beginning:
        yield beginning
    async for piece in pieces:
        yield piece


def declared_length(headers: Headers) -> int | None:
    """Return the length that a request states for its body; None if it has chunks, or no body."""
    for name, value in headers:
        if name == b"content-length" and value.isdigit():
            return int(value)
    return None


class ArrivingBody:
    """Reads one body ahead, and notices when the client disconnects; it is a context manager.

    Mutable: the bytes that nobody has taken, and whether any more is wanted.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._pieces: list[bytes] = []
        self._waiting_bytes = 0
        self._is_complete = self._is_unwanted = False
        self._news, self._room, self._disconnection = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def __aenter__(self) -> Self:
        self._reading = asyncio.create_task(self._read())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._reading.cancel()

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives. It has no end if it breaks off, nor after ``discard``."""
        while True:
            while self._is_unwanted or not (self._pieces or self._is_complete):
                self._news.clear()
                await self._news.wait()
            if not self._pieces:
                return
            piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
            self._pieces.clear()
            self._waiting_bytes = 0
            self._room.set()
            yield piece

    def discard(self) -> None:
        """Drop the rest of the body. The client must be able to send it, or it never reads its answer."""
        self._is_unwanted = True
        self._pieces.clear()
        self._room.set()

    async def receive_disconnect(self) -> Message:
        """Wait until the client has disconnected; it has the form of ASGI's ``receive``."""
        await self._disconnection.wait()
        return {"type": "http.disconnect"}

    async def _read(self) -> None:
        while (message := await self._receive())["type"] != "http.disconnect":
            piece: bytes = message.get("body", b"")
            if piece and not self._is_unwanted:
                self._pieces.append(piece)
                self._waiting_bytes += len(piece)
            self._is_complete = not message.get("more_body", False)
            self._news.set()
            if self._is_complete:
                await wait_for_disconnect(self._receive)
                break
            while self._waiting_bytes >= AHEAD_BYTES and not self._is_unwanted:
                self._room.clear()
                await self._room.wait()
        self._disconnection.set()
