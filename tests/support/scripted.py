"""Scripted upstreams: small OpenAI-compatible servers that do what a test asks, and record what they got.

`ScriptedUpstream` is an ASGI application for `tests/support/serving.py` and speaks in whole answers. `serving` runs on
the test's own loop and sends exactly the bytes that a test wants sent, for what no well-behaved server would send.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

Headers = list[tuple[bytes, bytes]]
JSON_HEADERS: Headers = [(b"content-type", b"application/json"), (b"x-request-id", b"req_1")]
SSE_HEADERS: Headers = [(b"content-type", b"text/event-stream"), (b"x-request-id", b"req_1")]


@dataclass
class Received:
    """One request as the upstream got it."""

    path: str
    body: bytes
    headers: Mapping[str, str]
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the caller closed the connection before the end."""
    gone: bool = False

    @property
    def json(self) -> Any:
        """The body, decoded."""
        return json.loads(self.body)

    @property
    def messages(self) -> list[dict[str, Any]]:
        """The forwarded messages."""
        messages: list[dict[str, Any]] = self.json["messages"]
        return messages


@dataclass
class Answer:
    """What the upstream does with one request: status, headers, then pieces; a number is a pause in seconds."""

    pieces: Sequence[bytes | float]
    status: int = 200
    headers: Headers = field(default_factory=lambda: list(JSON_HEADERS))
    breaks: bool = False
    """Whether the connection is cut after the last piece."""
    before_headers: float = 0.0
    """Seconds until the status line."""


Script = Callable[[Received], Answer]


def says(text: str, *, usage: bool = True) -> Script:
    """Answer with one text, streamed or not as asked."""

    def answer(request: Received) -> Answer:
        if request.json.get("stream"):
            return streamed(text)
        return whole(text, usage=usage)

    return answer


def whole(text: str, *, usage: bool = True, **message: Any) -> Answer:
    """A chat completion that is not streamed."""
    said = {"role": "assistant", "content": text, "refusal": None, "annotations": [], **message}
    body = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, "message": said, "logprobs": None, "finish_reason": "stop"}],
        "unknown_field": {"kept": True},
    }
    if usage:
        counts = {"prompt_tokens": 11, "completion_tokens": 5, "total_tokens": 16}
        body["usage"] = {**counts, "prompt_tokens_details": {"cached_tokens": 7}}
    return Answer([json.dumps(body, indent=1).encode()])


def chunk(**choice: Any) -> bytes:
    """One event of a stream."""
    event = {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": [{"index": 0, **choice}],
    }
    return b"data: " + json.dumps(event).encode() + b"\n\n"


def streamed(text: str, *, pace: float = 0.0, done: bool = True, finish: bool = True) -> Answer:
    """A stream of the words of ``text``."""
    pieces: list[bytes | float] = [chunk(delta={"role": "assistant", "content": ""}, finish_reason=None)]
    for place, word in enumerate(text.split(" ")):
        pieces.append(chunk(delta={"content": f" {word}" if place else word}, finish_reason=None))
        if pace:
            pieces.append(pace)
    if finish:
        pieces.append(chunk(delta={}, finish_reason="stop"))
    if done:
        pieces.append(b"data: [DONE]\n\n")
    return Answer(pieces, headers=list(SSE_HEADERS))


def error(status: int, message: str, *, code: str | None = None, headers: Headers | None = None) -> Answer:
    """An error in OpenAI's envelope."""
    body = {"error": {"message": message, "type": "invalid_request_error", "param": None, "code": code}}
    return Answer([json.dumps(body, indent=2).encode()], status, [*JSON_HEADERS, *(headers or [])])


class ScriptedUpstream:
    """The ASGI application. ``script`` may be replaced at any time; ``received`` grows."""

    def __init__(self, script: Script | None = None) -> None:
        self.script: Script = script or says("Hello there.")
        self.received: list[Received] = []
        self.models: Any = {"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "tests"}]}

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
        if scope["method"] == "GET":
            status = 200 if scope["path"].endswith("/models") else 404
            await send({"type": "http.response.start", "status": status, "headers": JSON_HEADERS})
            await send({"type": "http.response.body", "body": json.dumps(self.models).encode()})
            return
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        received = Received(scope["path"], body, headers)
        self.received.append(received)
        answering = asyncio.create_task(self._answer(received, send))
        leaving = asyncio.create_task(_disconnect(receive))
        await asyncio.wait((answering, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            received.gone = True
            answering.cancel()
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        await asyncio.gather(answering, return_exceptions=not answering.done() or received.gone)

    async def _answer(self, received: Received, send: Any) -> None:
        answer = self.script(received)
        await asyncio.sleep(answer.before_headers)
        await send({"type": "http.response.start", "status": answer.status, "headers": answer.headers})
        for piece in answer.pieces:
            if isinstance(piece, bytes):
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            else:
                await asyncio.sleep(piece)
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
    """Read one request, or None when the client has closed."""
    try:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.IncompleteReadError:
        return None
    line, *rest = head.rstrip("\r\n").split("\r\n")
    headers = [(name.lower(), value.strip()) for name, _, value in (item.partition(":") for item in rest)]
    length = int(dict(headers).get("content-length", "0"))
    return Exchange(line, headers, await reader.readexactly(length), reader, writer)
