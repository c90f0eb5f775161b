"""Runs the bare relay, the least proxy that every system of the benchmark is compared with.

It is its own process, ``python -m benchmarks.speed.relay PORT UPSTREAM``. It has Tidemark's server and aiohttp as the
client, as proxies in Python usually have, and nothing between them: it sends the request's bytes and returns the
answer's bytes. It parses and stores nothing.
"""

from __future__ import annotations

import io
import sys
from typing import Any

import aiohttp

from benchmarks.speed.upstream import serve

NOT_CARRIED = {b"host", b"content-length", b"connection", b"transfer-encoding", b"accept-encoding"}
WHOLE_BYTES = 1 << 20
"""The largest body that aiohttp accepts as bytes without a warning."""


class Relay:
    """The ASGI application."""

    def __init__(self, upstream: str) -> None:
        self._upstream = upstream
        self._session: aiohttp.ClientSession | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Relay one request and its answer."""
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
            headers = [(name.lower(), value) for name, value in answer.raw_headers if name.lower() not in NOT_CARRIED]
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
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
