"""The least that the road can cost on this stack: the bare relay, and only what no compacting proxy can leave out.

A process of its own, ``python -m benchmarks.speed.sketch PORT UPSTREAM FOLDER``. A request is parsed, its messages are
hashed and counted, the store is asked for the conversation; the answer is read, and the turn is written before the last
byte. One log line. No decision, no error handling, no metrics, nothing that may be configured: no product, but a bound
for what Tidemark's figures can come to in Python.
"""

from __future__ import annotations

import sys
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec
import tiktoken

from benchmarks.speed.relay import Relay
from benchmarks.speed.upstream import serve
from proxy.store.embedded import EmbeddedValkey
from proxy.store.line import Line, Server
from proxy.tokens.vocabulary import vocabulary

_request = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_decode = msgspec.json.decode
_encode = msgspec.json.encode


class Sketch(Relay):
    """The ASGI application."""

    def __init__(self, upstream: str, store: Line) -> None:
        super().__init__(upstream)
        self._store = store
        self._tokens: dict[bytes, int] = {}
        vocabulary("o200k_base")
        self._encoding = tiktoken.get_encoding("o200k_base")

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """Carry one request and its answer, and keep both."""
        if scope["type"] != "http":
            return
        asked: list[bytes] = []
        answer: list[bytes] = []
        key: list[bytes] = []

        async def read() -> Any:
            event = await receive()
            asked.append(event["body"])
            if event.get("more_body"):
                return event
            raws = [bytes(raw) for raw in _raws.decode(_request.decode(b"".join(asked))["messages"])]
            link = b""
            for raw in raws:
                link = blake2b(link + raw, digest_size=16).digest()
                if link not in self._tokens:
                    self._tokens[link] = len(self._encoding.encode_ordinary(str(_decode(raw)["content"])))
            key[:] = [link, *raws[-2:]]
            await self._store.call("HGETALL", b"conversation:" + link)
            return event

        async def write(event: Any) -> None:
            body = event.get("body")
            if body:
                answer.append(body)
            elif answer:
                said = _encode(_decode(b"".join(answer))["choices"][0]["message"])
                turn = {b"said": said, b"turn": key[1]}
                pieces = [piece for pair in turn.items() for piece in pair]
                await self._store.call("HSET", b"conversation:" + key[0], *pieces)
                sys.stderr.write(f'{{"event": "request.served", "tokens": {self._tokens[key[0]]}}}\n')
            await send(event)

        await super().__call__(scope, read, write)


if __name__ == "__main__":
    with EmbeddedValkey(Path(sys.argv[3])) as valkey:
        path = valkey.url.removeprefix("unix://").partition("?")[0]
        serve(Sketch(sys.argv[2], Line(Server(path=path))), int(sys.argv[1]))
