"""An upstream's answer without an end becomes an error in the client's dialect, on every path."""

from __future__ import annotations

from collections.abc import Iterator

import httpx
import pytest

from tests.request.conftest import Bench, Client, benched
from tests.support.scripted import Answer

CONFIG = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
  - model_name: bridged
    litellm_params: {{model: openai/scripted, api_base: "{base}"}}
    model_info: {{dialects: [chat]}}
limits: {{max_event_mb: 2, max_answer_mb: 4}}
"""
PIECE = b"x" * 65_536
DIALECTS = ["/v1/chat/completions", "/v1/messages", "/v1/responses"]
EVENTS = [(b"content-type", b"text/event-stream")]


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests."""
    with benched(store_url, tmp_path_factory.mktemp("endless")) as made:
        made.upstream.others.kept = None
        yield made


@pytest.fixture(scope="module")
def client(bench: Bench) -> Client:
    """A client of a Tidemark whose bounds are small."""
    return bench.client("endless", config=CONFIG)


def ask(client: Client, path: str, model: str = "small", *, stream: bool = False) -> httpx.Response:
    """Ask in any dialect."""
    said = [{"role": "user", "content": "Hello"}]
    body = {"model": model, "max_tokens": 9, "messages": said, "input": "Hello", "stream": stream}
    return client.http.post(path, json=body, headers=client.headers())


@pytest.mark.parametrize("path", DIALECTS)
@pytest.mark.parametrize("model", ["small", "bridged"])
def test_a_whole_answer_has_a_bound(bench: Bench, client: Client, path: str, model: str) -> None:
    """Over a bridge, too."""
    bench.upstream.script = lambda _: Answer([PIECE] * 80)
    got = ask(client, path, model)
    assert (got.status_code, "limits.max_answer_mb" in got.text, "upstream_" in got.text) == (502, True, True), got.text


@pytest.mark.parametrize("path", DIALECTS)
@pytest.mark.parametrize("model", ["small", "bridged"])
@pytest.mark.parametrize(
    ("events", "key"),
    [([b'data: {"x": "', *[PIECE] * 50], "max_event_mb"), ([b": " + PIECE + b"\n\n"] * 80, "max_answer_mb")],
    ids=["one event", "many events"],
)
def test_a_stream_has_a_bound(
    bench: Bench, client: Client, *, path: str, model: str, events: list[bytes], key: str
) -> None:
    """What came before it is the client's, and then an event of the dialect says why there is no more."""
    bench.upstream.script = lambda _: Answer(events, headers=EVENTS)
    got = ask(client, path, model, stream=True)
    assert f"limits.{key}" in got.text[-2_000:]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/embeddings"),
        ("POST", "/v1/files/x"),
        ("POST", "/v1/messages/x"),
        ("GET", "/v1/responses/resp_x?model=small"),
    ],
)
@pytest.mark.parametrize("length", [None, 80 * len(PIECE)])
def test_an_error_to_a_carried_request_has_a_bound(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch, *, method: str, path: str, length: int | None
) -> None:
    """Nothing of it was sent yet, so the client gets a status of its own, in its dialect's words."""
    stated = [] if length is None else [(b"content-length", b"%d" % length)]
    monkeypatch.setattr(bench.upstream.others, "answer", lambda _: Answer([PIECE] * 80, 403, headers=stated))
    body = {"model": "small", "input": "x"} if method == "POST" else None
    got = client.http.request(method, path, json=body, headers=client.headers())
    assert (got.status_code, "limits.max_error_mb" in got.text) == (502, True), got.text
    assert got.json().get("type") == ("error" if "messages" in path else None)


def test_a_short_error_to_a_carried_request_is_carried(bench: Bench, client: Client) -> None:
    """With its status and its bytes, though it states no length."""
    bench.upstream.script = lambda _: Answer([b'{"error": ', b'{"message": "no"}}'], 403)
    got = client.http.post("/v1/embeddings", json={"model": "small"}, headers=client.headers())
    assert (got.status_code, got.content) == (403, b'{"error": {"message": "no"}}')


@pytest.mark.parametrize("status", [200, 404, 500])
def test_a_count_of_tokens_has_a_bound(bench: Bench, client: Client, status: int) -> None:
    """A provider's count is one number."""
    bench.upstream.others.counts = lambda _: Answer([PIECE] * 80, status)
    got = ask(client, "/v1/messages/count_tokens")
    assert (got.status_code, got.json()["type"]) == (502, "error")
