"""A call of litellm without its log gives the answer that the whole call gives, byte for byte."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import Any

import httpx
import pytest
import respx

from tests.upstream import anthropic
from tests.upstream.callers import calling, everything
from tidemark.core.conversation.messages import JsonValue
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.upstream.litellm import assign_extra_at_once, complete, load
from tidemark.upstream.upstream import LiteLLMUpstream

CALLER = calling(("authorization", "Bearer alice-key"))
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
MADE_UP = re.compile(rb'"(id|created)":("[^"]*"|\d+)')
"""What litellm makes up for each answer, if the provider says nothing."""
TOLD: list[str] = []
WORDS = ("Grace", " Hopper", " wrote it.")


def events(values: Sequence[Mapping[str, Any]]) -> bytes:
    """Event stream of these values, as most providers write it."""
    return b"".join(b"data: " + json.dumps(value).encode() + b"\n\n" for value in values)


def gemini(text: str, **more: Any) -> dict[str, Any]:
    """One answer or chunk of Google's ``generateContent``."""
    candidate = {"content": {"parts": [{"text": text}], "role": "model"}, "index": 0, **more}
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 3, "totalTokenCount": 14}
    return {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "gemini-2.5-flash", "responseId": "r1"}


def openai(**choice: Any) -> dict[str, Any]:
    """One answer or chunk of chat completions."""
    usage = {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}
    made: dict[str, Any] = {"id": "c1", "created": 1, "model": "m", "choices": [{"index": 0, **choice}]}
    return made | ({"usage": usage} if "message" in choice else {})


def ollama(text: str, *, done: bool) -> dict[str, Any]:
    """One line of Ollama's ``/api/chat``."""
    counts = {"done_reason": "stop", "prompt_eval_count": 11, "eval_count": 3} if done else {}
    return {
        "model": "m",
        "created_at": "2026-01-01T00:00:00Z",
        "message": {"role": "assistant", "content": text},
        "done": done,
        **counts,
    }


CHAT_STREAM = events([*(openai(delta={"content": word}) for word in WORDS), openai(delta={}, finish_reason="stop")]) + (
    b"data: [DONE]\n\n"
)
CHAT = openai(message={"role": "assistant", "content": "".join(WORDS)}, finish_reason="stop")
CALLED = openai(
    message={
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
    },
    finish_reason="tool_calls",
)
COHERE = {
    "id": "c1",
    "finish_reason": "COMPLETE",
    "message": {"role": "assistant", "content": [{"type": "text", "text": "".join(WORDS)}]},
    "usage": {"tokens": {"input_tokens": 11, "output_tokens": 3}},
}
BEDROCK = {
    "output": {"message": {"role": "assistant", "content": [{"text": "".join(WORDS)}]}},
    "stopReason": "end_turn",
    "usage": {"inputTokens": 11, "outputTokens": 3, "totalTokens": 14},
    "metrics": {"latencyMs": 1},
}
AWS: dict[str, JsonValue] = {
    "aws_access_key_id": "id",
    "aws_secret_access_key": "secret",
    "aws_region_name": "us-east-1",
}
AZURE: dict[str, JsonValue] = {"api_base": "https://azure.test", "api_version": "2024-10-21"}
GEMINI_STREAM = events([*(gemini(word) for word in WORDS), gemini("", finishReason="STOP")])
OLLAMA_STREAM = b"".join(
    json.dumps(line).encode() + b"\n" for line in [*(ollama(word, done=False) for word in WORDS), ollama("", done=True)]
)
ANTHROPIC_STREAM = anthropic.events([*anthropic.TEXT, *anthropic.end("end_turn")])

CASES: Mapping[str, tuple[str, Mapping[str, JsonValue], Any]] = {
    "anthropic": ("anthropic/claude-sonnet-4-5", {}, anthropic.message({"type": "text", "text": "Hello."})),
    "anthropic-stream": ("anthropic/claude-sonnet-4-5", {}, ANTHROPIC_STREAM),
    "azure": ("azure/gpt-4o", AZURE, CHAT),
    "azure-stream": ("azure/gpt-4o", AZURE, CHAT_STREAM),
    "bedrock": ("bedrock/anthropic.claude-3-haiku-20240307-v1:0", AWS, BEDROCK),
    "cohere": ("cohere_chat/command-r", {}, COHERE),
    "gemini": ("gemini/gemini-2.5-flash", {}, gemini("".join(WORDS), finishReason="STOP")),
    "gemini-stream": ("gemini/gemini-2.5-flash", {}, GEMINI_STREAM),
    "mistral": ("mistral/mistral-small-latest", {}, CHAT),
    "mistral-stream": ("mistral/mistral-small-latest", {}, CHAT_STREAM),
    "ollama": ("ollama_chat/m", {"api_base": "http://ollama.test"}, ollama("".join(WORDS), done=True)),
    "ollama-stream": ("ollama_chat/m", {"api_base": "http://ollama.test"}, OLLAMA_STREAM),
    "tool-call": ("mistral/mistral-small-latest", {}, CALLED),
    "vllm": ("hosted_vllm/m", {"api_base": "http://vllm.test/v1"}, CHAT),
}
"""For each provider its model, the parameters of its entry, and its answer: a value, or the bytes of a stream."""


@pytest.fixture
def provider() -> Iterator[Any]:
    """Every address of every provider."""
    with respx.mock(assert_all_called=False) as router:
        yield router.post(url__regex=".*")


@pytest.fixture
def callbacks(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What somebody has registered with litellm: ``TOLD`` gets what it is told."""
    TOLD.clear()
    registered: list[Any] = [lambda call: TOLD.append(call["model"])]
    monkeypatch.setattr(load().result(), "input_callback", registered)
    return registered


async def answer_of(case: str) -> tuple[int, Any, bytes]:
    """Status, headers in any order and body of a case, without what litellm makes up."""
    model, params, answer = CASES[case]
    entry: dict[str, JsonValue] = {
        "model_name": "m",
        "litellm_params": {"model": model, "api_key": "k", **params},
        "lane": "translate",
    }
    upstream = LiteLLMUpstream([entry])
    route = await upstream.resolve("m")
    stream = isinstance(answer, bytes)
    request = {
        "model": route.upstream_model,
        "messages": [{"role": "user", "content": "Who wrote it?"}],
        "max_tokens": 9,
        "tools": [TOOL],
        "stream": stream,
    } | ({"stream_options": {"include_usage": True}} if stream else {})
    reply = await upstream.send(route, json.dumps(request).encode(), CALLER, dialect=ChatDialect(), stream=stream)
    body = await everything(reply)
    await upstream.aclose()  # or a later event loop at the same place in memory gets this one's clients
    return reply.status, sorted(reply.headers), MADE_UP.sub(b"", body)


def answering(answer: Any, status: int = 200) -> Any:
    """Answer any number of requests."""

    async def reads() -> AsyncIterator[bytes]:
        for place in range(0, len(answer), 40):
            yield answer[place : place + 40]

    def made(_: httpx.Request) -> httpx.Response:
        kept = {"request-id": "req_1", "x-request-id": "req_1", "x-ratelimit-remaining-requests": "9"}
        if isinstance(answer, bytes):
            return httpx.Response(status, headers={"content-type": "text/event-stream", **kept}, content=reads())
        return httpx.Response(status, headers=kept, json=answer)

    return made


@pytest.mark.parametrize("case", CASES)
async def test_the_answer_is_that_of_the_whole_call(case: str, provider: Any, callbacks: list[Any]) -> None:
    """Status, headers, every event and every count."""
    provider.mock(side_effect=answering(CASES[case][2]))
    whole = await answer_of(case)
    assert TOLD
    callbacks.clear()
    TOLD.clear()
    quiet = await answer_of(case)
    assert not TOLD
    assert quiet == whole
    assert quiet[0] == 200
    assert b"hopper" in quiet[2].lower() or b"hello" in quiet[2].lower() or b"look" in quiet[2]


@pytest.mark.parametrize("name", ["success_callback", "context_window_fallback_dict", "caching"])
async def test_an_entry_that_asks_for_what_surrounds_a_call_gets_the_whole_call(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing that an operator wrote is left out in silence."""

    async def whole(**fields: Any) -> str:
        return f"whole with {sorted(fields)}"

    monkeypatch.setattr(load().result(), "acompletion", whole)
    assert await complete(model="m", **{name: ["x"]}) == f"whole with {sorted(['model', name])}"


async def test_a_cache_of_litellm_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who embeds Tidemark may have set one up."""

    async def whole(**_: Any) -> str:
        return "whole"

    monkeypatch.setattr(load().result(), "cache", object())
    monkeypatch.setattr(load().result(), "acompletion", whole)
    assert await complete(model="m") == "whole"


@pytest.mark.parametrize("status", [400, 401, 429, 500])
async def test_a_refusal_is_that_of_the_whole_call(status: int, provider: Any, callbacks: list[Any]) -> None:
    """Its status, its words and its headers."""
    provider.mock(side_effect=answering({"error": {"message": "No.", "type": "refused"}}, status))
    whole = await answer_of("gemini")
    callbacks.clear()
    assert await answer_of("gemini") == whole
    assert whole[0] == status
    assert TOLD


@pytest.mark.parametrize("case", [name for name in CASES if "stream" in name])
async def test_a_stream_is_the_same_as_with_pydantics_own_assignments(
    case: str, provider: Any, callbacks: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Undeclared members stand where pydantic would put them."""
    provider.mock(side_effect=answering(CASES[case][2]))
    callbacks.clear()
    quick = await answer_of(case)
    types = load().result().types.utils
    for model in (types.StreamingChoices, types.ModelResponseStream):
        monkeypatch.setattr(model, "__pydantic_setattr_handlers__", {})
    assert await answer_of(case) == quick


def test_an_undeclared_member_is_set_as_pydantic_sets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is printed, copied and compared of a model stays."""
    choices = load().result().types.utils.StreamingChoices

    def made() -> Any:
        choice = choices(finish_reason="stop", index=2, delta={"content": "Fine."})
        choice.index = 3
        return choice

    quick = made()
    monkeypatch.setattr(choices, "__pydantic_setattr_handlers__", {})
    slow = made()
    assert (quick, quick.model_dump(), quick.model_fields_set) == (slow, slow.model_dump(), slow.model_fields_set)
    assert (quick.__dict__, quick.model_extra) == (slow.__dict__, slow.model_extra)


def test_a_declared_member_is_never_assigned_like_an_undeclared_one() -> None:
    """A newer litellm that declares one is found when it is imported."""
    with pytest.raises(TypeError, match="choices is no undeclared member"):
        assign_extra_at_once(load().result().ModelResponseStream, ["choices"])
