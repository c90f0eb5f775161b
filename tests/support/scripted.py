"""Scripted upstreams: small servers that do what a test asks in each dialect, and record what they got.

`ScriptedUpstream` is an ASGI application for `tests/support/serving.py`. It speaks chat completions, responses and
messages, and echoes every other request under ``/v1``. `serving` runs on the test's own loop and sends exactly the
bytes that a test wants sent, for what no well-behaved server would send.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from itertools import zip_longest
from types import ModuleType
from typing import Any

from tests.support import chat_answers, messages_answers, responses_answers
from tests.support.answers import JSON_HEADERS, SSE_HEADERS, Answer, Call, Headers, Received, Script, Turn
from tests.support.chat_answers import chunk, error, streamed, whole
from tests.support.other_answers import OtherEndpoints, echo

__all__ = [
    "JSON_HEADERS",
    "SSE_HEADERS",
    "Answer",
    "ByteScript",
    "Call",
    "Exchange",
    "Headers",
    "Received",
    "Script",
    "ScriptedServer",
    "ScriptedUpstream",
    "Turn",
    "calls_tools",
    "chunk",
    "error",
    "fails_after",
    "refuses",
    "says",
    "serving",
    "streamed",
    "tells",
    "whole",
]

LONGEST_WAIT = 20
"""Seconds until an upstream goes on although the test has not set the event that it waits for."""
TLS_HANDSHAKE = b"\x16"
"""The first byte of a client that asks for TLS (RFC 8446, section 5.1)."""
DIALECTS: dict[str, ModuleType] = {
    "chat": chat_answers,
    "responses": responses_answers,
    "messages": messages_answers,
}


def says(text: str, *, usage: bool = True) -> Script:
    """Answer with one text in the request's dialect, streamed or not as asked."""

    def answer(request: Received) -> Answer:
        if request.dialect != "chat":
            return tells(Turn(text))(request)
        if request.streams:
            return streamed(text)
        return whole(text, usage=usage)

    return answer


def tells(turn: Turn) -> Script:
    """Answer with one turn in the request's dialect, streamed or not as asked; echo what is no generation."""

    def answer(request: Received) -> Answer:
        if not request.dialect:
            return echo(request)
        told: Answer = DIALECTS[request.dialect].tell(turn, request)
        return told

    return answer


def calls_tools(turn: Turn, then: Turn) -> Script:
    """Answer with the calls of ``turn``, and with ``then`` after their results or where there are no tools."""

    def answer(request: Received) -> Answer:
        is_over = request.has_results or not request.json.get("tools")
        return tells(then if is_over else turn)(request)

    return answer


def refuses(status: int, message: str, *, code: str | None = None) -> Script:
    """Answer with an error in the request's dialect."""

    def answer(request: Received) -> Answer:
        refusal: Answer = DIALECTS[request.dialect or "chat"].error(status, message, code=code)
        return refusal

    return answer


def fails_after(pieces: int, turn: Turn, message: str) -> Script:
    """Stream the first pieces of a turn, and then an error as the request's dialect tells it."""

    def answer(request: Received) -> Answer:
        told = tells(turn)(request).cut(pieces)
        return Answer([*told.pieces, DIALECTS[request.dialect].failure(message)], headers=told.headers)

    return answer


class ScriptedUpstream:
    """The ASGI application. ``script`` may be replaced at any time; ``received`` grows.

    ``dialects`` are those that it serves; a path of another one is a 404 that names no model. ``others.kept = None``
    makes it an upstream that stores no responses.
    """

    def __init__(self, script: Script | None = None) -> None:
        self.script: Script = script or says("Hello there.")
        self.received: list[Received] = []
        self.dialects = set(DIALECTS)
        self.others = OtherEndpoints()

    @property
    def models(self) -> Any:
        """The body of ``GET /v1/models``."""
        return self.others.models

    @models.setter
    def models(self, models: Any) -> None:
        self.others.models = models

    @property
    def last(self) -> Received:
        """The newest request."""
        return self.received[-1]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Answer one request by the script."""
        if scope["type"] != "http":
            return
        body = b""
        while True:
            event = await receive()
            body += event.get("body", b"")
            if not event.get("more_body"):
                break
        lines = [(name.decode(), value.decode("latin-1")) for name, value in scope["headers"]]
        query = scope["query_string"].decode("latin-1")
        received = Received(scope["path"], body, dict(lines), scope["method"], query, lines)
        fixed = self._fixed(received)
        if fixed is None or not self.others.is_lookup(received):
            self.received.append(received)
        answering = asyncio.create_task(self._answer(received, fixed, send))
        leaving = asyncio.create_task(_disconnect(receive))
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            received.gone = True
            answering.cancel()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await asyncio.gather(answering, return_exceptions=not answering.done() or received.gone)

    def _fixed(self, received: Received) -> Answer | None:
        """The answer that no script gives, if any."""
        if received.dialect and received.dialect not in self.dialects:
            return Answer([b'{"detail":"Not Found"}'], 404)
        return self.others.answer(received)

    async def _answer(self, received: Received, fixed: Answer | None, send: Any) -> None:
        answer = fixed
        if answer is None:
            answer = self.script(received)
            self.others.keep(received, answer)
        await asyncio.sleep(answer.before_headers)
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        for piece, wait in zip_longest(answer.pieces, answer.waits):
            if isinstance(piece, bytes):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            else:
                await asyncio.sleep(piece)
            if wait is not None:
                await asyncio.to_thread(wait.wait, LONGEST_WAIT)
        if answer.breaks:
            raise BrokenScript
        await send({"type": "http.response.body", "body": b""})


class BrokenScript(Exception):
    """Cuts the connection in the middle of an answer."""


async def _disconnect(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


ByteScript = Callable[["Exchange"], Awaitable[None]]
"""What a server of bytes does with one request."""


@dataclass
class Exchange:
    """One request as it came in, and the way to answer it."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def header(self, name: str) -> list[str]:
        """All values of a header, in order."""
        return [value for key, value in self.headers if key == name]

    async def write(self, raw: bytes) -> None:
        """Send bytes as they stand."""
        self.writer.write(raw)
        await self.writer.drain()

    async def answer(self, body: bytes, status: str = "200 OK", headers: bytes = b"") -> None:
        """Send a whole answer."""
        length = f"content-length: {len(body)}\r\n".encode()
        await self.write(f"HTTP/1.1 {status}\r\n".encode() + headers + length + b"\r\n" + body)

    async def chunk(self, piece: bytes) -> None:
        """Send a chunk of a chunked body."""
        await self.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")

    async def gone(self) -> None:
        """Wait until the client has closed the connection."""
        with suppress(ConnectionResetError):
            assert await self.reader.read(1) == b""


@dataclass
class ScriptedServer:
    """Serves every request by its script."""

    base_url: str = ""
    exchanges: list[Exchange] = field(default_factory=list)
    connections: int = 0
    open: int = 0

    @property
    def last(self) -> Exchange:
        """The newest request."""
        return self.exchanges[-1]


@asynccontextmanager
async def serving(script: ByteScript) -> AsyncIterator[ScriptedServer]:
    """Run a server on a free port."""
    server = ScriptedServer()
    tasks: set[asyncio.Task[None]] = set()

    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        server.connections += 1
        server.open += 1
        try:
            while (exchange := await read_request(reader, writer)) is not None:
                server.exchanges.append(exchange)
                await script(exchange)
                if writer.is_closing():
                    break
        except (ConnectionError, asyncio.CancelledError):
            pass
        finally:
            server.open -= 1
            writer.close()

    listener = await asyncio.start_server(connected, "127.0.0.1", 0, limit=2**20)
    server.base_url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}/v1"
    try:
        yield server
    finally:
        listener.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def read_request(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Exchange | None:
    """Read one request; None if the client has closed, or asks for TLS, which a server of HTTP ends at once."""
    try:
        first = await reader.readexactly(1)
        if first == TLS_HANDSHAKE:
            return None
        head = (first + await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    line, *rest = head.rstrip("\r\n").split("\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (item.partition(":") for item in rest)]
    length = int(dict(headers).get("content-length", "0"))
    return Exchange(line, headers, await reader.readexactly(length), reader, writer)
