"""Requests that are still too large when all that can be summarized is (FR-5.3.1): clipped, or refused with numbers."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, history, long, system, user
from tests.support.scripted import Answer, Received, error, whole
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore

MARK = "tokens clipped by Tidemark ...]"


def calls(*ids: str, text: str | None = None) -> Said:
    """An assistant that asks for several tools at once."""
    made = [{"id": one, "type": "function", "function": {"name": "read", "arguments": "{}"}} for one in ids]
    return {"role": "assistant", "content": text, "tool_calls": made}


def result(call: str, content: Any) -> Said:
    """What a tool gave."""
    return {"role": "tool", "tool_call_id": call, "content": content}


HUGE = "first line\n" + long(1, 9000) + "\nlast line"
PARALLEL: list[Said] = [
    system("You are an agent."),
    user("Compare the two files."),
    calls("a", "b"),
    result("b", HUGE),
    result("a", "short"),
]


def counted(client: Client, body: bytes) -> int:
    """Tokens of a body by the product's own count."""
    tokens: int = client.http.post("/tidemark/count", content=body).json()["input_tokens"]
    return tokens


def test_parallel_results_with_the_newest_last_fit_by_clipping(bench: Bench, client: Client) -> None:
    """No cut is possible at all: the huge result keeps its ends around a mark, all else is as it was."""
    got = client.chat(PARALLEL)
    assert got.status_code == 200, got.text
    assert got.headers["x-tidemark-action"] == "none"
    sent = bench.upstream.last.messages
    assert [one for place, one in enumerate(sent) if place != 3] == [
        one for place, one in enumerate(PARALLEL) if place != 3
    ]
    assert sent[3]["content"].startswith("first line\nPoint 1: ")
    assert sent[3]["content"].endswith("last line")
    assert sent[3]["content"].count(MARK) == 1
    assert {**sent[3], "content": HUGE} == PARALLEL[3]
    after, limit = int(got.headers["x-tidemark-tokens-after"]), int(got.headers["x-tidemark-limit"])
    assert counted(client, bench.upstream.last.body) == after <= limit
    whole_request = counted(client, json.dumps({"model": "small", "messages": PARALLEL}).encode())
    assert int(got.headers["x-tidemark-tokens-before"]) == whole_request
    assert "clipped 1 tool result in the middle, " in got.headers["x-tidemark-warning"]
    assert "tokens to " in got.headers["x-tidemark-warning"]


def test_the_same_request_is_clipped_to_the_same_bytes(bench: Bench, client: Client) -> None:
    """By every worker, with and without what it remembers."""
    other = bench.client(client.key)
    for one in (client, client, other):
        assert one.chat(PARALLEL).status_code == 200
    assert len({request.body for request in bench.upstream.received}) == 1


def test_a_request_is_clipped_after_it_was_compacted_as_far_as_may_be(bench: Bench, client: Client) -> None:
    """Retention shrinks and the summary is made first; what then still is too large is clipped."""
    said = [*history(8), *PARALLEL[1:]]
    got = client.chat(said)
    assert got.status_code == 200, got.text
    assert got.headers["x-tidemark-action"] == "compacted"
    assert got.headers["x-tidemark-summarized-messages"] == "17"
    assert "clipped 1 tool result" in got.headers["x-tidemark-warning"]
    assert counted(client, bench.upstream.last.body) <= int(got.headers["x-tidemark-limit"])
    again = client.chat(said)
    assert again.headers["x-tidemark-action"] == "reused"
    assert bench.upstream.received[0].body == bench.upstream.received[1].body


def test_only_what_no_summary_can_take_in_is_clipped(bench: Bench, client: Client) -> None:
    """A huge result of an earlier turn goes into the summary, and nothing is clipped."""
    got = client.chat([*PARALLEL, assistant("They differ."), user("How?")])
    assert got.headers["x-tidemark-action"] == "compacted"
    assert "x-tidemark-warning" not in got.headers
    assert MARK not in bench.upstream.last.body.decode()


def test_several_results_are_clipped_and_the_header_says_how_many(bench: Bench, client: Client) -> None:
    """The largest first; small ones stay whole."""
    ids = [f"c{i}" for i in range(6)]
    said = [user("Read."), calls(*ids), *[result(one, long(i, 900)) for i, one in enumerate(ids[:4])]]
    said += [result(ids[4], "tiny"), result(ids[5], "newest")]
    got = client.chat(said)
    assert got.status_code == 200, got.text
    sent = bench.upstream.last.messages
    clipped = sum(MARK in str(one["content"]) for one in sent)
    assert f"clipped {clipped} tool results" in got.headers["x-tidemark-warning"]
    assert clipped >= 2
    assert sent[-2:] == said[-2:]


def test_results_in_parts_and_legacy_results_are_clipped(bench: Bench, client: Client) -> None:
    """Text parts keep their members; a legacy function's result is one like any other."""
    parts = [{"type": "text", "text": long(i, 800), "mine": i} for i in range(5)]
    legacy = {"role": "assistant", "content": None, "function_call": {"name": "look", "arguments": "{}"}}
    said = [user("Read."), calls("a", "late"), result("a", parts), legacy]
    said += [{"role": "function", "name": "look", "content": long(9, 4000)}, assistant("Hm."), legacy]
    said += [{"role": "function", "name": "look", "content": "newest"}]
    got = client.chat(said)
    assert got.status_code == 200, got.text
    sent = bench.upstream.last.messages
    assert sent[2]["content"][0]["mine"] == 0
    assert sent[2]["content"][-1]["mine"] == 4
    assert MARK in json.dumps(sent[2]["content"])
    assert MARK in sent[4]["content"]
    assert sent[4]["name"] == "look"
    assert counted(client, bench.upstream.last.body) <= int(got.headers["x-tidemark-limit"])


def test_the_newest_message_is_never_clipped(bench: Bench, client: Client) -> None:
    """A tool result neither: the client gets OpenAI's error with the numbers, and nothing is sent."""
    for said in ([*PARALLEL[:3], result("a", "short"), result("b", HUGE)], [user(HUGE)]):
        got = client.chat(said)
        told = got.json()["error"]
        assert (got.status_code, told["code"], told["param"]) == (400, "context_length_exceeded", "messages")
        assert "maximum context length is 2000 tokens" in told["message"]
        assert f"resulted in {got.headers['x-tidemark-tokens-before']} tokens" in told["message"]
        assert f"at least {got.headers['x-tidemark-tokens-after']} remain" in told["message"]
        assert got.headers["x-tidemark-action"] == "failed"
    assert not bench.upstream.received


def test_oversize_error_refuses_what_clip_would_clip(bench: Bench, request: pytest.FixtureRequest) -> None:
    """``oversize: error``."""
    got = bench.client(request.node.nodeid, more=", oversize: error").chat(PARALLEL)
    assert (got.status_code, got.json()["error"]["code"]) == (400, "context_length_exceeded")
    assert not bench.upstream.received


def test_what_is_stored_is_the_original(bench: Bench, client: Client, store_url: str) -> None:
    """Promise 6: history keeps the client's own message, and the next turn goes on with the same conversation."""
    first = client.chat(PARALLEL)

    async def stored() -> list[bytes]:
        store = RedisStore(store_url, Codec(), ttl_seconds=None)
        try:
            return [one.raw for one in await store.messages(first.headers["x-tidemark-conversation"])]
        finally:
            await store.close()

    raws = asyncio.run(stored())
    assert json.loads(raws[2]) == PARALLEL[3]
    later = client.chat([*PARALLEL, assistant("Hello there."), user("So?")])
    assert later.headers["x-tidemark-conversation"] == first.headers["x-tidemark-conversation"]
    assert later.headers["x-tidemark-action"] == "compacted"


def test_a_loop_that_cannot_be_cut_goes_on_by_clipping(bench: Bench, client: Client) -> None:
    """A call that is never answered keeps its turn open: the summary before it is reused, results shrink, all fits."""
    said = [*history(6), user("Go."), calls("never", "c")]
    said.append(result("c", "ok"))
    actions = []
    for number in range(9):
        said += [calls(f"c{number}"), result(f"c{number}", long(number, 300))]
        got = client.chat(said)
        assert got.status_code == 200, got.text
        assert counted(client, bench.upstream.last.body) <= int(got.headers["x-tidemark-limit"])
        assert bench.upstream.last.messages[-1] == said[-1]
        actions.append((got.headers["x-tidemark-action"], MARK in bench.upstream.last.body.decode()))
    assert ("reused", True) in actions
    assert actions[-1][1]


def test_a_clipped_stream_says_so_in_its_headers(bench: Bench, client: Client) -> None:
    """Promise 9, streams too."""
    got = client.post({"model": "small", "messages": PARALLEL, "max_tokens": 100, "stream": True})
    assert got.status_code == 200
    assert "clipped 1 tool result" in got.headers["x-tidemark-warning"]
    assert bench.upstream.last.json["stream"] is True


def test_passthrough_sends_the_clients_own_request_where_the_summary_fails(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """``on_failure: passthrough``: as the client sent it, so nothing is clipped either, and nothing says it was."""
    client = bench.client(request.node.nodeid, strategy="llm", more=", on_failure: passthrough")

    def script(asked: Received) -> Answer:
        return error(500, "no") if str(asked.messages[0]["content"]).startswith("You summarize") else whole("Fine.")

    bench.upstream.script = script
    said = [*history(8), *PARALLEL[1:]]
    got = client.chat(said)
    assert got.headers["x-tidemark-action"] == "failed"
    assert bench.upstream.last.messages == said
    assert "clipped" not in got.headers["x-tidemark-warning"]
    assert got.headers["x-tidemark-tokens-after"] == got.headers["x-tidemark-tokens-before"]


def test_an_overflow_of_what_can_only_be_clipped_is_clipped_and_replayed(bench: Bench, client: Client) -> None:
    """The upstream's window is smaller than known: no cut is possible, so the replay is clipped."""

    def tight(asked: Received) -> Answer:
        size = 4 * len(asked.body) // 7
        told = f"This model's maximum context length is 600 tokens. However, your messages resulted in {size} tokens."
        return error(400, told, code="context_length_exceeded") if size > 600 else whole("Fits.")

    bench.upstream.script = tight
    said = [*PARALLEL[:3], result("b", long(1, 1000)), result("a", "short")]
    got = client.chat(said)
    assert got.status_code == 200, got.text
    assert len(bench.upstream.received) == 2
    assert "sent again" in got.headers["x-tidemark-warning"]
    assert "clipped 1 tool result" in got.headers["x-tidemark-warning"]


def test_compacting_without_a_conversation_clips_too(client: Client) -> None:
    """``POST /tidemark/compact``: the result is within the budget that was given, by the same rules."""
    for said, summarized in ((PARALLEL, 0), ([*history(8), *PARALLEL[1:]], 16)):
        asked = {"request": {"model": "small", "messages": said}, "max_tokens": 600, "strategy": "extractive"}
        got = client.http.post("/tidemark/compact", json=asked, headers=client.headers())
        assert got.status_code == 200, got.text
        told = got.json()
        assert told["tokens_after"] <= 600
        assert counted(client, json.dumps(told["request"]).encode()) == told["tokens_after"]
        assert told["tokens_before"] == counted(client, json.dumps(asked["request"]).encode())
        assert told["summarized_messages"] == summarized
        assert MARK in told["request"]["messages"][-2]["content"]
        assert told["request"]["messages"][-1] == said[-1]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/messages", "/v1/responses"])
@pytest.mark.parametrize("status", [400, 404, 500])
def test_an_error_without_an_end_is_told_as_an_error(bench: Bench, client: Client, path: str, status: int) -> None:
    """A megabyte of it is read; a gigabyte took as much memory."""
    bench.upstream.script = lambda _: Answer([b"x" * 65_536] * 64, status)
    body = {"model": "small", "max_tokens": 9, "messages": [user("Hello")], "input": "Hello"}
    got = client.http.post(path, json=body, headers=client.headers())
    assert (got.status_code, "error of more than" in got.text) == (502, True)
