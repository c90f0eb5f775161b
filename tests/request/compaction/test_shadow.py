"""Shadow mode through a running server: nothing is changed, and the report says what a compaction would have saved."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import assistant, long, user
from tests.support.scripted import Received, error, says

SHADOW = ", mode: shadow"
TURNS = 36


def talk(client: Client, bench: Bench, turns: int = TURNS, **asked: str) -> Iterator[tuple[dict[str, str], Received]]:
    """Send a growing talk; yield the headers of each answer, and what the upstream got."""
    messages = []
    bench.upstream.script = says("Yes, that is so.")
    for number in range(turns):
        messages.append(user(long(number, 120)))
        got = client.chat(messages, **asked)
        assert got.status_code == 200
        bench.settle()
        yield dict(got.headers), bench.upstream.received[-1]
        messages.append(assistant("Yes, that is so."))


def test_every_request_travels_as_its_client_sent_it(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Also far above the high water; no summary is made or prepared."""
    client = bench.client(request.node.name, more=SHADOW, window=4000)
    for number, (headers, call) in enumerate(talk(client, bench)):
        assert len(json.loads(call.body)["messages"]) == 2 * number + 1
        assert headers["x-tidemark-action"] == "none"
        assert headers["x-tidemark-tokens-after"] == headers["x-tidemark-tokens-before"]


def test_a_client_may_ask_for_it_itself(bench: Bench, request: pytest.FixtureRequest) -> None:
    """``X-Tidemark-Summarize: shadow``, whatever the configuration says; without it, the same talk is compacted."""
    client = bench.client(request.node.name, window=4000)
    assert {headers["x-tidemark-action"] for headers, _ in talk(client, bench, summarize="shadow")} == {"none"}
    client.key += " again"
    assert "compacted" in {headers["x-tidemark-action"] for headers, _ in talk(client, bench)}


def test_a_compaction_by_hand_is_made_all_the_same(bench: Bench, request: pytest.FixtureRequest) -> None:
    """The one request that asks for it is compacted, and the next one travels whole again."""
    client = bench.client(request.node.name, more=SHADOW, window=4000)
    *_, (_, last) = talk(client, bench)
    messages = json.loads(last.body)["messages"]
    assert client.chat(messages, summarize="force").headers["x-tidemark-action"] == "forced"
    bench.settle()
    assert client.chat(messages).headers["x-tidemark-action"] == "none"
    assert json.loads(bench.upstream.received[-1].body)["messages"] == messages


def test_an_upstream_s_refusal_reaches_the_client(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Without Tidemark the request would have failed, too, so it is not made smaller."""
    client = bench.client(request.node.name, more=SHADOW, window=100_000)
    too_long = "This model's maximum context length is 1000 tokens. However, your messages resulted in 3000 tokens."
    bench.upstream.script = lambda _: error(400, too_long, code="context_length_exceeded")
    before = len(bench.upstream.received)
    assert client.chat([user(long(number, 200)) for number in range(9)]).status_code == 400
    assert len(bench.upstream.received) == before + 1
