"""Requests to an ASGI application without a socket between, so that very many can be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

Lines = Sequence[tuple[bytes, bytes]]


@dataclass(frozen=True)
class Got:
    """An answer."""

    status: int
    headers: Lines
    body: bytes

    @property
    def text(self) -> str:
        """Header lines and body, as one text."""
        lines = b"\n".join(name + b": " + value for name, value in self.headers)
        return (lines + b"\n\n" + self.body).decode("utf-8", "replace")

    def header(self, name: bytes) -> str:
        """A header's value; empty without it."""
        return next((value.decode("latin-1") for each, value in self.headers if each == name), "")


async def ask(
    app: Any,
    method: str,
    path: str,
    *,
    query: str = "",
    headers: Lines = (),
    body: bytes = b"",
    leave: asyncio.Event | None = None,
) -> Got:
    """Send one request, and return the whole answer, or what came of it until the client leaves."""
    events = iter([{"type": "http.request", "body": body, "more_body": False}])
    ended = leave or asyncio.Event()
    status, lines, pieces = 0, list[tuple[bytes, bytes]](), list[bytes]()

    async def receive() -> dict[str, Any]:
        event = next(events, None)
        if event is None:
            await ended.wait()
            return {"type": "http.disconnect"}
        return event

    async def send(message: Any) -> None:
        nonlocal status
        if message["type"] == "http.response.start":
            status = message["status"]
            lines.extend((bytes(name), bytes(value)) for name, value in message["headers"])
        else:
            pieces.append(message.get("body", b""))

    try:
        await app(scope_of(method, path, query, headers), receive, send)
    finally:
        ended.set()
    return Got(status, lines, b"".join(pieces))


def scope_of(method: str, path: str, query: str, headers: Lines) -> dict[str, Any]:
    """What a server says of a request."""
    return {
        "type": "http",
        "asgi": {"version": "3.0", "spec_version": "2.3"},
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": path,
        "raw_path": quote(path, safe="/:@!$&'()*+,;=~-._").encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(b"host", b"127.0.0.1"), *headers],
        "client": ("127.0.0.1", 50_000),
        "server": ("127.0.0.1", 80),
        "state": {},
    }
