"""Behaviour on the wire is the same in every dialect: what one client may expect, the clients of the others may."""

from __future__ import annotations

import gzip
import json
import zlib
from collections.abc import Iterator
from typing import Any

import brotli
import httpx
import pytest

from tests.request.conftest import Bench, Client, benched
from tests.request.talk import history, user
from tests.support.answers import Answer
from tests.support.scripted import Received, Turn, refuses, says, tells

APP = "https://chat.example.com"
CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{max_input_tokens: {window}, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, retention_tokens: 200, min_tokens: 300}}
server: {{allowed_origins: ["https://chat.example.com"], keepalive_seconds: {more}}}
"""
PATHS = {"chat": "/v1/chat/completions", "responses": "/v1/responses", "messages": "/v1/messages"}
EVENTS = {"chat": b"data: ", "responses": b"event: error\n", "messages": b"event: error\n"}
LEFT: dict[str, dict[str, Any]] = {
    "responses": {"truncation": "auto"},
    "messages": {"context_management": {"edits": [{"type": "compact_20260112"}]}},
}


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests."""
    with benched(store_url, tmp_path_factory.mktemp("dialects")) as made:
        yield made


@pytest.fixture(scope="module")
def served(bench: Bench) -> Client:
    """A client of a Tidemark that allows one page."""
    return bench.client("served", config=CONFIG, window=2000, more="60")


@pytest.fixture
def client(bench: Bench, served: Client, request: pytest.FixtureRequest) -> Client:
    """The same with a credential of the test's own, before an upstream that greets."""
    bench.upstream.script = says("Hello there.")
    return Client(served.http, request.node.nodeid.encode().hex())


def body_of(dialect: str, messages: list[dict[str, Any]], **members: Any) -> dict[str, Any]:
    """A request of a dialect."""
    if dialect == "responses":
        return {"model": "small", "input": messages, "max_output_tokens": 100, **members}
    return {"model": "small", "messages": messages, "max_tokens": 100, **members}


def post(client: Client, dialect: str, body: Any, **headers: str) -> httpx.Response:
    """Send a body to a dialect's path; ``content_encoding="br"`` is a header."""
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.http.post(PATHS[dialect], content=content, headers={**client.headers(), **named})


def error_in(dialect: str, got: httpx.Response) -> dict[str, Any]:
    """The error in a dialect's envelope."""
    value = got.json()
    if dialect == "messages":
        assert value["type"] == "error"
    error: dict[str, Any] = value["error"]
    assert {"message", "type"} <= set(error)
    return error


@pytest.mark.parametrize("dialect", PATHS)
def test_refusals_before_any_endpoint_have_the_dialects_envelope(client: Client, dialect: str) -> None:
    """A WebSocket, a wrong method, a page of another site, and a coding that nobody knows."""
    path = PATHS[dialect]
    upgrade = client.http.get(path, headers={"connection": "upgrade", "upgrade": "websocket"})
    assert (upgrade.status_code, error_in(dialect, upgrade)["code"]) == (426, "upgrade_required")
    method = client.http.put(path)
    assert (method.status_code, error_in(dialect, method)["code"]) == (405, "unknown_url")
    assert "POST" in method.headers["allow"]
    foreign = client.http.post(path, headers={"origin": "https://evil.example"})
    assert (foreign.status_code, error_in(dialect, foreign)["code"]) == (403, "foreign_origin")
    coding = post(client, dialect, body_of(dialect, [user("hi")]), content_encoding="compress")
    assert (coding.status_code, error_in(dialect, coding)["code"]) == (415, "unsupported_encoding")
    assert coding.headers["accept-encoding"] == "gzip, deflate, br, zstd"


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br"])
@pytest.mark.parametrize("dialect", PATHS)
def test_a_compressed_request_is_read(bench: Bench, client: Client, dialect: str, coding: str) -> None:
    """The upstream gets it plain."""
    pack = {"gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress}[coding]
    body = body_of(dialect, [user("hi")])
    assert post(client, dialect, pack(json.dumps(body).encode()), content_encoding=coding).status_code == 200
    assert bench.upstream.last.json == {**body, "model": "scripted"}
    assert "content-encoding" not in bench.upstream.last.headers


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("dialect", PATHS)
def test_an_allowed_page_reads_answers_and_errors(client: Client, dialect: str, *, stream: bool) -> None:
    """With all their headers."""
    for body in (body_of(dialect, [user("hi")], stream=stream), b"{"):
        got = post(client, dialect, body, origin=APP)
        assert got.headers.get_list("access-control-allow-origin") == [APP]
        shown = set(got.headers["access-control-expose-headers"].split(", "))
        assert {name for name in got.headers if name.startswith("x-")} <= shown


@pytest.mark.parametrize("dialect", PATHS)
def test_rate_limits_and_ids_of_requests_pass(bench: Bench, client: Client, dialect: str) -> None:
    """Of answers, of streams and of refusals, with ``Retry-After``."""
    lines = {"x_request_id": "req_7", "request_id": "req_8", "x_ratelimit_remaining_tokens": "9", "retry_after": "3"}
    for script in (says("Fine."), refuses(429, "slow down"), refuses(529, "overloaded")):
        bench.upstream.script = lambda request, script=script: script(request).with_headers(**lines)  # type: ignore[misc]
        for stream in (False, True):
            got = post(client, dialect, body_of(dialect, [user("hi")], stream=stream))
            for name, value in lines.items():
                assert got.headers.get_list(name.replace("_", "-"))[-1] == value


@pytest.mark.parametrize("dialect", PATHS)
def test_a_stream_is_kept_open_and_a_late_refusal_is_an_event(bench: Bench, dialect: str) -> None:
    """A comment is no event in any dialect; the refusal keeps its words."""
    client = bench.client(f"kept open {dialect}", config=CONFIG, window=2000, more="0.05")

    def late(request: Received) -> Answer:
        answer = refuses(429, "slow down")(request)
        answer.before_headers = 1.0
        return answer

    bench.upstream.script = late
    got = post(client, dialect, body_of(dialect, [user("hi")], stream=True))
    comment, _, rest = got.content.partition(b"\n\n")
    assert (got.status_code, comment) == (200, b": keep-alive")
    event = rest.replace(b": keep-alive\n\n", b"")
    event = b"".join(part + b"\n\n" for part in event.split(b"\n\n") if part and not part.startswith(b": "))
    assert event.startswith(EVENTS[dialect])
    assert b"slow down" in event


@pytest.mark.parametrize("dialect", PATHS)
def test_a_stream_that_breaks_off_ends_with_the_dialects_error(bench: Bench, client: Client, dialect: str) -> None:
    """No end is made up."""

    def broken(request: Received) -> Answer:
        answer = tells(Turn("only a part of it"))(request).cut(4)
        answer.breaks = True
        return answer

    bench.upstream.script = broken
    got = post(client, dialect, body_of(dialect, [user("hi")], stream=True))
    event = got.content.rstrip().rpartition(b"\n\n")[2]
    assert event.startswith(EVENTS[dialect])
    assert b"upstream_incomplete" in event


@pytest.mark.parametrize("dialect", ["responses", "messages"])
def test_a_command_is_for_the_model_outside_of_chat(bench: Bench, client: Client, dialect: str) -> None:
    """Unless ``command_dialects`` says otherwise."""
    assert b"Hello there." in post(client, dialect, body_of(dialect, [user("/context")])).content
    assert "/context" in json.dumps(bench.upstream.last.json)
    before = len(bench.upstream.received)
    assert b"Total tokens" in post(client, "chat", body_of("chat", [user("/context")])).content
    assert len(bench.upstream.received) == before


@pytest.mark.parametrize("dialect", LEFT)
def test_a_request_that_is_left_to_the_provider_is_replayed_all_the_same(
    bench: Bench, client: Client, dialect: str
) -> None:
    """It goes out as it came; where the provider refuses it as too long, Tidemark compacts it."""
    body = body_of(dialect, [*history(18), user("Now?")], **LEFT[dialect])
    got = post(client, dialect, body)
    assert (got.status_code, got.headers["x-tidemark-action"]) == (200, "none")
    assert got.headers["x-tidemark-warning"].startswith("left to the upstream: ")
    assert bench.upstream.last.json == {**body, "model": "scripted"}

    def small(request: Received) -> Answer:
        if len(request.body) > 3000:
            text = "This model's maximum context length is 1000 tokens. However, your messages resulted in 1500 tokens."
            return refuses(400, text, code="context_length_exceeded")(request)
        return says("Fine.")(request)

    bench.upstream.script = small
    got = post(client, dialect, body)
    assert (got.status_code, got.headers["x-tidemark-action"]) == (200, "compacted"), got.text
    member = next(iter(LEFT[dialect]))
    assert bench.upstream.last.json[member] == LEFT[dialect][member]
