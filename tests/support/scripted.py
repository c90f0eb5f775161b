"""A scripted upstream: a small OpenAI-compatible server that does what a test tells it, and writes down what it got."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
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
        leaving = asyncio.create_task(_left(receive))
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


async def _left(receive: Any) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
