"""The enforcing fake of chat completions refuses what the documents say, and nothing else."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.providers.openai_chat import ANY_SIGNATURE, EnforcingChat
from tests.support.answers import Answer, Received

Json = dict[str, Any]
USER = {"role": "user", "content": "Go."}


def call(*names: str) -> Json:
    """An answer that calls tools."""
    calls = [{"id": name, "type": "function", "function": {"name": "read", "arguments": "{}"}} for name in names]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(name: str) -> Json:
    """The result of a call."""
    return {"role": "tool", "tool_call_id": name, "content": "x"}


def ask(api: EnforcingChat, messages: list[Json], model: str = "gpt-5.5", **members: Any) -> Answer:
    """Send a request to the fake."""
    body = {"model": model, "messages": messages, **members}
    return api(Received("/v1/chat/completions", json.dumps(body).encode(), {}))


def message_in(answer: Answer) -> Json:
    """The message of an answer."""
    piece = answer.pieces[0]
    assert isinstance(piece, bytes)
    message: Json = json.loads(piece)["choices"][0]["message"]
    return message


def test_calls_and_their_results_are_pairs_that_stand_together() -> None:
    """Parallel calls too, in any order of their results."""
    api = EnforcingChat()
    assert ask(api, [USER, call("a", "b"), result("b"), result("a"), USER]).status == 200
    assert api.refusals == []


@pytest.mark.parametrize(
    ("messages", "words"),
    [
        ([], "empty array"),
        ([USER, call("a")], "did not have response messages: a"),
        ([USER, call("a", "b"), result("a"), USER], "did not have response messages: b"),
        ([USER, call("a"), USER, result("a")], "did not have response messages: a"),
        ([USER, result("a")], "must be a response to a preceeding message"),
        ([USER, call("a"), result("a"), result("a")], "Duplicate value for 'tool_call_id'"),
        ([USER, call("a", "a"), result("a")], "Duplicate value for 'tool_call_id'"),
        ([USER, {"role": "assistant", "content": None}], "expected a string, got null"),
        ([USER, {"role": "assistant", "content": "x", "tool_calls": []}], "empty array"),
        ([{"role": "robot", "content": "x"}], "Invalid value: 'robot'"),
    ],
)
def test_other_messages_are_refused(messages: list[Json], words: str) -> None:
    """The words are those of the provider."""
    api = EnforcingChat()
    assert ask(api, messages).status == 400
    assert words in api.refusals[-1]


def test_deepseek_wants_the_reasoning_of_calls_back() -> None:
    """That of an answer without calls may leave, and other models want none."""
    calls = {"content": None, "thought": "Hm.", "tool_calls": [{"name": "read", "arguments": "{}"}]}
    api = EnforcingChat(
        say=lambda body: calls if len(body["messages"]) == 1 else {"content": "Fine.", "thought": "So."}
    )
    first = message_in(ask(api, [USER], "deepseek-v4-pro"))
    messages = [USER, first, result(first["tool_calls"][0]["id"])]
    second = message_in(ask(api, messages, "deepseek-v4-pro"))
    assert (first["reasoning_content"], second["reasoning_content"]) == ("Hm.", "So.")
    plain = {name: value for name, value in second.items() if name != "reasoning_content"}
    assert ask(api, [*messages, plain, USER], "deepseek-v4-pro").status == 200
    cut = [USER, {name: value for name, value in first.items() if name != "reasoning_content"}, *messages[2:]]
    assert ask(api, cut, "deepseek-v4-pro").status == 400
    assert "reasoning_content" in api.refusals[-1]
    assert ask(api, cut).status == 200
    for thought, status in (("Before. Hm.", 200), ("Hm. Behind.", 400), ("m.", 400), (None, 400)):
        changed = [USER, {**first, "reasoning_content": thought}, *messages[2:]]
        assert ask(api, changed, "deepseek-v4-pro").status == status, thought


def test_deepseek_wants_an_empty_reasoning_back() -> None:
    """As that of an answer that calls tools at once."""
    calls = {"content": None, "tool_calls": [{"name": "read", "arguments": "{}"}]}
    api = EnforcingChat(say=lambda body: calls if len(body["messages"]) == 1 else {"content": "Fine."})
    first = message_in(ask(api, [USER], "deepseek-v4-pro"))
    assert first["reasoning_content"] == ""
    messages = [USER, first, result(first["tool_calls"][0]["id"])]
    assert ask(api, messages, "deepseek-v4-pro").status == 200
    del first["reasoning_content"]
    assert ask(api, messages, "deepseek-v4-pro").status == 400


def test_signed_thinking_is_bound_to_what_stood_before_it() -> None:
    """Other models do not look at it, and it may leave."""
    api = EnforcingChat()
    first = message_in(ask(api, [USER], "claude-opus-5-5"))
    assert ask(api, [USER, first, USER], "claude-opus-5-5").status == 200
    assert ask(api, [{**USER, "content": "Stop."}, first, USER], "claude-opus-5-5").status == 400
    assert "bound to a different conversation" in api.refusals[-1]
    assert ask(api, [{**USER, "content": "Stop."}, first, USER], "gpt-5.5").status == 200
    block = {**first["thinking_blocks"][0], "thinking": "H"}
    assert ask(api, [USER, {**first, "thinking_blocks": [block]}, USER], "claude-opus-5-5").status == 400


def test_a_stream_says_what_a_whole_answer_says() -> None:
    """In the pieces of OpenAI's streams."""
    calls = {"content": "So.", "thought": "Hm.", "tool_calls": [{"name": "read", "arguments": "{}"}]}
    api = EnforcingChat(say=lambda _: calls)
    pieces = ask(api, [USER], "deepseek-v4-pro", stream=True, stream_options={"include_usage": True}).pieces
    events = [json.loads(piece[6:]) for piece in pieces if isinstance(piece, bytes) and piece.startswith(b"data: {")]
    deltas = [event["choices"][0]["delta"] for event in events if event["choices"]]
    assert "".join(delta.get("content") or "" for delta in deltas) == "So."
    assert [delta["reasoning_content"] for delta in deltas if "reasoning_content" in delta] == ["Hm."]
    assert events[-2]["choices"][0]["finish_reason"] == "tool_calls"
    assert events[-1]["usage"]["total_tokens"]


def test_gemini_wants_the_first_call_of_each_step_signed_since_the_newest_question() -> None:
    """Earlier turns may be unsigned, a word takes a lost signature's place, and a call follows a user or a result."""
    api = EnforcingChat(say=lambda _: {"content": None, "tool_calls": [{"name": "read", "arguments": "{}"}] * 2})
    said = message_in(ask(api, [USER], "gemini-3-pro"))
    first, second = said["tool_calls"]
    assert "extra_content" not in second
    results = [result(first["id"]), result(second["id"])]
    bare = {name: value for name, value in first.items() if name != "extra_content"}
    unsigned = {**said, "tool_calls": [bare, second]}
    word = {**bare, "extra_content": {"google": {"thought_signature": ANY_SIGNATURE}}}
    end: list[Json] = [{"role": "assistant", "content": "Done."}, USER]
    for messages, status in (
        ([USER, said, *results], 200),
        ([USER, unsigned, *results], 400),
        ([USER, {**said, "tool_calls": [word, second]}, *results], 200),
        ([USER, unsigned, *results, *end], 200),
        ([{"role": "system", "content": "Be brief."}, said, *results], 400),
    ):
        assert ask(api, messages, "gemini-3-pro").status == status


def test_kimi_wants_the_reasoning_of_calls_back_whatever_it_says() -> None:
    """The member must be there; an empty text will do."""
    api = EnforcingChat()
    assert ask(api, [USER, call("a"), result("a")], "kimi-k2.5").status == 400
    assert ask(api, [USER, {**call("a"), "reasoning_content": ""}, result("a")], "kimi-k2.5").status == 200
