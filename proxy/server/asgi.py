"""Plain ASGI: reading a body within its cap, noticing that the client is gone, sending a response piece by piece.

No middleware class stands between the server and a stream: what is sent here goes straight to the socket, a head with
the first piece of its body.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Sequence
from io import BytesIO

from starlette.types import Receive, Send

from proxy.core.errors import BodyTooLarge, TidemarkError
from proxy.core.ports import Headers
from proxy.server.errors import envelope, error_lines, event, status_of

JSON = (b"content-type", b"application/json")
DISCONNECT_WATCH_DELAY_SECONDS = 0.005
"""So late it begins to be noticed that a client leaves."""


class ClientGone(Exception):
    """The client closed the connection."""


async def read_body(receive: Receive, headers: Headers, max_bytes: int) -> bytes:
    """The whole request body.

    :raises BodyTooLarge: told by ``content-length`` before anything is read, or found while reading
    :raises ClientGone: the client left before the body was complete
    """
    for name, declared in headers:
        if name == b"content-length":
            if declared.isdigit() and int(declared) > max_bytes:
                raise _too_large(max_bytes)
            break
    gathered = BytesIO()  # whose value is not copied, as a list of pieces would be when it is joined
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > max_bytes:
            raise _too_large(max_bytes)
        if not message.get("more_body", False) and size == len(piece):
            return piece
        gathered.write(piece)
        if not message.get("more_body", False):
            return gathered.getvalue()


async def disconnected(receive: Receive) -> None:
    """Return when the client is gone; only after the body has been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class CancelOnDisconnect:
    """Cancels what is done inside when the client goes, and ends with it; only after the body has been read.

    Listening costs a task, so it begins a moment later: most small requests are answered by then, and a client that
    left meanwhile is noticed all the same.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._listener: asyncio.Task[None] | None = None
        self._left = self._over = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("outside of a task")
        self._task = task
        self._timer = task.get_loop().call_later(DISCONNECT_WATCH_DELAY_SECONDS, self._listen)

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: object) -> bool:
        self._over = True
        self._timer.cancel()
        if self._listener is not None:
            self._listener.cancel()
        # Of a cancellation that is not only ours, whoever else asked for it must hear.
        return self._left and self._task.uncancel() <= 0 and kind is not None and issubclass(kind, CancelledError)

    def _listen(self) -> None:
        self._listener = asyncio.create_task(disconnected(self._receive))
        self._listener.add_done_callback(self._gone)

    def _gone(self, listener: asyncio.Task[None]) -> None:
        if not self._over and not listener.cancelled():
            self._left = True
            self._task.cancel()


class Response:
    """One response in the making. The mutable state is how far it has got."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._begun = False
        self.status: int | None = None
        """None until the status line is handed over; where it was given up half way, nothing can follow it."""
        self.ended = False

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        """Send status and headers."""
        self._begun = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        self.status = status

    async def piece(self, data: bytes) -> None:
        """Send a piece of the body at once."""
        if self.status is not None:
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the last piece."""
        if self.status is not None and not self.ended:
            self.ended = True
            await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], data: bytes) -> None:
        """Send a response that is there in full; the headers do not tell its length yet."""
        await self.start(status, [*headers, (b"content-length", b"%d" % len(data))])
        await self.end(data)

    async def error(self, error: TidemarkError, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Send an error: as a response of its own, or as an event of the stream that has begun."""
        if not self._begun:
            await self.whole(status_of(error), [JSON, *error_lines(error), *headers], envelope(error))
        else:
            await self.end(event(envelope(error)))


def _too_large(max_bytes: int) -> BodyTooLarge:
    return BodyTooLarge(
        f"The request body is larger than {max_bytes} bytes. Send a smaller one, or raise server.max_body_mb."
    )
