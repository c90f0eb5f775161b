"""Replies that come in pieces of every kind: legacy and parallel calls, audio, parts."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from tidemark.dialects.chat.reply import fold_stream

FINISHED = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'


def streamed(*deltas: dict[str, Any]) -> dict[str, Any]:
    """The message that a stream of these deltas says."""
    chunks = [json.dumps({"choices": [{"index": 0, "delta": delta}]}).encode() for delta in deltas]
    data = b"".join(b"data: " + chunk + b"\n\n" for chunk in chunks)
    message = fold_stream(data + FINISHED, json.loads).message
    assert message is not None
    said: dict[str, Any] = json.loads(message.raw)
    return said


def test_a_legacy_call_keeps_its_name() -> None:
    """``function_call`` comes in pieces as ``tool_calls`` do; only the first has the name."""
    opening = {"role": "assistant", "content": None, "function_call": {"name": "get", "arguments": ""}}
    said = streamed(opening, *[{"function_call": {"arguments": piece}} for piece in ('{"a"', ":1}")])
    assert said["function_call"] == {"name": "get", "arguments": '{"a":1}'}


def call(name: str, arguments: str = "{}", **members: Any) -> dict[str, Any]:
    """A delta with a piece of one call."""
    function = {"name": name, "arguments": arguments} if name else {"arguments": arguments}
    return {"tool_calls": [{**members, "function": function}]}


@pytest.mark.parametrize(
    "deltas",
    [
        [call("f", "{", id="a"), call("", "}", id="a"), call("g", id="b")],
        [call("f", "{", id="a"), call("", "}"), call("g", id="b")],
        [call("f", "{", id="a", index=0), call("", "}", index=0), call("g", id="b", index=0)],
        [call("f", "{", id="a", index=0), call("g", id="b", index=0), call("", "}", id="a", index=0)],
        [call("f", "{", id="a", index=0), call("", "}", id="x", index=0), call("g", id="b", index=1)],
        [call("f", "{", id="a", index=0), call("", "}", id="", index=0), call("g", id="b", index=0)],
    ],
    ids=["no index", "no index, id once", "index 0 for all", "taking turns", "an id for each piece", "empty id"],
)
def test_parallel_calls_are_told_apart_by_their_ids(deltas: list[dict[str, Any]]) -> None:
    """Gemini's and others' OpenAI endpoints leave ``index`` out or say 0 for every call."""
    said = [(made["id"], made["function"]) for made in streamed(*deltas)["tool_calls"]]
    assert said == [("a", {"name": "f", "arguments": "{}"}), ("b", {"name": "g", "arguments": "{}"})]


def test_calls_without_index_and_id_are_told_apart_by_their_names() -> None:
    """Ollama's own form: each call comes whole, and its arguments may be an object."""
    deltas = [call("f"), {"tool_calls": [{"function": {"name": "g", "arguments": {"a": 1}}}]}]
    said = streamed(*deltas)["tool_calls"]
    assert [(made["type"], made["function"]) for made in said] == [
        ("function", {"name": "f", "arguments": "{}"}),
        ("function", {"name": "g", "arguments": {"a": 1}}),
    ]


def test_a_custom_call_and_members_unknown_here_come_out_whole() -> None:
    """``custom`` has ``input`` for arguments; Gemini signs its calls in ``extra_content``."""
    opening = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "sh", "input": "l"}}
    pieces = [opening, {"index": 0, "custom": {"input": "s"}, "extra_content": {"google": {"signature": "x"}}}]
    (said,) = streamed(*[{"tool_calls": [piece]} for piece in pieces])["tool_calls"]
    assert said == {
        "id": "a",
        "type": "custom",
        "custom": {"name": "sh", "input": "ls"},
        "extra_content": {"google": {"signature": "x"}},
    }


def test_audio_and_lists_come_out_whole() -> None:
    """Strings inside an object are joined, lists are extended."""
    said = streamed(
        {"role": "assistant", "audio": {"id": "a", "data": "AA"}},
        {"role": "", "audio": {"id": "a", "transcript": "he"}, "content": [{"type": "text", "text": "one"}]},
        {"audio": {"transcript": "llo", "data": "BB", "expires_at": 7}, "content": [{"type": "text", "text": "two"}]},
    )
    assert said["audio"] == {"id": "a", "data": "AABB", "transcript": "hello", "expires_at": 7}
    assert said["content"] == [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]


def test_text_beside_a_list_is_a_part_of_it() -> None:
    """Mistral streams its thinking as parts and the answer as strings."""
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}
    said = streamed({"content": ""}, {"content": [thinking]}, {"content": "a"}, {"content": "b"})
    assert said["content"] == [thinking, {"type": "text", "text": "ab"}]
    assert streamed({"content": "a"}, {"content": [thinking]})["content"] == [{"type": "text", "text": "a"}, thinking]


def test_a_character_cut_in_two_is_one_again() -> None:
    """A server that cuts UTF-16 between two chunks; each half alone is refused by a strict decoder."""
    data = b"".join(
        b'data: {"choices": [{"delta": {"content": "%s"}}]}\n\n' % half for half in (b"\\ud83d", b"\\ude00")
    )
    message = fold_stream(data + FINISHED, msgspec.json.decode).message
    assert message is not None
    assert message.text == "\N{GRINNING FACE}"


def test_a_part_that_comes_in_pieces_is_one() -> None:
    """OpenRouter's reasoning: pieces of one index; Claude takes each text with its signature only."""
    text = {"type": "reasoning.text", "format": "anthropic-claude-v1", "index": 0}
    pieces = [{**text, "text": "Hm, "}, {**text, "text": "yes."}, {**text, "text": "", "signature": "s"}]
    sealed = {"type": "reasoning.encrypted", "data": "x", "index": 1}
    said = streamed(*[{"reasoning_details": [piece]} for piece in (*pieces, sealed)])
    assert said["reasoning_details"] == [{**text, "text": "Hm, yes.", "signature": "s"}, sealed]


def test_thinking_that_a_signature_repeats_is_there_once() -> None:
    """In litellm's streams the piece with the signature has the whole text again."""
    text = {"type": "thinking", "thinking": "Hm, "}
    signed = {"type": "thinking", "thinking": "Hm, yes.", "signature": "s"}
    for last in (signed, {**signed, "thinking": ""}):
        pieces = [text, {**text, "thinking": "yes."}, last, {**text, "signature": "t"}]
        said = streamed(*[{"thinking_blocks": [piece]} for piece in pieces])
        assert said["thinking_blocks"] == [signed, {**text, "signature": "t"}]


@pytest.mark.parametrize(
    "parts",
    [
        [{"type": "image_url", "index": 0, "image_url": {"url": f"data:image/png;base64,AAA{n}"}} for n in range(2)],
        [{"type": "url_citation", "index": 0, "url_citation": {"url": f"http://{n}", "title": "A"}} for n in range(2)],
        [{"type": "reasoning.encrypted", "index": 0, "id": f"rs_{n}", "data": f"ENC{n}"} for n in range(2)],
        [{"type": "reasoning.text", "index": 0, "id": f"rs_{n}", "text": f"Hm{n}"} for n in range(2)],
    ],
)
def test_parts_that_are_no_pieces_of_one_another_stay_apart(parts: list[dict[str, Any]]) -> None:
    """An index alone says nothing: some providers begin at 0 in each chunk."""
    assert streamed(*[{"parts": [part]} for part in parts])["parts"] == parts
