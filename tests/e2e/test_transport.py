"""The switches of ``transport``: every request works by a library in place of Tidemark's own transport code."""

from __future__ import annotations

import socket

import httpx
import pytest
import redis

from tests.e2e.test_command import CONFIG, WAIT_SECONDS, Machine, Tidemark, descendants, machine, read_maps
from tests.request.talk import user
from tests.request.wire.test_streaming import events
from tests.support.serving import NO_TLS

__all__ = ["machine"]
pytestmark = pytest.mark.e2e

SIDES = ("server", "upstream", "store")
NO_HOST = b"GET /health/liveliness HTTP/1.1\r\nconnection: close\r\n\r\n"
"""Tidemark's own protocol refuses it, and uvicorn's serves it."""


@pytest.mark.parametrize("library", [(), ("server",), ("upstream",), ("store",), SIDES], ids=".".join)
def test_requests_work_by_tidemarks_transport_and_by_each_library(machine: Machine, library: tuple[str, ...]) -> None:
    """A whole answer, a stream and two turns of stored history, in two workers where all three are libraries."""
    section = ", ".join(f"{side}: library" for side in library)
    config = machine.config(CONFIG + f"transport: {{{{{section}}}}}\n")
    tidemark = machine.serve("--config", str(config), "--workers", "2" if library == SIDES else "1")
    whole = tidemark.chat([user("hi")])
    assert whole.json()["choices"][0]["message"]["content"] == "Hello there."
    assert whole.headers["x-tidemark-store"] == "ok"
    body = {"model": "small", "messages": [user("hi")], "stream": True}
    streamed = httpx.post(tidemark.url + "/v1/chat/completions", json=body, timeout=WAIT_SECONDS, verify=NO_TLS)
    *pieces, end = events(streamed.content)
    assert "".join(piece["choices"][0]["delta"].get("content", "") for piece in pieces) == "Hello there."
    assert end == "[DONE]"
    for text in ("My name is Ada.", "Who am I?"):
        assert stored_turn(tidemark, text).status_code == 200
    sent = [message["content"] for message in machine.upstream.last.messages]
    assert sent == ["My name is Ada.", "Hello there.", "Who am I?"]
    assert by_library(machine, tidemark) == library
    assert tidemark.end() == 0
    assert "Traceback" not in tidemark.text
    assert ("the limits of the section server do not apply" in tidemark.text) == ("server" in library)


def stored_turn(tidemark: Tidemark, text: str) -> httpx.Response:
    """Send one turn of stored history."""
    headers = {"authorization": f"Bearer {tidemark.key}"}
    headers |= {"x-tidemark-conversation": "talk", "x-tidemark-history": "stored"}
    body = {"model": "small", "messages": [user(text)], "max_tokens": 100}
    return httpx.post(
        tidemark.url + "/v1/chat/completions", json=body, headers=headers, timeout=WAIT_SECONDS, verify=NO_TLS
    )


def by_library(machine: Machine, tidemark: Tidemark) -> tuple[str, ...]:
    """Return the sides that a library carries, as they look from outside."""
    url = httpx.URL(tidemark.url)
    with socket.create_connection((url.host, url.port or 0), timeout=WAIT_SECONDS) as client:
        client.sendall(NO_HOST)
        server = client.recv(65_536).startswith(b"HTTP/1.1 200 ")
    processes = [tidemark.process.pid, *descendants(tidemark.process.pid)]
    upstream = any("aiohttp/_http_parser" in read_maps(pid) for pid in processes)
    with redis.Redis.from_url(f"unix://{machine.folder}/data/store/valkey.sock") as admin:
        others = [client for client in admin.client_list() if int(client["id"]) != admin.client_id()]
    store = any("redis-py" in client["lib-name"] for client in others)
    return tuple(side for side, is_library in zip(SIDES, (server, upstream, store), strict=True) if is_library)
