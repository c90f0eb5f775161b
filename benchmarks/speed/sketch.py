"""Runs a sketch of a compacting proxy: a relay with only the steps that no compacting proxy can omit.

It is its own process, ``python -m benchmarks.speed.sketch PORT UPSTREAM FOLDER``. It parses a request, hashes and
counts its messages, asks the store for the conversation, reads the answer, writes the turn before the last byte, and
logs one line. It uses Tidemark's own client, which costs less than the bare relay's. It has no decisions, error
handling, metrics or configuration. So it is no product, but a lower bound for Tidemark's figures in Python.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import tiktoken

from benchmarks.speed.relay import NOT_CARRIED
from benchmarks.speed.upstream import serve
from tidemark.core.ports import Caller, Route
from tidemark.store.connection.pipelined import PipelinedConnection, StoreServer
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.tokens.vocabulary import vocabulary
from tidemark.upstream.wire import WireLane

_request = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_decode = msgspec.json.decode
_encode = msgspec.json.encode


class Sketch:
    """The ASGI application."""

    def __init__(self, upstream: str, store: PipelinedConnection) -> None:
        self._lane = WireLane()
        self._route = Route("wire", "any", "any", "openai", upstream + "/v1")
        self._store = store
        self._tokens: dict[bytes, int] = {}
        vocabulary("o200k_base")
        self._encoding = tiktoken.get_encoding("o200k_base")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Relay one request and its answer, and store both."""
        if scope["type"] != "http":
            return
        parts = []
        while True:
            event = await receive()
            parts.append(event["body"])
            if not event.get("more_body"):
                break
        body = b"".join(parts)
        raws = [bytes(raw) for raw in _raws.decode(_request.decode(body)["messages"])]
        link = self._counted(raws)
        await self._store.call("HGETALL", b"conversation:" + link)
        lines = [line for line in scope["headers"] if line[0] not in NOT_CARRIED]
        reply = await self._lane.send(self._route, body, Caller(b"", lines))
        answer = b"".join([piece async for piece in reply.body()])
        message = _encode(_decode(answer)["choices"][0]["message"])
        await self._store.call("HSET", b"conversation:" + link, b"said", message, b"turn", raws[-1])
        sys.stderr.write(f'{{"event": "request.served", "tokens": {self._tokens[link]}}}\n')
        await send({"type": "http.response.start", "status": reply.status, "headers": reply.headers})
        await send({"type": "http.response.body", "body": answer})

    def _counted(self, raws: Sequence[bytes]) -> bytes:
        """Count each message, and return the hash of all."""
        link = b""
        for raw in raws:
            link = blake2b(link + raw, digest_size=16).digest()
            if link not in self._tokens:
                self._tokens[link] = len(self._encoding.encode_ordinary(str(_decode(raw)["content"])))
        return link


if __name__ == "__main__":
    with EmbeddedValkey(Path(sys.argv[3])) as valkey:
        path = valkey.url.removeprefix("unix://").partition("?")[0]
        serve(Sketch(sys.argv[2], PipelinedConnection(StoreServer(path=path))), int(sys.argv[1]))
