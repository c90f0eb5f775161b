"""The bare relay: the floor that every proxy of the benchmark is compared with.

A process of its own, ``python -m benchmarks.speed.relay PORT UPSTREAM``. The same server as Tidemark's, aiohttp as the
client, as a proxy in Python has it, and nothing between them: the request's bytes out, the answer's bytes back. Nothing
is parsed or kept.
"""

from __future__ import annotations

import io
import sys
from typing import Any

import aiohttp

from benchmarks.speed.upstream import serve

NOT_CARRIED = {b"host", b"content-length", b"connection", b"transfer-encoding", b"accept-encoding"}
WHOLE_BYTES = 1 << 20
"""aiohttp warns of larger bodies that are given as bytes."""


class Relay:
    """The ASGI application."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Carry one request and its answer."""
        if scope["type"] != "http":
            return
        parts = []
        while True:
            event = await receive()
            parts.append(event.get("body", b""))
            if not event.get("more_body"):
                break
        body = parts[0] if len(parts) == 1 else b"".join(parts)
        lines = [
            (name.decode(), value.decode("latin-1")) for name, value in scope["headers"] if name not in NOT_CARRIED
        ]
        async with self._opened().request(
            scope["method"],
            self._upstream + scope["path"],
            data=io.BytesIO(body) if len(body) > WHOLE_BYTES else body,
            headers=lines,
        ) as answer:
            kept = [(name.lower(), value) for name, value in answer.raw_headers if name.lower() not in NOT_CARRIED]
            await send({"type": "http.response.start", "status": answer.status, "headers": kept})
            async for piece in answer.content.iter_any():
                await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=0),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
                auto_decompress=False,
            )
        return self._session


if __name__ == "__main__":
    serve(Relay(sys.argv[2]), int(sys.argv[1]))
