"""The W3C trace context of a client goes on to the upstream, and the log line of the request names the trace."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from tests.request.conftest import Bench, Client
from tests.support.scripted import says
from tidemark.telemetry.logging import configure

TRACE_ID = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE_ID}-00f067aa0ba902b7-01"
CHAT = {"model": "small", "messages": [{"role": "user", "content": "Hi."}]}
MESSAGES = {"model": "small", "messages": CHAT["messages"], "max_tokens": 9}
REQUESTS = {
    "/v1/chat/completions": CHAT,
    "/v1/messages": MESSAGES,
    "/v1/responses": {"model": "small", "input": "Hi."},
    "/v1/embeddings": {"model": "small", "input": "Hi."},
}
Lines = Callable[[], list[dict[str, Any]]]


@pytest.fixture
def lines(bench: Bench) -> Iterator[Lines]:
    """The lines of requests in the log since the test began."""
    stream, root = io.StringIO(), logging.getLogger()
    handlers, level, before = root.handlers[:], root.level, structlog.get_config()
    configure("info", json=True, stream=stream)

    def served() -> list[dict[str, Any]]:
        bench.settle()
        read = [json.loads(line) for line in stream.getvalue().splitlines()]
        return [line for line in read if line["event"] == "request.served"]

    yield served
    root.handlers[:] = handlers
    root.setLevel(level)
    logging.captureWarnings(capture=False)
    structlog.configure(**before)


@pytest.fixture
def client(bench: Bench, lines: Lines, request: pytest.FixtureRequest) -> Client:
    """A client of a Tidemark whose log goes to ``lines``."""
    assert lines() == []
    return bench.client(request.node.nodeid)


def ask(client: Client, path: str, **headers: str) -> None:
    """Send the request of a path with further headers."""
    client.http.post(path, json=REQUESTS[path], headers={"authorization": f"Bearer {client.key}", **headers})


@pytest.mark.parametrize("path", REQUESTS)
def test_a_trace_goes_on_byte_for_byte_and_stands_in_the_log(
    bench: Bench, client: Client, lines: Lines, path: str
) -> None:
    """On the wire and in the bridges, understood or carried."""
    bench.upstream.script = says("Hello.")
    ask(client, path, traceparent=PARENT, tracestate="rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")
    headers = bench.upstream.received[-1].headers
    assert (headers["traceparent"], headers["tracestate"]) == (PARENT, "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE")
    assert [line["trace_id"] for line in lines()] == [TRACE_ID]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/embeddings"])
def test_a_malformed_trace_goes_nowhere(bench: Bench, client: Client, lines: Lines, path: str) -> None:
    """The request does; no trace is made up for it."""
    bench.upstream.script = says("Hello.")
    ask(client, path, traceparent=PARENT.upper(), tracestate="a=b")
    assert not {"traceparent", "tracestate"} & bench.upstream.received[-1].headers.keys()
    assert ["trace_id" in line for line in lines()] == [False]


@pytest.mark.parametrize("body", [b"{", b'{"model": "nobody serves it", "messages": []}'])
def test_a_refused_request_stands_in_the_log_with_its_trace(client: Client, lines: Lines, body: bytes) -> None:
    """A body that cannot be read, and a model that nobody serves."""
    client.http.post("/v1/chat/completions", content=body, headers={"traceparent": PARENT})
    assert [(line["outcome"], line["trace_id"]) for line in lines()] == [("rejected", TRACE_ID)]


def test_a_request_whose_body_is_refused_stands_in_the_log_with_its_trace(client: Client, lines: Lines) -> None:
    """Nothing but its headers has been read."""
    headers = {"traceparent": PARENT, "content-encoding": "gzip"}
    for path in ("/v1/chat/completions", "/v1/embeddings"):
        client.http.post(path, content=b"no gzip", headers=headers)
    assert [(line["status"] >= 400, line["trace_id"]) for line in lines()] == [(True, TRACE_ID)] * 2


def test_a_trace_is_no_credential(bench: Bench, client: Client) -> None:
    """Two traces of one key are one conversation."""
    bench.upstream.script = says("Hello.")
    first = client.http.post(
        "/v1/chat/completions", json=CHAT, headers={**client.headers(), "traceparent": PARENT}
    ).headers
    bench.settle()
    longer = [*CHAT["messages"], {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "Again."}]
    second = client.chat(longer).headers  # type: ignore[arg-type]
    assert first["x-tidemark-conversation"] == second["x-tidemark-conversation"]
