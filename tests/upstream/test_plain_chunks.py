"""Plain text goes past litellm's steps of a stream, and the answer is the same byte for byte."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.upstream import anthropic
from tests.upstream.callers import calling
from tests.upstream.test_quiet_calls import MADE_UP, OLLAMA_STREAM, answering, gemini, provider
from tests.upstream.test_quiet_calls import events as lines_of
from tidemark.core.conversation.messages import JsonValue
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.upstream import plain_chunks
from tidemark.upstream.litellm import load
from tidemark.upstream.upstream import LiteLLMUpstream

__all__ = ["provider"]
CALLER = calling(("authorization", "Bearer alice-key"))
CLAUDE = "anthropic/claude-sonnet-4-5"


def delta(index: int, **said: Any) -> dict[str, Any]:
    """One piece of a block."""
    return {"type": "content_block_delta", "index": index, "delta": said}


def block(index: int, *pieces: Mapping[str, Any], **content: Any) -> list[dict[str, Any]]:
    """One block of a stream of Anthropic's."""
    return [
        {"type": "content_block_start", "index": index, "content_block": content},
        *(delta(index, **piece) for piece in pieces),
        {"type": "content_block_stop", "index": index},
    ]


def text(*words: str) -> list[dict[str, Any]]:
    """The pieces of a text."""
    return [{"type": "text_delta", "text": word} for word in words]


def stream(*blocks: list[dict[str, Any]], reason: str = "end_turn") -> bytes:
    """A whole stream."""
    return anthropic.events([anthropic.START, *(event for one in blocks for event in one), *anthropic.end(reason)])


THOUGHTS = [{"type": "thinking_delta", "thinking": "Hm"}, {"type": "signature_delta", "signature": "c2ln"}]
CALL = [{"type": "input_json_delta", "partial_json": '{"city":'}, {"type": "input_json_delta", "partial_json": '"x"}'}]
WORDS = ("Grace", " Hopper", "<s>", "", "user", " wrote", " wrote", " it.")
STREAMS: Mapping[str, tuple[str, Mapping[str, JsonValue], bytes, int]] = {
    "text": (CLAUDE, {}, stream(block(0, *text(*WORDS), type="text", text="")), 6),
    "thinking-and-call": (
        CLAUDE,
        {},
        stream(
            block(0, *THOUGHTS, type="thinking", thinking="", signature=""),
            block(1, *text("Let", " me", " look."), type="text", text=""),
            block(2, *CALL, type="tool_use", id="t1", name="look", input={}),
            block(3, *text("And", " more."), type="text", text=""),
            reason="tool_use",
        ),
        5,
    ),
    "ollama": ("ollama_chat/m", {"api_base": "http://ollama.test"}, OLLAMA_STREAM, 2),
    "gemini": (
        "gemini/gemini-2.5-flash",
        {},
        lines_of([*(gemini(word) for word in ("a", " b", " c")), gemini("", finishReason="STOP")]),
        0,  # each chunk has its counts
    ),
    "broken": (CLAUDE, {}, stream(block(0, *text(*WORDS), type="text", text=""))[:-400], 5),
}
"""For each stream its model, the parameters of its entry, its bytes, and how many chunks are passed."""


async def answer_of(name: str, *, usage: bool) -> bytes:
    """The body of an answer, without what litellm makes up, and how it ended."""
    model, params, _, _ = STREAMS[name]
    entry: dict[str, JsonValue] = {"model_name": "m", "litellm_params": {"model": model, "api_key": "k", **params}}
    upstream = LiteLLMUpstream([entry | {"lane": "translate"}])
    route = await upstream.resolve("m")
    request: dict[str, Any] = {
        "model": route.upstream_model,
        "messages": [{"role": "user", "content": "Who?"}],
        "max_tokens": 9,
        "stream": True,
    }
    if usage:
        request["stream_options"] = {"include_usage": True}
    pieces: list[bytes] = []
    reply = await upstream.send(route, json.dumps(request).encode(), CALLER, dialect=ChatDialect(), stream=True)
    try:
        async for piece in reply.body():
            pieces.append(piece)  # noqa: PERF401 - what came before a failure counts
    except Exception as error:  # noqa: BLE001 - the kind of the failure is part of the answer
        pieces.append(repr(error).encode())
    await upstream.aclose()
    return MADE_UP.sub(b"", b"".join(pieces))


@pytest.mark.parametrize("usage", [True, False], ids=["usage", "no-usage"])
@pytest.mark.parametrize("name", STREAMS)
async def test_a_stream_is_the_same_as_by_all_steps(
    name: str, provider: Any, monkeypatch: pytest.MonkeyPatch, *, usage: bool
) -> None:
    """Order of members, ends, counts and failures; and most chunks of text are passed."""
    provider.mock(side_effect=answering(STREAMS[name][2]))
    passed: list[str] = []
    judge = plain_chunks.plain_text

    def judged(chunk: Any) -> str | None:
        found = judge(chunk)
        if found is not None:
            passed.append(found)
        return found

    monkeypatch.setattr(plain_chunks, "plain_text", judged)
    quick = await answer_of(name, usage=usage)
    monkeypatch.setattr(plain_chunks, "plain_text", lambda _: None)
    assert quick == await answer_of(name, usage=usage)
    assert len(passed) == STREAMS[name][3]


async def test_a_model_that_repeats_itself_is_still_stopped(provider: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Litellm ends a stream that says one thing without end, and that looks at the chunks before."""
    monkeypatch.setattr(load().result(), "REPEATED_STREAMING_CHUNK_LIMIT", 5)
    looping = stream(block(0, *text(*["again "] * 30), type="text", text=""))
    monkeypatch.setitem(STREAMS, "text", (CLAUDE, {}, looping, 0))
    provider.mock(side_effect=answering(looping))
    answer = await answer_of("text", usage=False)
    assert 4 <= answer.count(b"again ") < 12


def test_a_special_case_of_litellms_goes_its_way() -> None:
    """Thinking that an entry wants in the text, and a provider whose text is searched for tokens."""

    class Stream:
        custom_llm_provider = "anthropic"
        merge_reasoning_content_in_choices = True

        def chunk_creator(self, chunk: Any) -> Any:
            return chunk

    merged = Stream()
    plain_chunks.PlainChunks(merged)
    assert "chunk_creator" not in vars(merged)
