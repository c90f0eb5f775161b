"""Reads request bodies within a limit, notices disconnects and sends responses in pieces, all over plain ASGI.

No middleware stands between the server and a stream. What is sent here goes straight to the socket, the headers
together with the first piece of the body.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Sequence
from io import BytesIO

from starlette.types import Receive, Send

from tidemark.core.conversation.request import ErrorFormat
from tidemark.core.errors import BodyTooLarge, TidemarkError
from tidemark.core.ports import Headers
from tidemark.dialects.openai_errors import OPENAI_ERRORS
from tidemark.server.errors import error_lines, status_of

JSON = (b"content-type", b"application/json")
ARRIVES_IN_PIECES = "tidemark.arrives_in_pieces"
"""The key in a request's scope by which its endpoint says that it never has the whole body."""
ON_SHUTDOWN = "tidemark.on_shutdown"
"""The key in a request's scope of a function that ends its response, when the server begins to end."""
CLIENT_GONE = 499
"""nginx's number for a client that disconnected before the status."""
DISCONNECT_WATCH_DELAY_SECONDS = 0.005
"""How long a request runs before a task begins to watch for a disconnect."""


class ClientGone(Exception):
    """Raised when the client closed the connection."""


async def read_body(receive: Receive, headers: Headers, max_bytes: int) -> bytes:
    """Return the whole request body.

    :raises BodyTooLarge: ``content-length`` says so before anything is read, or more bytes than allowed arrived
    :raises ClientGone: the client disconnected before the body was complete
    """
    for name, declared in headers:
        if name == b"content-length":
            if declared.isdigit() and int(declared) > max_bytes:
                raise too_large(max_bytes)
            break
    pieces = BytesIO()  # its value is not copied; joining a list of pieces would copy them
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece: bytes = message.get("body", b"")
        size += len(piece)
        if size > max_bytes:
            raise too_large(max_bytes)
        if not message.get("more_body", False) and size == len(piece):
            return piece
        pieces.write(piece)
        if not message.get("more_body", False):
            return pieces.getvalue()


async def wait_for_disconnect(receive: Receive) -> None:
    """Return when the client has disconnected; call it only after the body was read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class CancelOnDisconnect:
    """Cancels the current task when the client disconnects, while the context is open; use it after reading the body.

    Watching costs a task, so it begins a moment later: most small requests are answered by then. A disconnect in that
    moment is noticed when the watch begins.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._watch: asyncio.Task[None] | None = None
        self._is_disconnected = self._is_over = False

    def __enter__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("a request needs a task")
        self._task = task
        self._timer = task.get_loop().call_later(DISCONNECT_WATCH_DELAY_SECONDS, self._start_watch)

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: object) -> bool:
        self._is_over = True
        self._timer.cancel()
        if self._watch is not None:
            self._watch.cancel()
        # If another task cancelled this one too, its cancellation must go on.
        return (
            self._is_disconnected
            and self._task.uncancel() <= 0
            and kind is not None
            and issubclass(kind, CancelledError)
        )

    def _start_watch(self) -> None:
        self._watch = asyncio.create_task(wait_for_disconnect(self._receive))
        self._watch.add_done_callback(self._cancel_task)

    def _cancel_task(self, watch: asyncio.Task[None]) -> None:
        if not self._is_over and not watch.cancelled():
            self._is_disconnected = True
            self._task.cancel()


class Response:
    """One response while it is sent; its state is how much of it was sent."""

    def __init__(self, send: Send, errors: ErrorFormat = OPENAI_ERRORS) -> None:
        self._send = send
        self._errors = errors
        self._is_started = False
        self.status: int | None = None
        """None until the status line was handed to the server; nothing can follow if that was cancelled."""
        self.ended = False
        self.before_end: Callable[[], Awaitable[None]] | None = None
        """What is done before the last piece is sent: whoever has the whole answer may count on it."""
        self._last_piece = b""
        """The newest piece that was sent. An error that follows goes on with the numbers of its events."""

    async def start(self, status: int, headers: Sequence[tuple[bytes, bytes]]) -> None:
        self._is_started = True
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        self.status = status

    async def send_piece(self, data: bytes) -> None:
        """Send a piece of the body at once."""
        if self.status is not None:
            self._last_piece = data
            await self._send({"type": "http.response.body", "body": data, "more_body": True})

    async def end(self, data: bytes = b"") -> None:
        """Send the last piece."""
        if self.status is not None and not self.ended:
            self.ended = True
            if self.before_end is not None:
                await self.before_end()
            await self._send({"type": "http.response.body", "body": data, "more_body": False})

    async def send_whole(self, status: int, headers: Sequence[tuple[bytes, bytes]], data: bytes) -> None:
        """Send a complete response, and add its length to the headers."""
        await self.start(status, [*headers, (b"content-length", b"%d" % len(data))])
        await self.end(data)

    async def send_error(self, error: TidemarkError, headers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        """Send an error: as a response, or as an event of the stream that has begun."""
        if not self._is_started:
            await self.send_whole(status_of(error), [JSON, *error_lines(error), *headers], self._errors.error(error))
        else:
            await self.end(self._errors.error_event(error, self._last_piece))


def too_large(max_bytes: int) -> BodyTooLarge:
    """Return the error of a body that must be read whole."""
    return BodyTooLarge(
        f"The request body is larger than {max_bytes} bytes. Send a smaller one, or raise server.max_body_mb."
    )
