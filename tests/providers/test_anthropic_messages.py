"""The enforcing fake of Anthropic's Messages refuses what the documents say, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.providers.anthropic_messages import BETA, EnforcingAnthropic
from tests.support.answers import Answer, Received

Json = dict[str, Any]


def ask(api: EnforcingAnthropic, messages: list[Json], beta: str = "", key: str = "", **members: Any) -> Answer:
    """Send a request to the fake."""
    body = {"model": "claude-opus-5-5", "system": "Be brief.", "messages": messages, "max_tokens": 100, **members}
    return api(Received("/v1/messages", json.dumps(body).encode(), {"anthropic-beta": beta, "x-api-key": key}))


def talk(api: EnforcingAnthropic, turns: int) -> list[Json]:
    """A talk in which every answer was made by the fake; a question ends it."""
    messages: list[Json] = [{"role": "user", "content": "Question 0."}]
    for number in range(1, turns + 1):
        piece = ask(api, messages).pieces[0]
        assert isinstance(piece, bytes)
        messages.append({"role": "assistant", "content": json.loads(piece)["content"]})
        messages.append({"role": "user", "content": f"Question {number}."})
    return messages


def test_a_talk_that_only_grows_is_answered() -> None:
    """Cache marks, and a text that is a block, change nothing."""
    api = EnforcingAnthropic()
    messages = talk(api, 3)
    block = {"type": "text", "text": messages[0]["content"], "cache_control": {"type": "ephemeral"}}
    assert ask(api, [{"role": "user", "content": [block]}, *messages[1:]]).status == 200
    assert ask(api, messages, system=[]).status == 400


@pytest.mark.parametrize(
    "change",
    [
        lambda said: [{"role": "user", "content": "Another."}, *said[1:]],
        lambda said: said[2:],
        lambda said: [said[0], {**said[1], "content": said[1]["content"][1:]}, *said[2:]],
    ],
    ids=["an edited message", "messages left out", "a block left out between others"],
)
def test_thinking_behind_another_prefix_is_refused(change: Any) -> None:
    """The message names the block; ``drop_block`` with its beta header drops it in place of that."""
    api = EnforcingAnthropic()
    changed: list[Json] = change(talk(api, 3))
    assert ask(api, changed).status == 400
    assert "bound to a different conversation" in api.refusals[-1]
    dropping = {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
    assert ask(api, changed, thinking=dropping).status == 400
    assert ask(api, changed, BETA, thinking=dropping).status == 200
    assert api.dropped


def test_a_talk_without_thinking_may_change_as_it_likes() -> None:
    """So may one with the thinking of another model; a signature that nobody made is refused."""
    api = EnforcingAnthropic()
    messages = talk(api, 2)
    bare: list[Json] = [
        {**said, "content": said["content"][1:]} if said["role"] == "assistant" else said for said in messages
    ]
    assert ask(api, bare[2:]).status == 200
    assert ask(api, messages[2:], model="claude-opus-6").status == 200
    forged = [{"type": "thinking", "thinking": "Hm.", "signature": "c2lnbmVk"}, {"type": "text", "text": "Fine."}]
    assert ask(api, [messages[0], {"role": "assistant", "content": forged}, messages[2]]).status == 400


def test_calls_and_results_are_pairs() -> None:
    """A call without its result is refused, and a result without its call."""
    api = EnforcingAnthropic()
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]}
    first = {"role": "user", "content": "Read."}
    assert ask(api, [first, call, result]).status == 200
    assert ask(api, [first, call, first]).status == 400
    assert ask(api, [first, result]).status == 400
    assert ask(api, [first, call]).status == 400


def test_manual_thinking_wants_its_block_within_a_tool_loop() -> None:
    """Adaptive thinking does not."""
    api = EnforcingAnthropic()
    call = {"role": "assistant", "content": [{"type": "tool_use", "id": "t1", "name": "read", "input": {}}]}
    result = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}]}
    messages: list[Json] = [{"role": "user", "content": "Read."}, call, result]
    assert ask(api, messages, thinking={"type": "enabled", "budget_tokens": 1024}).status == 400
    assert ask(api, messages, thinking={"type": "adaptive"}).status == 200


def test_a_block_of_another_account_is_refused() -> None:
    """A key is an account; the words are those of a signature that nobody made."""
    api = EnforcingAnthropic()
    messages = talk(api, 2)
    assert ask(api, messages, key="another").status == 400
    assert api.refusals == ["messages.1.content.0: Invalid `signature` in `thinking` block"]
    assert ask(api, messages).status == 200


def test_the_cache_is_told_in_the_usage() -> None:
    """Streamed or not; counting neither reads nor writes, and too many marks are refused there too."""
    api = EnforcingAnthropic()
    marked = {"type": "text", "text": "word " * 1500, "cache_control": {"type": "ephemeral"}}
    messages: list[Json] = [{"role": "user", "content": [marked]}]
    counting = Received("/v1/messages/count_tokens", json.dumps({"model": "m", "messages": messages}).encode(), {})
    assert api(counting).status == 200
    written, read = (usage_of(ask(api, messages, stream=streams)) for streams in (False, True))
    assert written["cache_creation_input_tokens"] == read["cache_read_input_tokens"] > 1024
    assert not written["cache_read_input_tokens"] + read["cache_creation_input_tokens"]
    assert ask(api, [{"role": "user", "content": [marked] * 5}]).status == 400
    assert "A maximum of 4 blocks with cache_control" in api.refusals[-1]


def usage_of(answer: Answer) -> Json:
    """The usage at the beginning of an answer."""
    piece = answer.pieces[0]
    assert isinstance(piece, bytes)
    begun = json.loads(piece[piece.index(b"{") :])
    usage: Json = begun.get("message", begun)["usage"]
    return usage
