"""With the extra ``otel`` and a collector, each request is a trace of what was done for it, without any text."""

from __future__ import annotations

from collections.abc import Iterator
from secrets import token_hex
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, Client, benched
from tests.request.talk import history, long, user
from tests.support.answers import SSE_HEADERS
from tests.support.scripted import Answer, chunk, refuses, says, streamed
from tests.tracing.collector import CLIENT, FAILED, SERVER, Collector, collecting
from tidemark.store.embedded.server import EmbeddedValkey

CHAT = "POST /v1/chat/completions"
UPSTREAM = "chat scripted"
SECRET_WORD = "quokkasecret"
TINY: list[dict[str, Any]] = [user(SECRET_WORD)]


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    """A collector, which the environment of all tests here names."""
    with collecting() as collector, pytest.MonkeyPatch.context() as patch:
        patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
        patch.setenv("OTEL_BSP_SCHEDULE_DELAY", "20")
        yield collector


@pytest.fixture(scope="module")
def bench(collector: Collector, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """A bench for all tests here; each uses a key of its own."""
    with (
        EmbeddedValkey(tmp_path_factory.mktemp("store")) as store,
        benched(store.url, tmp_path_factory.mktemp("b")) as made,
    ):
        yield made


@pytest.fixture(scope="module")
def server(bench: Bench) -> Client:
    """A client of the Tidemark of all tests here."""
    return bench.client("key", window=4000)


@pytest.fixture
def client(bench: Bench, server: Client, request: pytest.FixtureRequest) -> Client:
    """The same with the test's own key."""
    bench.upstream.script = says("Hello there.")
    return Client(server.http, request.node.nodeid)


def ask(
    client: Client, messages: list[dict[str, Any]], trace: str, *, flags: str = "01", **more: Any
) -> httpx.Response:
    """Send a chat request within a trace."""
    headers = {**client.headers(**more.pop("asked", {})), "traceparent": f"00-{trace}-{'b' * 16}-{flags}"}
    body = {"model": "small", "messages": messages, "max_tokens": 100, **more}
    return client.http.post("/v1/chat/completions", json=body, headers=headers)


def test_a_request_is_a_trace_with_its_steps(bench: Bench, client: Client, collector: Collector) -> None:
    """The trace is the client's, and the upstream's is a child of the span of its call."""
    trace = token_hex(16)
    ask(client, TINY, trace)
    spans = collector.trace(trace)
    request, upstream = spans[CHAT], spans[UPSTREAM]
    assert (request.kind, request.parent, request.status, request.service) == (SERVER, "b" * 16, 0, "tidemark")
    assert {spans[name].parent for name in ("identity", "plan", UPSTREAM)} == {request.id}
    assert spans["store recall"].parent == spans["identity"].id
    assert "store record" in spans
    assert upstream.kind == CLIENT
    assert bench.upstream.last.headers["traceparent"] == f"00-{trace}-{upstream.id}-01"
    assert upstream.seconds <= request.seconds


def test_spans_follow_the_conventions_for_generative_models(client: Client, collector: Collector) -> None:
    """Also those of HTTP and of databases."""
    trace = token_hex(16)
    got = ask(client, TINY, trace)
    spans = collector.trace(trace)
    upstream, request = spans[UPSTREAM].attributes, spans[CHAT].attributes
    usage = got.json()["usage"]
    assert upstream["gen_ai.operation.name"] == "chat"
    assert upstream["gen_ai.provider.name"] == "openai"
    assert (upstream["gen_ai.request.model"], upstream["gen_ai.response.model"]) == ("scripted", got.json()["model"])
    assert upstream["gen_ai.usage.input_tokens"] == usage["prompt_tokens"]
    assert upstream["gen_ai.usage.output_tokens"] == usage["completion_tokens"]
    assert (upstream["server.address"], upstream["http.response.status_code"]) == ("127.0.0.1", 200)
    assert request["gen_ai.conversation.id"] == got.headers["x-tidemark-conversation"]
    assert (request["http.route"], request["http.response.status_code"]) == ("/v1/chat/completions", 200)
    assert (request["tidemark.action"], request["tidemark.outcome"]) == ("none", "complete")
    assert spans["store recall"].attributes == {"db.system.name": "redis", "db.operation.name": "recall"}


def test_a_stored_turn_shows_what_it_reads(client: Client, collector: Collector) -> None:
    """The system messages of the last request, and whether another worker has answered the turn already."""
    first, second = token_hex(16), token_hex(16)
    for key, trace in (("one", first), ("two", second)):
        headers = {**client.headers(conversation="talk", history="stored"), "idempotency-key": key}
        body = {"model": "small", "messages": TINY, "max_tokens": 100}
        headers["traceparent"] = f"00-{trace}-{'b' * 16}-01"
        client.http.post("/v1/chat/completions", json=body, headers=headers)
    names = {"store turns.start_turn", "store request_heads.with_missing", "store answers.find", "store answers.keep"}
    assert names <= set(collector.trace(second))


def test_no_text_is_in_a_span(client: Client, collector: Collector) -> None:
    """Neither of the client nor of the model, nor the key."""
    trace = token_hex(16)
    ask(client, TINY, trace)
    text = "".join(span.text for span in collector.trace(trace).values())
    assert SECRET_WORD not in text
    assert "Hello" not in text
    assert client.key not in text


def test_the_span_of_a_stream_lasts_as_long_as_the_stream(bench: Bench, client: Client, collector: Collector) -> None:
    """Not only until its headers."""
    bench.upstream.script = lambda _: streamed("Hi there", pace=0.1)
    trace = token_hex(16)
    ask(client, TINY, trace, stream=True)
    spans = collector.trace(trace)
    assert min(spans[CHAT].seconds, spans[UPSTREAM].seconds) >= 0.2
    assert (spans[CHAT].status, spans[UPSTREAM].status) == (0, 0)
    assert spans[CHAT].attributes["tidemark.stream"] is True


def test_a_forced_summary_is_a_child_of_the_plan(client: Client, collector: Collector) -> None:
    """Its storing too."""
    trace = token_hex(16)
    ask(client, [*history(20), user("So?")], trace, asked={"summarize": "force"})
    spans = collector.trace(trace)
    assert spans["summary"].parent == spans["plan"].id
    assert spans["summary"].attributes["tidemark.summary.made"] is True
    assert spans["store keep_summary"].trace == trace
    assert spans[CHAT].attributes["tidemark.action"] == "forced"


def test_a_compaction_says_what_it_saved(client: Client, collector: Collector) -> None:
    """In tokens."""
    trace = token_hex(16)
    ask(client, [*history(36), user("So?")], trace)
    spans = collector.trace(trace)
    request = spans[CHAT].attributes
    assert "summary" in spans
    assert request["tidemark.action"] == "compacted"
    assert request["tidemark.tokens_after"] < request["tidemark.tokens_before"]


def test_a_preparation_is_a_trace_of_its_own_with_a_link(bench: Bench, client: Client, collector: Collector) -> None:
    """It goes on after the request."""
    said = [user(long(0, 400))]
    traces = []
    for number in range(1, 20):
        traces.append(token_hex(16))
        got = ask(client, said, traces[-1])
        said += [got.json()["choices"][0]["message"], user(long(number, 400))]
        if got.headers["x-tidemark-action"] != "none":
            break
    root = collector.wait(lambda span: span.name == "preparation" and bool({*span.links} & {*traces}))
    assert root.parent == ""
    assert root.trace not in traces
    assert root.attributes["tidemark.summary.made"] is True
    assert any(span.name == "store keep_summary" and span.trace == root.trace for span in collector.spans)


def test_the_call_of_a_summarizer_is_a_call_to_an_upstream(bench: Bench, client: Client, collector: Collector) -> None:
    """With a parent of its own in ``traceparent``."""
    client = Client(bench.client("llm", strategy="llm").http, client.key)
    trace = token_hex(16)
    ask(client, [*history(6), user("So?")], trace, asked={"summarize": "force"})
    collector.trace(trace)
    spans = [span for span in collector.spans if span.trace == trace]
    summary = next(span for span in spans if span.name == "summary")
    call = next(span for span in spans if span.attributes.get("tidemark.purpose") == "summary")
    assert (call.kind, call.name, call.parent) == (CLIENT, UPSTREAM, summary.id)
    assert f"00-{trace}-{call.id}-01" in [got.headers["traceparent"] for got in bench.upstream.received]


def test_a_refusal_of_the_upstream_is_on_its_span(bench: Bench, client: Client, collector: Collector) -> None:
    """A client's fault is no failure of the server."""
    bench.upstream.script = refuses(400, f"bad {SECRET_WORD}")
    trace = token_hex(16)
    ask(client, TINY, trace)
    spans = collector.trace(trace)
    assert (spans[UPSTREAM].status, spans[UPSTREAM].attributes["error.type"]) == (FAILED, "400")
    assert (spans[CHAT].status, spans[CHAT].attributes["http.response.status_code"]) == (0, 400)
    assert SECRET_WORD not in "".join(span.text for span in spans.values())


def test_a_stream_that_breaks_off_fails_both_spans(bench: Bench, client: Client, collector: Collector) -> None:
    """The status has gone out before, so it says nothing."""
    bench.upstream.script = lambda _: Answer([chunk(delta={"content": "Hi"})], headers=list(SSE_HEADERS), breaks=True)
    trace = token_hex(16)
    ask(client, TINY, trace, stream=True)
    spans = collector.trace(trace)
    assert (spans[CHAT].status, spans[UPSTREAM].status) == (FAILED, FAILED)
    assert spans[CHAT].attributes["error.type"] == spans[UPSTREAM].attributes["error.type"]
    assert spans[CHAT].attributes["tidemark.outcome"] == "incomplete"


def test_a_client_that_leaves_ends_both_spans(bench: Bench, client: Client, collector: Collector) -> None:
    """The spans name it."""
    bench.upstream.script = lambda _: Answer([chunk(delta={"content": "Hi"}), 600.0], headers=list(SSE_HEADERS))
    trace = token_hex(16)
    headers = {**client.headers(), "traceparent": f"00-{trace}-{'b' * 16}-01"}
    body = {"model": "small", "messages": TINY, "stream": True}
    with client.http.stream("POST", "/v1/chat/completions", json=body, headers=headers) as got:
        next(got.iter_bytes())
    spans = collector.trace(trace)
    assert (spans[CHAT].status, spans[CHAT].attributes["error.type"]) == (FAILED, "disconnected")
    assert (spans[UPSTREAM].status, spans[UPSTREAM].attributes["error.type"]) == (FAILED, "cancelled")


def test_a_request_that_is_only_carried_has_its_spans(bench: Bench, client: Client, collector: Collector) -> None:
    """Embeddings have a name in the conventions; every route names its span without what clients put into it."""
    trace = token_hex(16)
    headers = {**client.headers(), "traceparent": f"00-{trace}-{'b' * 16}-01"}
    client.http.post("/v1/embeddings", json={"model": "small", "input": SECRET_WORD}, headers=headers)
    spans = collector.trace(trace)
    call = spans["embeddings scripted"]
    assert (spans["POST /v1/embeddings"].id, call.attributes["gen_ai.operation.name"]) == (call.parent, "embeddings")
    assert bench.upstream.last.headers["traceparent"] == f"00-{trace}-{call.id}-01"
    trace = token_hex(16)
    client.http.get("/tidemark/conversations/none", headers={"traceparent": f"00-{trace}-{'b' * 16}-01"})
    assert [span.name for span in collector.trace(trace).values() if span.kind == SERVER] == [
        "GET /tidemark/conversations/{id}"
    ]


def test_a_reply_whose_body_nobody_wants_is_no_failure(client: Client, collector: Collector) -> None:
    """That of a HEAD request."""
    trace = token_hex(16)
    headers = {**client.headers(), "traceparent": f"00-{trace}-{'b' * 16}-01"}
    assert client.http.head("/v1/files/one", headers=headers).status_code == 200
    spans = collector.trace(trace)
    assert spans["HEAD"].attributes["http.response.status_code"] == 200
    assert {span.status for span in spans.values()} == {0}


def test_a_caller_that_does_not_sample_is_followed(bench: Bench, client: Client, collector: Collector) -> None:
    """Nothing is recorded, and the upstream hears of it."""
    trace, after = token_hex(16), token_hex(16)
    ask(client, TINY, trace, flags="00")
    assert bench.upstream.last.headers["traceparent"].endswith("-00")
    ask(client, TINY, after)
    collector.trace(after)
    assert trace not in {span.trace for span in collector.spans}


def test_health_and_metrics_have_no_spans(client: Client, collector: Collector) -> None:
    """Machines ask for them every few seconds."""
    client.http.get("/health/readiness")
    client.http.get("/metrics")
    trace = token_hex(16)
    ask(client, TINY, trace)
    collector.trace(trace)
    assert not any("health" in span.name or "metrics" in span.name for span in collector.spans)


def test_standard_variables_hold(
    bench: Bench, client: Client, collector: Collector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The service's name, and a sampler that takes nothing."""
    monkeypatch.setenv("OTEL_SERVICE_NAME", "chat-proxy")
    named = Client(bench.client("named").http, client.key)
    trace = token_hex(16)
    ask(named, TINY, trace)
    assert collector.trace(trace)[CHAT].service == "chat-proxy"
    monkeypatch.setenv("OTEL_TRACES_SAMPLER", "always_off")
    off = Client(bench.client("off").http, client.key)
    ask(off, TINY, trace)
    assert bench.upstream.last.headers["traceparent"].startswith(f"00-{trace}-")
    assert bench.upstream.last.headers["traceparent"].endswith("-00")


def test_without_a_collector_or_when_disabled_nothing_is_traced(
    bench: Bench, client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client's own trace goes on byte for byte, as always."""
    monkeypatch.setenv("OTEL_SDK_DISABLED", "true")
    off = Client(bench.client("disabled").http, client.key)
    trace = token_hex(16)
    ask(off, TINY, trace)
    assert bench.upstream.last.headers["traceparent"] == f"00-{trace}-{'b' * 16}-01"
