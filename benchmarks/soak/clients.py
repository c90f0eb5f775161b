"""Runs the soak's clients: conversations of every kind, with errors and departures among them.

A cycle has equal conversations of equal tenants each time, and they are deleted after it. So what the caches and the
store need is known after the first cycles, and whatever grows later is a leak.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import httpx

from benchmarks.speed.work import CHAT_PATH, WORDS

MODEL = "soak"
STREAMED = "chunks=20 pace=5"
"""What a question says whose answer the upstream shall stream slowly."""
ROUNDS = 6
"""Requests of each conversation."""
TENANTS = 3
"""For each kind of conversation."""
PAGE = 200
"""Conversations that are listed at once."""
LARGE_BYTES = 200_000
STRANGE = (
    (CHAT_PATH, b"{", 400),
    (CHAT_PATH, b'{"model": "soak", "messages": []}', 400),
    ("/v1/responses", b'{"model": "soak"}', 400),
    ("/v1/messages", b'{"model": 7, "messages": []}', 400),
    ("/tidemark/none", b"{}", 404),
    ("/tidemark/conversations/" + "0" * 48 + "/compact", b"{}", 404),
)
"""Requests that are refused: path, body and status."""


class Clients:
    """All clients of a soak. Mutable: what they have counted.

    :param port: Tidemark's
    """

    def __init__(self, port: int) -> None:
        self._port = port
        self.http = self._connections()
        self.answers: Counter[str] = Counter()
        """How many requests of each kind were answered as they should be."""
        self.failures: Counter[str] = Counter()
        """Those that were not, by kind and what came instead."""
        self._tenants: dict[str, httpx.Headers] = {}

    def _connections(self) -> httpx.AsyncClient:
        limits = httpx.Limits(max_connections=64, max_keepalive_connections=16)
        return httpx.AsyncClient(base_url=f"http://127.0.0.1:{self._port}", timeout=60, limits=limits)

    async def disconnect(self) -> None:
        """Close the connections that are kept for the next requests: they are no leak of Tidemark's."""
        await self.http.aclose()
        self.http = self._connections()

    async def cycle(self) -> None:
        """Run every kind of conversation once for each of its tenants, all at the same time."""
        kinds: dict[str, Callable[[httpx.Headers, str], Awaitable[None]]] = {
            "chat": self._chat,
            "streamed": self._streamed,
            "messages": self._messages,
            "responses": self._responses,
            "stored history": self._stored,
            "departures": self._departures,
            "refusals": self._refusals,
            "large": self._large,
        }
        visits = [self._visit(name, tenant, run) for name, run in kinds.items() for tenant in range(TENANTS)]
        await asyncio.gather(*visits, self._operator())

    async def _visit(self, kind: str, tenant: int, run: Callable[[httpx.Headers, str], Awaitable[None]]) -> None:
        headers = headers_of(f"soak {kind} {tenant}")
        self._tenants[headers["authorization"]] = headers
        try:
            await run(headers, kind)
        except httpx.HTTPError as error:
            self.failures[f"{kind}: {error!r}"] += 1

    async def forget(self) -> None:
        """Delete all conversations of all tenants."""
        await asyncio.gather(*map(self.forget_tenant, self._tenants.values()))

    async def forget_tenant(self, headers: httpx.Headers) -> None:
        """Delete all conversations of one tenant."""
        while True:
            answer = await self.http.get("/tidemark/conversations", params={"limit": PAGE}, headers=headers)
            paths = [f"/tidemark/conversations/{conversation['id']}" for conversation in answer.json()["data"]]
            if not paths:
                return
            answers = await asyncio.gather(*(self.http.delete(path, headers=headers) for path in paths))
            for answer in answers:
                if answer.status_code == 404:  # counted apart: a list is no older than a minute, but not quite new
                    self._count("listed, and gone", 404, 404)
                else:
                    self._count("deletions", answer.status_code)
            if any(answer.status_code != 200 for answer in answers):  # it would be listed again
                return

    def _count(self, kind: str, status: int, expected: int = 200, *, is_whole: bool = True) -> None:
        if status == expected and is_whole:
            self.answers[kind] += 1
        else:
            self.failures[f"{kind}: {status}{'' if is_whole else ', cut short'}"] += 1

    async def _post(self, path: str, headers: httpx.Headers, body: object) -> httpx.Response:
        return await self.http.post(path, headers=headers, content=json.dumps(body).encode())

    async def _chat(self, headers: httpx.Headers, kind: str) -> None:
        """Talk until the window is full and the history is summarized."""
        messages: list[dict[str, str]] = []
        for number in range(ROUNDS):
            messages.append({"role": "user", "content": prose(kind, number, 900)})
            answer = await self._post(CHAT_PATH, headers, {"model": MODEL, "messages": messages})
            self._count(kind, answer.status_code)
            messages.append(answer.json()["choices"][0]["message"])

    async def _streamed(self, headers: httpx.Headers, kind: str) -> None:
        """Read streams to their ends."""
        for number in range(ROUNDS):
            async with aclosing(self._stream(headers, kind, number)) as pieces:
                received = [item async for item in pieces]
            self._count(kind, received[0][0], is_whole=received[-1][1].endswith(b"[DONE]\n\n"))

    async def _departures(self, headers: httpx.Headers, kind: str) -> None:
        """Leave in the middle of streams."""
        for number in range(ROUNDS):
            async with aclosing(self._stream(headers, kind, number)) as pieces:
                status, _ = await anext(pieces)
            self._count(kind, status)

    async def _stream(self, headers: httpx.Headers, kind: str, number: int) -> AsyncGenerator[tuple[int, bytes], None]:
        question = f"{prose(kind, number, 20)} {STREAMED}"
        body = {"model": MODEL, "messages": [{"role": "user", "content": question}], "stream": True}
        content = json.dumps(body).encode()
        async with self.http.stream("POST", CHAT_PATH, headers=headers, content=content) as answer:
            async for piece in answer.aiter_raw():
                yield answer.status_code, piece

    async def _messages(self, headers: httpx.Headers, kind: str) -> None:
        messages: list[dict[str, Any]] = []
        for number in range(ROUNDS):
            messages.append({"role": "user", "content": prose(kind, number, 50)})
            body = {"model": MODEL, "messages": messages, "max_tokens": 100}
            answer = await self._post("/v1/messages", headers, body)
            self._count(kind, answer.status_code)
            messages.append({"role": "assistant", "content": answer.json()["content"]})

    async def _responses(self, headers: httpx.Headers, kind: str) -> None:
        for number in range(ROUNDS):
            body = {"model": MODEL, "input": prose(kind, number, 50), "store": False}
            self._count(kind, (await self._post("/v1/responses", headers, body)).status_code)

    async def _stored(self, headers: httpx.Headers, kind: str) -> None:
        own = httpx.Headers({**headers, "x-tidemark-history": "stored", "x-tidemark-conversation": "soak"})
        for number in range(ROUNDS):
            body = {"model": MODEL, "messages": [{"role": "user", "content": prose(kind, number, 50)}]}
            self._count(kind, (await self._post(CHAT_PATH, own, body)).status_code)

    async def _large(self, headers: httpx.Headers, kind: str) -> None:
        text = prose(kind, 0, LARGE_BYTES // 5)
        body = {"model": f"{MODEL}-wide", "messages": [{"role": "user", "content": text}]}
        for _ in range(2):
            self._count(kind, (await self._post(CHAT_PATH, headers, body)).status_code)

    async def _refusals(self, headers: httpx.Headers, kind: str) -> None:
        for path, body, status in STRANGE:
            answer = await self.http.post(path, headers=headers, content=body)
            self._count(kind, answer.status_code, status)

    async def _operator(self) -> None:
        for path in ("/metrics", "/health/readiness", "/tidemark/stats", "/v1/models"):
            self._count("operator", (await self.http.get(path)).status_code)


def headers_of(key: str) -> httpx.Headers:
    """Make the headers of a request with a key."""
    return httpx.Headers({"authorization": f"Bearer {key}", "content-type": "application/json"})


def prose(kind: str, number: int, words: int) -> str:
    """Make a text that is the same in every cycle, and another one for each kind and number."""
    return f"{kind} {number}: " + " ".join(WORDS[(number + place) % len(WORDS)] for place in range(words))
