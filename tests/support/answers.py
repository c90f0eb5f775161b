"""What a scripted upstream gets and gives: `Received`, `Answer`, and the `Turn` that an answer tells in a dialect."""

from __future__ import annotations

import asyncio
import hashlib
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

Headers = list[tuple[bytes, bytes]]
Json = dict[str, Any]
JSON_HEADERS: Headers = [(b"content-type", b"application/json"), (b"x-request-id", b"req_1")]
SSE_HEADERS: Headers = [(b"content-type", b"text/event-stream"), (b"x-request-id", b"req_1")]

PATHS = {"/chat/completions": "chat", "/responses": "responses", "/messages": "messages"}
"""The dialect by the end of a path."""
RESULTS = ("function_call_output", "custom_tool_call_output", "tool_result")
"""The types of items and blocks that hold a tool's result."""


@dataclass
class Received:
    """One request as the upstream got it."""

    path: str
    body: bytes
    headers: Mapping[str, str]
    method: str = "POST"
    query: str = ""
    lines: Sequence[tuple[str, str]] = ()
    """The header lines in their order; ``headers`` has one of those that are repeated."""
    left: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when the caller closed the connection before the end."""
    gone: bool = False

    @cached_property
    def json(self) -> Any:
        """The body, decoded once; not to be changed."""
        return json.loads(self.body)

    @property
    def dialect(self) -> str:
        """``chat``, ``responses`` or ``messages``; empty for any other path."""
        return next((dialect for end, dialect in PATHS.items() if self.path.endswith(end)), "")

    @property
    def messages(self) -> list[Json]:
        """The forwarded messages; in the responses dialect the items of the input."""
        body = self.json
        told: Any = body.get("input") if self.dialect == "responses" else body["messages"]
        return [{"role": "user", "content": told}] if isinstance(told, str) else list(told or ())

    @property
    def streams(self) -> bool:
        """Whether a stream is asked for."""
        return bool(self.json.get("stream"))

    @property
    def has_results(self) -> bool:
        """Whether the newest message brings a tool's result."""
        newest: Json = self.messages[-1] if self.messages else {}
        content = newest.get("content")
        blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
        kinds = {newest.get("type"), *(block.get("type") for block in blocks)}
        return newest.get("role") == "tool" or not kinds.isdisjoint(RESULTS)

    @property
    def mark(self) -> str:
        """Twelve digits that two requests share when their messages are equal."""
        return hashlib.sha256(json.dumps(self.messages).encode()).hexdigest()[:12]


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
    waits: Sequence[threading.Event] = ()
    """What the upstream waits for after each of its pieces, or nothing."""

    def with_headers(self, **more: str) -> Answer:
        """The same answer with more headers; ``retry_after="3"`` becomes ``retry-after: 3``."""
        added = [(name.replace("_", "-").encode(), value.encode()) for name, value in more.items()]
        return replace(self, headers=[*self.headers, *added])

    def paced(self, seconds: float) -> Answer:
        """The same answer with a pause after each piece."""
        return replace(self, pieces=[part for piece in self.pieces for part in (piece, seconds)])

    def cut(self, pieces: int, *, breaks: bool = False) -> Answer:
        """The answer's first pieces; then its body ends, or the connection is cut."""
        return replace(self, pieces=self.pieces[:pieces], breaks=breaks)


Script = Callable[[Received], Answer]


@dataclass(frozen=True)
class Call:
    """A call of a tool."""

    name: str
    arguments: str = "{}"
    """JSON text."""


@dataclass(frozen=True)
class Turn:
    """What an assistant says and does in one answer, in no dialect yet."""

    text: str = ""
    calls: tuple[Call, ...] = ()
    thought: str = ""
    """Reasoning, in dialects that have it."""
    input_tokens: int = 11
    """Seven of them from the cache."""
    output_tokens: int = 5

    @property
    def words(self) -> list[str]:
        """The pieces that a stream sends."""
        first, *rest = self.text.split(" ")
        return [first, *(f" {word}" for word in rest)]


def sse(kind: str, event: Json) -> bytes:
    """An event with its name."""
    return f"event: {kind}\ndata: {json.dumps(event)}\n\n".encode()


def halves(text: str) -> tuple[str, str]:
    """A text in two pieces, as streamed arguments come."""
    return text[: len(text) // 2], text[len(text) // 2 :]
