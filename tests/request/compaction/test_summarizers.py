"""Summaries by a model: they are asked of the conversation's upstream, and every failure has its policy."""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, history, user
from tests.support.scripted import Answer, Received, error, says, whole

SUMMARY = "## Context\nThe points were gone through one after another, and each was agreed upon by both sides in turn."
LONG: list[Said] = [*history(18), user("Now?")]


def is_summary_call(request: Received) -> bool:
    """Whether the upstream is asked to summarize: our own prompt, not the client's."""
    return str(request.messages[0]["content"]).startswith("You summarize") and len(request.messages) == 2


def upstream_with(summary: Callable[[Received], Answer], reply: str = "Fine.") -> Callable[[Received], Answer]:
    """An upstream that answers summaries in one way and the client in another."""

    def script(request: Received) -> Answer:
        return summary(request) if is_summary_call(request) else says(reply)(request)

    return script


def client_with(bench: Bench, request: pytest.FixtureRequest, strategy: str, more: str = "") -> Client:
    """A client of a Tidemark with a strategy."""
    return bench.client(request.node.nodeid, strategy=strategy, more=more)


@pytest.mark.parametrize("strategy", ["llm", "hybrid"])
def test_a_summary_is_asked_of_the_conversations_upstream(
    bench: Bench, request: pytest.FixtureRequest, strategy: str
) -> None:
    """With the client's own key, within the bound; the forwarded request has it and says who wrote it."""
    client = client_with(bench, request, strategy)
    bench.upstream.script = upstream_with(says(SUMMARY))
    got = client.chat(LONG)
    assert got.headers["x-tidemark-action"] == "compacted"
    assert got.headers["x-tidemark-strategy"] == strategy
    calls = [one for one in bench.upstream.received if is_summary_call(one)]
    asked = calls[0]
    assert asked.headers["authorization"] == f"Bearer {client.key}"
    assert asked.json["max_tokens"] <= 256
    assert "each was agreed upon by both sides" in bench.upstream.last.messages[0]["content"]
    again = client.chat([*LONG, assistant("Fine."), user("And?")])
    assert again.headers["x-tidemark-action"] == "reused"
    assert [one for one in bench.upstream.received if is_summary_call(one)] == calls


def test_the_summarizers_own_window_bounds_its_calls(bench: Bench, request: pytest.FixtureRequest) -> None:
    """A conversation of 38,000 tokens in a window of 40,000 is one call and not three."""
    client = bench.client(request.node.nodeid, strategy="llm", window=40_000)
    bench.upstream.script = upstream_with(says(SUMMARY))
    got = client.chat([*history(40, words=600), user("Now?")])
    assert int(got.headers["x-tidemark-tokens-before"]) > 37_000
    assert got.headers["x-tidemark-action"] == "compacted"
    assert len([one for one in bench.upstream.received if is_summary_call(one)]) == 1


FAILURES: dict[str, Callable[[Received], Answer]] = {
    "rate limited": lambda _: error(429, "slow down"),
    "broken": lambda _: Answer([b"{"], breaks=True),
    "no JSON": lambda _: Answer([b"<html>"]),
    "empty": lambda _: whole(""),
    "slow": lambda _: Answer([b"{}"], before_headers=20),
}


@pytest.mark.parametrize("failure", FAILURES)
def test_a_failed_summary_is_replaced_by_an_extractive_one(
    bench: Bench, request: pytest.FixtureRequest, failure: str
) -> None:
    """``on_failure: deterministic``, the default: the request is served, and the header warns."""
    client = client_with(bench, request, "llm", ", summarizer: {timeout_seconds: 0.5}")
    bench.upstream.script = upstream_with(FAILURES[failure])
    got = client.chat(LONG)
    assert got.status_code == 200
    assert got.headers["x-tidemark-action"] == "compacted"
    assert got.headers["x-tidemark-strategy"] == "extractive"
    assert "llm summarizer failed" in got.headers["x-tidemark-warning"]
    assert re.search(r"Point \d+: w\d+x0", bench.upstream.last.messages[0]["content"])  # the talk's own words


def test_block_refuses_until_it_works_or_the_risk_is_accepted(bench: Bench, request: pytest.FixtureRequest) -> None:
    """FR-5.1.1: the full history is not sent; the client may retry, or acknowledge the overflow."""
    client = client_with(bench, request, "llm", ", on_failure: block")
    bench.upstream.script = upstream_with(FAILURES["rate limited"])
    for _ in range(2):
        refused = client.chat(LONG)
        assert refused.status_code == 503
        assert refused.json()["error"]["code"] == "compaction_failed"
        assert refused.headers["x-tidemark-action"] == "failed"
    assert all(is_summary_call(one) for one in bench.upstream.received)
    bench.upstream.script = upstream_with(says(SUMMARY))
    assert client.chat(LONG).headers["x-tidemark-action"] == "compacted"
    bench.upstream.script = upstream_with(FAILURES["rate limited"])
    other = [{"role": "user", "content": "Another conversation."}, *LONG]
    assert client.chat(other).status_code == 503
    accepted = client.chat(other, overflow="acknowledge")
    assert accepted.status_code == 200
    assert bench.upstream.last.messages == other


def test_passthrough_forwards_the_request_as_it_is(bench: Bench, request: pytest.FixtureRequest) -> None:
    """``on_failure: passthrough``: the upstream judges, and the header says what happened."""
    client = client_with(bench, request, "llm", ", on_failure: passthrough")
    bench.upstream.script = upstream_with(FAILURES["empty"])
    got = client.chat(LONG)
    assert got.status_code == 200
    assert got.headers["x-tidemark-action"] == "failed"
    assert bench.upstream.last.messages == LONG


def test_equal_requests_at_once_make_one_summary(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Single flight within a process: ten requests, one summary, the same forwarded bytes."""
    client = client_with(bench, request, "llm")
    slow = whole(SUMMARY)
    slow.before_headers = 0.3
    bench.upstream.script = upstream_with(lambda _: slow)
    with ThreadPoolExecutor(10) as pool:
        answers = list(pool.map(lambda _: client.chat(LONG), range(10)))
    assert {got.status_code for got in answers} == {200}
    asked = [one for one in bench.upstream.received if is_summary_call(one)]
    assert len(asked) == len({one.body for one in asked}), "no piece of the transcript is summarized twice"
    assert len({one.body for one in bench.upstream.received if one not in asked}) == 1


def test_a_client_that_leaves_cancels_a_summary_that_only_it_waits_for(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """FIELD.md: nothing goes on for a client who is gone."""
    import httpx

    from tests.support.waiting import wait_until

    client = client_with(bench, request, "llm")
    slow = whole(SUMMARY)
    slow.before_headers = 20
    bench.upstream.script = upstream_with(lambda _: slow)
    body = {"model": "small", "messages": LONG}
    with pytest.raises(httpx.ReadTimeout):
        client.http.post("/v1/chat/completions", json=body, headers=client.headers(), timeout=0.5)
    wait_until(lambda: bench.upstream.received and bench.upstream.last.gone)
