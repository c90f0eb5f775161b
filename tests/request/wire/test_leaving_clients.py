"""A client that leaves: at whatever point it does, the upstream sees its connection closed."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from hashlib import sha256
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.request.conftest import Bench, benched
from tests.request.talk import history, user
from tests.support.scripted import JSON_HEADERS, SSE_HEADERS, Answer, Received, Script, chunk, error
from tests.support.waiting import wait_until

LONG = 600.0
"""Seconds for which an upstream would stay silent: longer than any test runs."""
SUMMARIZED = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
  - model_name: plain
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 200, min_tokens: 300}}
  models: {{small: {{strategy: llm, summarizer: {{model: small}}}}}}
"""
CHAT = "/v1/chat/completions"
RESPONSES = "/v1/responses"
MESSAGES = "/v1/messages"
SHORT: list[dict[str, Any]] = [user("hi")]
TALK: list[dict[str, Any]] = [*history(24), user("Now?")]


def silent(*pieces: bytes, headers: list[tuple[bytes, bytes]] = SSE_HEADERS, before: float = 0.0) -> Script:
    """An upstream that falls silent after these pieces."""
    return lambda _: Answer([*pieces, LONG], headers=list(headers), before_headers=before)


def refusing_first(request: Received) -> Answer:
    """An upstream whose window is smaller than known, and which then thinks for long."""
    if len(request.body) > 3000:
        text = "This model's maximum context length is 1000 tokens. However, your messages resulted in 1500 tokens."
        return error(400, text, code="context_length_exceeded")
    return Answer([LONG], before_headers=LONG)


def refusing_slowly(_: Received) -> Answer:
    """A refusal whose body does not end."""
    return Answer([b'{"error": {', LONG], 400)


POINTS: dict[str, tuple[Script, list[dict[str, Any]], bytes]] = {
    "before the headers": (silent(before=LONG), SHORT, b""),
    "before the first byte": (silent(), SHORT, b""),
    "in the middle of a stream": (silent(chunk(delta={"content": "a"})), SHORT, b"data: "),
    "in the middle of an event": (silent(chunk(delta={"content": "a"}) + b'data: {"cho'), SHORT, b"data: "),
    "in the middle of a body": (silent(b'{"choices": [', headers=JSON_HEADERS), SHORT, b""),
    "in the middle of a refusal": (refusing_slowly, SHORT, b""),
    "while its summary is made": (silent(b'{"choices": [', headers=JSON_HEADERS), TALK, b""),
    "while it is replayed": (refusing_first, [*history(14), user("Now?")], b""),
}


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests."""
    with benched(store_url, tmp_path_factory.mktemp("leaving")) as made:
        yield made


@pytest.fixture(scope="module", params=[True, False], ids=["own transport", "uvicorn's"])
def address(bench: Bench, request: pytest.FixtureRequest) -> tuple[str, int]:
    """Where a Tidemark on either transport listens."""
    parts = urlsplit(bench.start(own=request.param, config=SUMMARIZED))
    return str(parts.hostname), int(parts.port or 0)


@pytest.fixture
def key(request: pytest.FixtureRequest) -> str:
    """A credential of the test's own: what one client gave up or taught is not another one's."""
    return sha256(request.node.nodeid.encode()).hexdigest()


def send_request(wire: socket.socket, path: str, key: str, body: dict[str, Any]) -> None:
    """Send a request."""
    data = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "host: localhost", f"authorization: Bearer {key}", f"content-length: {len(data)}"]
    wire.sendall("\r\n".join([*lines, "", ""]).encode() + data)


def is_reached(bench: Bench, before: int, count: int) -> Callable[[], bool]:
    """Whether the upstream has so many requests more than before."""
    return lambda: len(bench.upstream.received) >= before + count


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("point", POINTS)
def test_the_upstream_sees_its_connection_closed(
    bench: Bench, address: tuple[str, int], key: str, point: str, *, stream: bool
) -> None:
    """Nothing is worked on for nobody, and nothing is billed; the cause is the client's leaving, not a time."""
    bench.upstream.script, messages, shown = POINTS[point]
    model = "plain" if point == "while it is replayed" else "small"
    before = len(bench.upstream.received)
    with socket.create_connection(address, timeout=20) as wire:
        send_request(wire, CHAT, key, {"model": model, "messages": messages, "stream": stream, "max_tokens": 50})
        wait_until(is_reached(bench, before, 2 if point == "while it is replayed" else 1), 20)
        got = b""
        while stream and shown not in got:
            got += wire.recv(65_536)
        assert not bench.upstream.last.gone
    wait_until(lambda: bench.upstream.last.gone, 20)


@pytest.mark.parametrize("path", [RESPONSES, MESSAGES])
def test_the_upstream_sees_it_in_every_dialect(bench: Bench, address: tuple[str, int], key: str, path: str) -> None:
    """In the middle of a stream."""
    event = b'event: ping\ndata: {"type": "ping"}\n\n'
    bench.upstream.script = silent(event)
    before = len(bench.upstream.received)
    members = {"input": "hi"} if path == RESPONSES else {"messages": SHORT, "max_tokens": 50}
    with socket.create_connection(address, timeout=20) as wire:
        send_request(wire, path, key, {"model": "small", "stream": True, **members})
        wait_until(is_reached(bench, before, 1), 20)
        got = b""
        while event not in got:
            got += wire.recv(65_536)
        assert not bench.upstream.last.gone
    wait_until(lambda: bench.upstream.last.gone, 20)


def test_a_client_that_leaves_in_its_body_reaches_no_upstream(bench: Bench, address: tuple[str, int]) -> None:
    """The next client is served."""
    bench.upstream.script = silent()
    before = len(bench.upstream.received)
    with socket.create_connection(address, timeout=20) as wire:
        wire.sendall(f"POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1000\r\n\r\n{{".encode())
    with socket.create_connection(address, timeout=20) as wire:
        wire.sendall(b"GET /health/liveness HTTP/1.1\r\nhost: localhost\r\n\r\n")
        assert wire.recv(65_536).startswith(b"HTTP/1.1 200 ")
    assert len(bench.upstream.received) == before
