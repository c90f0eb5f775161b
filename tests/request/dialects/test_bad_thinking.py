"""Thinking that a client has spoilt, lost or brought along: a warning or the provider's own words, and it goes on."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.providers.anthropic_messages import THINKING, EnforcingAnthropic
from tests.request.conftest import Bench
from tests.request.dialects.test_bound_thinking import CHECKING, OLD, READ, Talker, reading
from tests.request.talk import long
from tests.support.answers import Received

Json = dict[str, Any]
WARNING = "the upstream refused thinking whose signature is not valid; sent again without it"
CHANGED = "the upstream refused thinking that stood behind another prefix; sent again without it"


@pytest.fixture
def api(bench: Bench) -> EnforcingAnthropic:
    """Anthropic's API behind the bench."""
    bench.upstream.script = EnforcingAnthropic()
    return bench.upstream.script


@pytest.fixture
def talker_of(bench: Bench, api: EnforcingAnthropic, request: pytest.FixtureRequest) -> Callable[..., Talker]:
    """Makes a client of a Tidemark of its own."""
    assert bench.upstream.script is api
    return lambda config=CHECKING, **settings: Talker(bench.client(request.node.nodeid, config=config, **settings))


def in_loop(talker: Talker, steps: int) -> None:
    """Go on in a tool loop; every step must be answered."""
    for number in range(steps):
        answer = talker.say(results_for(talker, number) or long(number, 40))
        assert answer.status_code == 200, answer.text


def results_for(talker: Talker, number: int) -> list[Json]:
    """A result of each call of the newest answer."""
    newest = talker.messages[-1]["content"] if talker.messages else []
    calls = [block for block in newest if "input" in block]
    return [{"type": "tool_result", "tool_use_id": call["id"], "content": long(number, 40)} for call in calls]


def warnings(talker: Talker) -> list[str]:
    """The warnings of thinking, of each answer that has one."""
    texts = [answer.headers.get("x-tidemark-warning", "") for answer in talker.answers]
    return [text for text in texts if "thinking" in text]


SPOILS: dict[str, Callable[[Json], Json]] = {
    "its text was cut": lambda block: {**block, "thinking": block["thinking"][:2]},
    "its signature was cut": lambda block: {**block, "signature": block["signature"][:20]},
    "its stream ended before its signature": lambda block: {**block, "signature": ""},
    "its signature was left out": lambda block: {name: block[name] for name in ("type", "thinking")},
    "it is sealed, and was cut": lambda block: {"type": "redacted_thinking", "data": block["signature"][:20]},
}


@pytest.mark.parametrize("config", [CHECKING, OLD], ids=["a checking model", "an old model"])
@pytest.mark.parametrize("has_loop", [False, True], ids=["between turns", "in a tool loop"])
@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_a_spoilt_block_leaves_once_with_a_warning(
    api: EnforcingAnthropic,
    talker_of: Callable[..., Talker],
    spoil: Callable[[Json], Json],
    config: str,
    *,
    has_loop: bool,
) -> None:
    """Later turns, and those behind compactions, leave it out at once."""
    talker, api.checks = talker_of(config), config != OLD
    if has_loop:
        talker.members["tools"], api.say = [READ], reading(60)
    in_loop(talker, 3)
    talker.messages[3]["content"][0] = spoil(talker.messages[3]["content"][0])
    in_loop(talker, 34)
    assert len(api.refusals) == 1
    assert warnings(talker) == [WARNING]
    assert "compacted" in talker.actions


def test_sealed_thinking_travels_as_any_other(
    bench: Bench, api: EnforcingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """A block whose text nobody may read is bound to its prefix, too, and leaves at a compaction."""
    api.say = lambda body: [{"type": "redacted_thinking"}, {"type": "text", "text": f"Fine, {len(body['messages'])}."}]
    talker = talker_of()
    talker.talk(40)
    while talker.actions[-1] == "compacted":  # the request of a compaction has none left
        talker.talk(1)
    assert api.refusals == []
    assert talker.actions.count("compacted") >= 2
    assert b'"redacted_thinking"' in bench.upstream.last.body


def test_thinking_of_another_model_is_left_to_the_provider(
    bench: Bench, api: EnforcingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """It drops what a model cannot read, without a refusal, so it travels where nothing before it has changed."""
    talker = talker_of(window=50_000)
    talker.talk(2)
    body = {"model": "claude-fable-5-1", "messages": [{"role": "user", "content": "Go."}], "max_tokens": 100}
    foreign = api(Received("/v1/messages", json.dumps(body).encode(), {"authorization": f"Bearer {talker.client.key}"}))
    piece = foreign.pieces[0]
    assert isinstance(piece, bytes)
    talker.messages[3]["content"][0] = json.loads(piece)["content"][0]
    talker.talk(3, start=2)
    assert warnings(talker) == []
    assert b"claude-fable" not in bench.upstream.last.body  # its name is within the signature
    assert bench.upstream.last.json["messages"][3]["content"][0] == talker.messages[3]["content"][0]


@pytest.mark.parametrize("window", [2000, 50_000])
@pytest.mark.parametrize("has_loop", [False, True], ids=["between turns", "in a tool loop"])
def test_a_client_may_drop_all_of_its_thinking(
    api: EnforcingAnthropic, talker_of: Callable[..., Talker], window: int, *, has_loop: bool
) -> None:
    """Adaptive thinking demands none back, and nothing stands behind what left."""
    talker = talker_of(window=window)
    if has_loop:
        talker.members["tools"], api.say = [READ], reading(40)
    for number in range(14):
        in_loop(talker, 1)
        content = talker.messages[-1]["content"]
        talker.messages[-1]["content"] = [block for block in content if block["type"] not in THINKING]
        assert number < 14
    assert api.refusals == []
    assert warnings(talker) == []


@pytest.mark.parametrize("has_loop", [False, True], ids=["between turns", "in a tool loop"])
def test_a_client_that_drops_some_of_its_thinking_loses_what_stands_behind_it(
    bench: Bench, api: EnforcingAnthropic, talker_of: Callable[..., Talker], *, has_loop: bool
) -> None:
    """That is bound to what left. The provider refuses it once, and new thinking stays."""
    talker = talker_of(window=50_000)
    if has_loop:
        talker.members["tools"], api.say = [READ], reading(40)
    in_loop(talker, 6)
    talker.messages[5]["content"] = talker.messages[5]["content"][1:]
    in_loop(talker, 4)
    assert len(api.refusals) == 1
    assert warnings(talker) == [CHANGED]
    kept = [said["content"][0]["type"] in THINKING for said in bench.upstream.last.json["messages"][1::2]]
    assert kept == [True, True, False, False, False, False, True, True, True]


def test_manual_thinking_that_a_client_drops_in_a_tool_loop_is_refused_in_the_providers_words(
    api: EnforcingAnthropic, talker_of: Callable[..., Talker]
) -> None:
    """Nobody can give it back. A question ends the loop, and the talk goes on."""
    talker = talker_of()
    talker.members = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "tools": [READ]}
    api.say = reading(40)
    in_loop(talker, 2)
    talker.messages[-1]["content"] = talker.messages[-1]["content"][1:]
    refused = talker.say(results_for(talker, 3))
    assert refused.status_code == 400
    assert "must start with a thinking block" in refused.json()["error"]["message"]
    results = talker.messages.pop()["content"]
    talker.messages.append({"role": "user", "content": results})
    talker.messages.append({"role": "assistant", "content": [{"type": "text", "text": "I stopped."}]})
    api.say = reading(0)
    talker.talk(12)
    assert len(api.refusals) == 1
