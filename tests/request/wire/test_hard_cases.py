"""Compaction where it is hard: rules that stray in, other windows, broken ids, summaries that fail twice."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, history, long, system, user
from tests.support.scripted import says
from tidemark.core.planning.budget import CompactionPolicy
from tidemark.store.embedded.server import EmbeddedValkey

TWO_WINDOWS = """
model_list:
  - model_name: big
    litellm_params: {{model: openai/big, api_base: "{base}"}}
    model_info: {{max_input_tokens: 20000, max_output_tokens: 200}}
  - model_name: small
    litellm_params: {{model: openai/small, api_base: "{base}"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
compaction:
  defaults: {{strategy: extractive, max_summary_tokens: 4000, retention_tokens: 100, retention_ratio: 0.01}}
"""


def test_system_messages_inside_the_prefix_are_counted_as_they_are_sent(bench: Bench, client: Client) -> None:
    """What the headers say is what is forwarded, in the turn that compacts and in every one after it."""
    said: list[Said] = [user("Begin.")]
    for number in range(12):
        said += [system(long(100 + number, 200)), assistant(long(number, 30)), user(long(50 + number, 30))]
    actions = []
    for number in range(4):
        got = client.chat(said)
        assert got.status_code == 200
        counted = client.http.post("/tidemark/count", content=bench.upstream.last.body).json()
        assert counted["input_tokens"] == int(got.headers["x-tidemark-tokens-after"])
        assert counted["input_tokens"] <= int(got.headers["x-tidemark-limit"])
        actions.append(got.headers["x-tidemark-action"])
        said += [assistant("Hello there."), user(f"Next {number}.")]
    assert actions[1:] == ["reused"] * 3


def test_a_rule_that_was_never_summarized_is_never_dropped(bench: Bench, client: Client) -> None:
    """System messages are no part of the identity: another one in the place of a summarized one is kept."""
    said: list[Said] = [user("Begin.")]
    for number in range(12):
        said += [system(long(100 + number, 200)), assistant(long(number, 30)), user(long(50 + number, 30))]
    assert client.chat(said).headers["x-tidemark-action"] == "compacted"
    said[1] = system("A NEW RULE")
    client.chat([*said, assistant("Hello there."), user("And now?")])
    assert {"role": "system", "content": "A NEW RULE"} in bench.upstream.last.messages


def test_force_leaves_what_is_within_the_retention(bench: Bench, client: Client) -> None:
    """FR-2.2.1: a compaction by hand keeps what an automatic one keeps, and says so where nothing else is there."""
    said = [*history(1, 300), user("Now?")]
    got = client.chat(said, summarize="force", retention_tokens="5000")
    assert got.headers["x-tidemark-action"] == "none"
    assert "nothing to summarize" in got.headers["x-tidemark-warning"]
    assert bench.upstream.last.messages == said
    got = client.chat(said, summarize="force", retention_tokens="10")
    assert got.headers["x-tidemark-action"] == "forced"
    assert int(got.headers["x-tidemark-tokens-after"]) < int(got.headers["x-tidemark-tokens-before"])


def test_a_forced_summary_that_saves_nothing_says_so(client: Client) -> None:
    """FR-5.4.2: done, because it was asked for, and with a warning."""
    got = client.chat([user("a"), assistant("b"), user("c")], summarize="force", retention_tokens="0")
    assert got.headers["x-tidemark-action"] == "forced"
    assert "got longer" in got.headers["x-tidemark-warning"]


def test_a_summary_for_a_larger_window_does_not_lock_a_smaller_one_out(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """FR-5.3.1: what is too long for the model at hand is made anew, shorter."""
    client = bench.client(request.node.nodeid, config=TWO_WINDOWS)
    said = [*history(200, 100), user("Now?")]
    first = client.chat(said, model="big", summarize="force", retention_tokens="10")
    assert int(first.headers["x-tidemark-tokens-after"]) > 2000
    second = client.chat(said, model="small")
    assert second.status_code == 200, second.text
    assert int(second.headers["x-tidemark-tokens-after"]) <= int(second.headers["x-tidemark-limit"])


@pytest.mark.parametrize("answered", [None, "another"])
def test_results_with_broken_ids_are_not_torn_from_their_call(
    bench: Bench, client: Client, answered: str | None
) -> None:
    """Promise 3: a result without an id, or with a wrong one, is never made an orphan by us."""
    call = {"id": "mine", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said: list[Said] = []
    for number in range(14):
        result: dict[str, Any] = {"role": "tool", "content": long(number, 80)}
        said += [user(f"Do {number}."), {"role": "assistant", "content": None, "tool_calls": [call]}]
        said += [result | ({"tool_call_id": answered} if answered else {}), assistant(f"Did {number}.")]
        client.chat([*said, user("Now?")])
        sent = bench.upstream.last.messages
        for before, after in pairwise(sent):
            assert after["role"] != "tool" or before.get("tool_calls")


def test_a_store_that_is_gone_needs_no_model_to_summarize(
    bench: Bench, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """As docs/operations.md says: compacted deterministically from the request alone, the same bytes each time."""
    with EmbeddedValkey(tmp_path / "own") as server:
        client = bench.client(request.node.nodeid, store=server.url, strategy="llm")
    bodies = set()
    for _ in range(3):
        got = client.chat([*history(18), user("Now?")])
        assert got.headers["x-tidemark-store"] == "degraded"
        assert got.headers["x-tidemark-strategy"] == "extractive"
        bodies.add(bench.upstream.last.body)
    assert len(bench.upstream.received) == 3
    assert len(bodies) == 1


def test_a_reply_length_beyond_the_window_does_not_refuse_a_greeting(client: Client) -> None:
    """Defaults such as 4096 before a window of 2,000 are common: the model's longest reply is kept free, no more."""
    got: httpx.Response = client.post({"model": "small", "messages": [user("hi")], "max_tokens": 4096})
    assert got.status_code == 200
    assert got.headers["x-tidemark-limit"] == "1700"


def test_an_answer_asked_for_twice_has_two_conversations(bench: Bench, client: Client) -> None:
    """A regeneration parts where its reply does; the id that is told leads to it."""
    ids = []
    for answer in ("one", "two"):
        bench.upstream.script = says(answer)
        ids.append(client.chat([user("Tell me.")]).headers["x-tidemark-conversation"])
    assert ids[0] != ids[1]
    bench.upstream.script = says("on")
    for which, answer in enumerate(("one", "two")):
        got = client.chat([user("Tell me."), assistant(answer), user("Go on.")])
        assert got.headers["x-tidemark-conversation"] == ids[which]


def test_the_default_policy_is_the_one_of_the_design() -> None:
    """The defaults of docs/configuration.md, in the core's words."""
    policy = CompactionPolicy()
    found = (policy.threshold, policy.prepare, policy.target, policy.retention_tokens, policy.retention_ratio)
    assert found == (0.95, 0.70, 0.45, 1000, 0.25)
    assert (policy.min_tokens, policy.min_gain, policy.on_failure, policy.strategy) == (
        2000,
        0.1,
        "deterministic",
        "hybrid",
    )
