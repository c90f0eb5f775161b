"""Summaries that are prepared before they are needed: nobody waits, and all workers share them."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.request.compaction.test_summarizers import SUMMARY, is_summary_call
from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, long, user
from tests.support.scripted import Answer, Received, error, says, streamed, whole

SLOW_SECONDS = 3.0
WAITING = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/scripted, api_base: '{base}'}}
    model_info: {{max_input_tokens: 4000, max_output_tokens: 200}}
server: {{notice_seconds: 0.2}}
compaction: {{defaults: {{strategy: llm, retention_tokens: 200, min_tokens: 300}}}}
"""


@dataclass
class Talk:
    """One conversation that grows by a turn at a time."""

    client: Client
    messages: list[Said] = field(default_factory=list)

    def turn(self, words: int = 60, **asked: str) -> Any:
        """Ask and be answered; the response, with ``first`` the seconds to its first byte."""
        self.messages.append(user(long(len(self.messages), words)))
        body = {"model": "small", "messages": self.messages, "max_tokens": 100, "stream": True}
        started = time.perf_counter()
        with self.client.http.stream(
            "POST", "/v1/chat/completions", json=body, headers=self.client.headers(**asked)
        ) as got:
            parts = got.iter_bytes()
            lead = next(parts, b"")
            got.extensions["first"] = time.perf_counter() - started
            got.extensions["data"] = lead + b"".join(parts)
        self.messages.append(assistant(said_in(got.extensions["data"])))
        return got

    def until(self, action: str, most: int = 60, words: int = 60) -> Iterator[Any]:
        """Turn by turn up to the first one with that action."""
        for _ in range(most):
            got = self.turn(words)
            yield got
            if got.headers["x-tidemark-action"] == action:
                return
        raise AssertionError(action)


def said_in(data: bytes) -> str:
    """The text of a stream."""
    events = [line[6:] for line in data.decode().splitlines() if line.startswith("data: {")]
    choices = [json.loads(event)["choices"][0] for event in events]
    return "".join(choice["delta"].get("content") or "" for choice in choices)


def replying(summary: Callable[[Received], Answer], words: int = 60) -> Callable[[Received], Answer]:
    """An upstream that answers the client at once and summaries as told."""

    def script(request: Received) -> Answer:
        if is_summary_call(request):
            return summary(request)
        return streamed(long(len(request.messages) + 1, words))

    return script


def slowly(seconds: float) -> Callable[[Received], Answer]:
    """A summary that takes its time."""

    def answer(_: Received) -> Answer:
        made = whole(SUMMARY)
        return Answer(made.pieces, headers=made.headers, before_headers=seconds)

    return answer


def summaries(bench: Bench) -> list[Received]:
    """The calls that the summarizer got."""
    return [one for one in bench.upstream.received if is_summary_call(one)]


def begin_talk(client: Client, bench: Bench, *, summary: Callable[[Received], Answer]) -> Talk:
    """A conversation whose upstream summarizes in that way."""
    bench.upstream.script = replying(summary)
    return Talk(client)


def test_a_turn_that_crosses_the_high_water_waits_no_longer_than_any_other(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """A summarizer of three seconds, turns smaller than the gap between the marks: the summary is there in time."""
    talk = begin_talk(
        bench.client(request.node.nodeid, strategy="llm", window=4000), bench, summary=slowly(SLOW_SECONDS)
    )
    firsts: list[float] = []
    for got in talk.until("compacted"):
        firsts.append(got.extensions["first"])
        if summaries(bench):  # a person reads for longer than that
            time.sleep(SLOW_SECONDS / 4)
    assert len(summaries(bench)) == 1
    assert max(firsts[1:]) < SLOW_SECONDS / 3  # the first loads the vocabulary, which on a busy machine takes a second
    assert got.headers["x-tidemark-strategy"] == "llm"
    assert int(got.headers["x-tidemark-tokens-after"]) < int(got.headers["x-tidemark-limit"]) / 2
    assert "x-tidemark-warning" not in got.headers
    frozen = bench.upstream.received[-1].messages
    assert talk.turn().headers["x-tidemark-action"] == "reused"
    assert bench.upstream.received[-1].messages[: len(frozen)] == frozen


def test_until_the_high_water_a_prepared_summary_is_not_used(bench: Bench, request: pytest.FixtureRequest) -> None:
    """The forwarded prefix stays what it was (promise 5)."""
    talk = begin_talk(bench.client(request.node.nodeid, strategy="llm", window=4000), bench, summary=says(SUMMARY))
    for got in talk.until("compacted"):
        forwarded = [one.messages for one in bench.upstream.received if not is_summary_call(one)]
        if got.headers["x-tidemark-action"] == "none":
            assert forwarded[-1] == talk.messages[:-1]


def test_a_summary_that_is_being_prepared_when_it_is_needed_is_waited_for(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """And not made a second time; a stream is told what it waits for."""
    talk = begin_talk(bench.client(request.node.nodeid, config=WAITING), bench, summary=slowly(SLOW_SECONDS))
    while not summaries(bench):
        talk.turn()
    got = talk.turn(words=1600)
    assert b": compacting " in got.extensions["data"]
    assert b" messages (" in got.extensions["data"]
    assert b": x-tidemark-action: compacted" in got.extensions["data"]
    assert len(summaries(bench)) == 1
    assert talk.turn().headers["x-tidemark-action"] == "reused"


def test_without_notices_a_stream_that_waits_gets_no_word_of_it(bench: Bench, request: pytest.FixtureRequest) -> None:
    """FR-1.6.4: ``notice_seconds: 0``; the comments that keep the connection open go on."""
    config = WAITING.replace("notice_seconds: 0.2", "notice_seconds: 0, keepalive_seconds: 0.1")
    talk = begin_talk(bench.client(request.node.nodeid, config=config), bench, summary=slowly(SLOW_SECONDS))
    while not summaries(bench):
        talk.turn()
    got = talk.turn(words=1600)
    assert got.headers.get("x-tidemark-action", "compacted") == "compacted"
    assert talk.turn().headers["x-tidemark-action"] == "reused"
    assert b"compacting" not in got.extensions["data"]


def test_a_wait_that_is_too_long_is_ended_by_the_failure_policy(bench: Bench, request: pytest.FixtureRequest) -> None:
    """``wait_seconds``: an extractive summary stands in, and the header says so."""
    client = bench.client(request.node.nodeid, strategy="llm", window=4000, more=", wait_seconds: 0.3")
    talk = begin_talk(client, bench, summary=slowly(30))
    while not summaries(bench):
        talk.turn()
    got = talk.turn(words=1600)
    assert got.headers["x-tidemark-action"] == "compacted"
    assert got.headers["x-tidemark-strategy"] == "extractive"
    assert "llm summarizer failed" in got.headers["x-tidemark-warning"]
    assert 0.3 < got.extensions["first"] < 5


def test_a_preparation_that_fails_is_tried_again_and_costs_nobody_anything(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """The turn after it begins another one; no answer carries a warning."""
    failures = iter([error(500, "out of order")] * 2)  # a third one would open the breaker
    client = bench.client(request.node.nodeid, strategy="llm", window=4000)
    talk = begin_talk(client, bench, summary=lambda asked: next(failures, None) or says(SUMMARY)(asked))
    answers = list(talk.until("compacted"))
    assert len(summaries(bench)) == 3
    assert not any("x-tidemark-warning" in got.headers for got in answers)
    assert answers[-1].headers["x-tidemark-strategy"] == "llm"


def test_three_failures_leave_the_summarizer_alone_for_a_while(bench: Bench, request: pytest.FixtureRequest) -> None:
    """No further call; requests are served meanwhile, and the readiness page says so."""
    client = bench.client(request.node.nodeid, strategy="llm", window=4000)
    talk = begin_talk(client, bench, summary=lambda _: error(500, "out of order"))
    *_, last = talk.until("compacted")
    assert last.headers["x-tidemark-strategy"] == "extractive"
    assert "rests for" in last.headers["x-tidemark-warning"] or len(summaries(bench)) <= 3
    assert len(summaries(bench)) == 3
    assert client.http.get("/health/readiness").json()["summarizers"] == "resting"
    assert 'tidemark_breaker_changes_total{state="open",strategy="llm"} 1.0' in client.http.get("/metrics").text


def test_without_a_prepare_mark_nothing_is_prepared(bench: Bench, request: pytest.FixtureRequest) -> None:
    """``prepare: 1``: the one summary is made in the request that needs it."""
    client = bench.client(request.node.nodeid, strategy="llm", window=4000, more=", prepare: 1")
    talk = begin_talk(client, bench, summary=says(SUMMARY))
    for got in talk.until("compacted"):
        assert len(summaries(bench)) == (got.headers["x-tidemark-action"] == "compacted")


def test_another_worker_swaps_in_what_this_one_prepared(bench: Bench, request: pytest.FixtureRequest) -> None:
    """One store for all; equal requests to both are forwarded as equal bytes."""
    first = bench.client(request.node.nodeid, strategy="llm", window=4000)
    second = bench.client(request.node.nodeid, strategy="llm", window=4000)
    talk = begin_talk(first, bench, summary=says(SUMMARY))
    while not summaries(bench):
        talk.turn()
    talk.client = second
    assert [got.headers["x-tidemark-action"] for got in talk.until("compacted")][-1] == "compacted"
    assert len(summaries(bench)) == 1
    forwarded = bench.upstream.received[-1].json
    talk.messages.pop()
    again = first.post({"model": "small", "messages": talk.messages, "max_tokens": 100, "stream": True})
    assert again.headers["x-tidemark-action"] == "reused"
    assert bench.upstream.received[-1].json == forwarded
