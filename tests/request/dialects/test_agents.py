"""Agents: one message of the user and hundreds of tool rounds, compacted inside their only turn, again and again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from tests.request.compaction.test_compaction import summaries
from tests.request.compaction.test_summarizers import is_summary_call, upstream_with
from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, long, system, user
from tests.support.scripted import Received, says

ASKED = "Find out why the nightly import drops rows, mend it in loader.py, and never touch the schema of orders."
NARRATIVE = "Several files were read one after another, and each of them was found to be as it should be so far."
STRATEGIES = ["extractive", "hybrid"]
"""Those that carry the open request themselves; the text of ``llm`` is the model's alone, which is asked for it."""


def calls(*ids: str, text: str | None = None) -> Said:
    """An assistant that asks for tools, with or without a word."""
    made = [{"id": one, "type": "function", "function": {"name": "read", "arguments": '{"n": 1}'}} for one in ids]
    return {"role": "assistant", "content": text, "tool_calls": made}


def result(call: str, content: Any) -> Said:
    """What a tool gave."""
    return {"role": "tool", "tool_call_id": call, "content": content}


def whole_pairs(sent: list[Said]) -> bool:
    """Every result stands after its call with only results between, and every call before the end has its own."""
    open_calls: set[str] = set()
    for said in sent:
        if said["role"] == "tool":
            if said["tool_call_id"] not in open_calls:
                return False
            open_calls.discard(said["tool_call_id"])
        else:
            if open_calls:
                return False
            open_calls = {call["id"] for call in said.get("tool_calls") or ()}
    return True


def forwarded(bench: Bench) -> Received:
    """The newest request that is the client's; a summary may be asked for in the background after it."""
    return next(one for one in reversed(bench.upstream.received) if not is_summary_call(one))


def agent(bench: Bench, request: pytest.FixtureRequest, strategy: str) -> Client:
    """A client whose summaries are written by a strategy; its models never mention the request."""
    bench.upstream.script = upstream_with(says(NARRATIVE), "Go on.")
    return bench.client(request.node.nodeid, strategy=strategy)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_hundreds_of_rounds_keep_the_open_request_word_for_word(
    bench: Bench, request: pytest.FixtureRequest, strategy: str
) -> None:
    """300 rounds: several compactions in one turn, each summary made of the one before, none loses what is asked."""
    client = agent(bench, request, strategy)
    said: list[Said] = [system("You are an agent."), user(ASKED)]
    actions = []
    for number in range(300):
        said += [calls(f"c{number}"), result(f"c{number}", long(number, 60))]
        if number % 2 and number < 290:
            continue
        got = client.chat(said)
        assert got.status_code == 200, got.text
        assert int(got.headers["x-tidemark-tokens-after"]) <= int(got.headers["x-tidemark-limit"])
        actions.append(got.headers["x-tidemark-action"])
        sent = forwarded(bench).messages
        assert sent[0] == said[0]
        assert sent[-1] == said[-1]
        assert whole_pairs(sent)
        assert ASKED in (summaries(forwarded(bench))[0] if actions[-1] != "none" else str(sent[1]["content"]))
    assert actions.count("compacted") >= 5
    first = actions.index("compacted")
    assert set(actions[first:]) == {"compacted", "reused"}
    texts = {text for one in bench.upstream.received if not is_summary_call(one) for text in summaries(one)}
    assert len(texts) == actions.count("compacted")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_parallel_calls_mixed_with_text_and_results_out_of_order(
    bench: Bench, request: pytest.FixtureRequest, strategy: str
) -> None:
    """Each round calls three tools beside a word or without one; results come in another order; none is torn off."""
    client = agent(bench, request, strategy)
    said: list[Said] = [system("You are an agent."), user(ASKED)]
    actions = []
    for number in range(60):
        ids = [f"call_{number}_{i}" for i in range(3)]
        said.append(calls(*ids, text=f"Looking at part {number}." if number % 2 else None))
        turned = ids[number % 3 :] + ids[: number % 3]
        said += [result(one, long(10 * number + place, 40)) for place, one in enumerate(reversed(turned))]
        got = client.chat(said)
        assert got.status_code == 200, got.text
        actions.append(got.headers["x-tidemark-action"])
        sent = forwarded(bench).messages
        assert whole_pairs(sent)
        assert sent[-1] == said[-1]
        kept = [one for one in sent if one["role"] != "system"]
        assert kept == said[len(said) - len(kept) :], "a suffix of what was said, as it was said"
    assert actions.count("compacted") >= 3
    assert ASKED in summaries(forwarded(bench))[0]


@pytest.mark.parametrize("end", ["no result", "one of two results", "words and a call"])
def test_a_call_without_its_result_at_the_end_stays(bench: Bench, client: Client, end: str) -> None:
    """It is the newest turn, open: the call is forwarded as it is, and so are the results that are there."""
    said: list[Said] = [user(ASKED)]
    for number in range(40):
        said += [calls(f"c{number}"), result(f"c{number}", long(number, 60))]
    open_turn = {
        "no result": [calls("x", "y")],
        "one of two results": [calls("x", "y"), result("y", long(99, 30))],
        "words and a call": [calls("x", text="One more look.")],
    }[end]
    got = client.chat([*said, *open_turn])
    assert got.status_code == 200, got.text
    assert got.headers["x-tidemark-action"] == "compacted"
    assert forwarded(bench).messages[-len(open_turn) :] == open_turn
    assert ASKED in summaries(forwarded(bench))[0]
    if end == "one of two results":
        later = client.chat([*said, *open_turn, result("x", "late"), calls("z"), result("z", "ok")])
        assert later.headers["x-tidemark-action"] == "reused"
        assert forwarded(bench).messages[-5:] == [*open_turn, result("x", "late"), calls("z"), result("z", "ok")]


def test_ids_that_are_used_again_in_every_round_pair_with_their_own_call(bench: Bench, client: Client) -> None:
    """Some servers number the calls of each message anew."""
    said: list[Said] = [user(ASKED)]
    for number in range(50):
        said += [
            calls("call_0", "call_1"),
            result("call_1", long(number, 50)),
            result("call_0", long(1000 + number, 50)),
        ]
        got = client.chat(said)
        assert got.status_code == 200, got.text
        assert whole_pairs(forwarded(bench).messages)
    assert ASKED in summaries(forwarded(bench))[0]


def test_a_loop_that_ends_and_goes_on_with_another_request(bench: Bench, client: Client) -> None:
    """When the user asks again, the summaries after that carry the new request, and the old one is history."""
    said: list[Said] = [user(ASKED)]
    second = "Thanks. Now write a test for the loader that feeds it an empty file."
    for turn in range(2):
        for number in range(50):
            one = f"t{turn}c{number}"
            said += [calls(one), result(one, long(100 * turn + number, 60))]
            assert client.chat(said).status_code == 200
        if not turn:
            said += [assistant("It is mended."), user(second)]
    lines = summaries(forwarded(bench))[0].splitlines()
    assert [line for line in lines if line.startswith("Open request:")] == [f"Open request: {second}"]


def test_between_compactions_an_agents_prefix_is_frozen(bench: Bench, client: Client) -> None:
    """Promise 5 within one turn: what is reused begins with the bytes of the request before it."""
    said: list[Said] = [user(ASKED)]
    actions = []
    for number in range(80):
        said += [calls(f"c{number}"), result(f"c{number}", long(number, 60))]
        actions.append(client.chat(said).headers["x-tidemark-action"])
    bodies = [one.body.split(b'],"max_tokens"')[0] for one in bench.upstream.received]
    pairs = [(before, after) for (before, after), action in zip(pairwise(bodies), actions[1:], strict=True)]
    frozen = [after.startswith(before) for (before, after) in pairs]
    assert all(one or action == "compacted" for one, action in zip(frozen, actions[1:], strict=True))
    assert actions.count("reused") > 4 * actions.count("compacted")
