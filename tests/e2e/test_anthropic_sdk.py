"""The official ``anthropic`` SDK, sync and async, through a real Tidemark: what an application does every day."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import anthropic
import pytest
from anthropic import Anthropic, AsyncAnthropic, DefaultAsyncHttpxClient, DefaultHttpxClient
from anthropic.types import ToolUseBlock

from tests.dialects.messages.anthropic_talk import (
    PARAMS,
    calls,
    delta,
    event,
    streamed_reply,
    streamed_text,
    text,
    thinking,
    whole_reply,
)
from tests.request.conftest import Bench, benched
from tests.request.talk import long
from tests.support.scripted import SSE_HEADERS, Answer, Call, Received, ScriptedUpstream, Turn, calls_tools
from tests.support.serving import NO_TLS
from tidemark.core.conversation.summary import OPENING

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("imported_litellm")]

TOOLS: list[Any] = [
    {"name": name, "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}}}
    for name in ("read", "list")
]
ECHOES: dict[str, Any] = {
    "the blocks themselves": lambda message: message.content,
    "dumped": lambda message: [block.model_dump() for block in message.content],
    "dumped without nulls": lambda message: [block.model_dump(exclude_none=True) for block in message.content],
    "without thinking": lambda message: [block for block in message.content if block.type != "thinking"],
}


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests; each has a key of its own, so that no conversation is met twice."""
    with benched(store_url, tmp_path_factory.mktemp("anthropic")) as made:
        yield made


@pytest.fixture(scope="module")
def base_url(bench: Bench) -> str:
    """What an application sets ``ANTHROPIC_BASE_URL`` to; the model ``small`` has a window of 2,000 tokens."""
    return bench.start()


@pytest.fixture
def upstream(bench: Bench) -> ScriptedUpstream:
    """The upstream, with nothing received yet."""
    bench.upstream.received.clear()
    bench.upstream.script = agent
    return bench.upstream


@pytest.fixture
def sdk(base_url: str, upstream: ScriptedUpstream, request: pytest.FixtureRequest) -> Iterator[Anthropic]:
    """The SDK as applications make it, without retries."""
    http = DefaultHttpxClient(verify=NO_TLS)
    with Anthropic(base_url=base_url, api_key=request.node.nodeid, max_retries=0, timeout=30, http_client=http) as made:
        yield made


def agent(received: Received) -> Answer:
    """Calls two tools for what the user asks, and tells the end when it has their results; streamed or not."""
    number = len(received.messages)
    newest = received.messages[-1]["content"]
    has_results = isinstance(newest, list) and any(block["type"] == "tool_result" for block in newest)
    is_stream = received.json.get("stream")
    if has_results or not received.json.get("tools"):
        ends = f"Done with {number}."
        if is_stream:
            return Answer(streamed_reply(streamed_text(ends)), headers=list(SSE_HEADERS))
        return Answer([whole_reply(text(ends))])
    reads, lists = calls("read", f"call_{number}_a", path="a b"), calls("list", f"call_{number}_b", path=".")
    if not is_stream:
        return Answer([whole_reply(thinking("Hm."), reads, lists, stop_reason="tool_use")])
    thought = [
        event("content_block_start", index=0, content_block={"type": "thinking", "thinking": "", "signature": ""}),
        delta(0, "thinking_delta", thinking="Hm."),
        delta(0, "signature_delta", signature="c2lnbmVk"),
    ]
    pieces = (('{"path":', ' "a b"}'), ('{"path": "."}',))
    called = [
        [
            event("content_block_start", index=index, content_block={**call, "input": {}}),
            *(delta(index, "input_json_delta", partial_json=piece) for piece in pieces[index - 1]),
        ]
        for index, call in enumerate((reads, lists), 1)
    ]
    return Answer(streamed_reply(thought, *called, reason="tool_use"), headers=list(SSE_HEADERS))


def results(message: anthropic.types.Message, said: str) -> list[Any]:
    """A result for each call."""
    names = [block.id for block in message.content if isinstance(block, ToolUseBlock)]
    return [{"type": "tool_result", "tool_use_id": name, "content": said} for name in names]


def test_create_gives_the_upstreams_answer(sdk: Anthropic, upstream: ScriptedUpstream) -> None:
    """The SDK's types are filled with the upstream's own words; the key is the upstream's to judge."""
    got = sdk.messages.create(model="small", max_tokens=9, messages=[{"role": "user", "content": "hi"}])
    assert got.content[0].to_dict() == text("Done with 1.")
    assert (got.usage.input_tokens, got.usage.cache_read_input_tokens) == (11, 7)
    sent = upstream.last.headers
    assert sdk.api_key in (sent.get("x-api-key"), sent.get("authorization", "").removeprefix("Bearer "))


def test_the_beta_client_is_served(sdk: Anthropic, upstream: ScriptedUpstream) -> None:
    """``?beta=true`` and its header."""
    got = sdk.beta.messages.create(
        model="small", max_tokens=9, messages=[{"role": "user", "content": "hi"}], betas=["context-1m-2025-08-07"]
    )
    assert got.content[0].to_dict() == text("Done with 1.")
    assert upstream.last.headers["anthropic-beta"] == "context-1m-2025-08-07"


def test_the_stream_helper_gathers_the_answer(sdk: Anthropic) -> None:
    """``client.messages.stream(...)``: its texts, and the message at the end."""
    with sdk.messages.stream(model="small", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as got:
        words = list(got.text_stream)
        final = got.get_final_message()
    assert words == ["Done", " with", " 1."]
    assert (final.stop_reason, final.usage.output_tokens) == ("end_turn", 5)


async def test_the_asynchronous_client_streams_too(base_url: str, upstream: ScriptedUpstream) -> None:
    """With a bearer token, as Claude Code has one."""
    http = DefaultAsyncHttpxClient(verify=NO_TLS)
    async with AsyncAnthropic(base_url=base_url, auth_token="t", max_retries=0, http_client=http) as sdk:
        stream = await sdk.messages.create(
            model="small", max_tokens=9, messages=[{"role": "user", "content": "hi"}], stream=True
        )
        kinds = [got.type async for got in stream]
    assert [kinds[0], kinds[-1]] == ["message_start", "message_stop"]
    assert upstream.last.headers["authorization"] == "Bearer t"


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("echo", ECHOES)
def test_tool_rounds_stay_one_conversation(
    sdk: Anthropic, upstream: ScriptedUpstream, echo: str, *, stream: bool
) -> None:
    """Turns of parallel calls and results: in whichever form the SDK's messages are sent back, one id."""
    said: list[Any] = []
    ids = []

    def turn() -> anthropic.types.Message:
        options: Any = {"model": "small", "max_tokens": 99, "messages": said, "tools": TOOLS, "system": "Be brief."}
        if stream:
            with sdk.messages.stream(**options) as got:
                ids.append(got.response.headers["x-tidemark-conversation"])
                return got.get_final_message()
        raw = sdk.messages.with_raw_response.create(**options)
        ids.append(raw.headers["x-tidemark-conversation"])
        message: anthropic.types.Message = raw.parse()
        return message

    for number in range(4):
        said.append({"role": "user", "content": f"Look at file {number}."})
        calling = turn()
        said.append({"role": "assistant", "content": ECHOES[echo](calling)})
        said.append({"role": "user", "content": results(calling, f"text {number}")})
        ended = turn()
        assert ended.content[0].to_dict()["text"] == f"Done with {len(said)}."
        said.append({"role": "assistant", "content": ECHOES[echo](ended)})
        PARAMS.validate_python(upstream.last.messages)
    assert len(ids) == 8
    assert len(set(ids)) == 1


def test_a_long_tool_conversation_is_compacted_and_stays_valid(sdk: Anthropic, upstream: ScriptedUpstream) -> None:
    """Past the window it is cut between rounds only, roles alternate, results follow their calls, and the id stays."""
    said: list[Any] = []
    ids, actions = set(), []
    for number in range(16):
        said.append({"role": "user", "content": long(number, 40)})
        for _ in range(2):
            raw = sdk.messages.with_raw_response.create(model="small", max_tokens=99, messages=said, tools=TOOLS)
            message = raw.parse()
            said.append({"role": "assistant", "content": message.content})
            ids.add(raw.headers["x-tidemark-conversation"])
            actions.append(raw.headers["x-tidemark-action"])
            if message.stop_reason == "tool_use":
                said.append({"role": "user", "content": results(message, long(number, 60))})
            sent = upstream.last.messages
            PARAMS.validate_python(sent)
            assert [each["role"] for each in sent] == [("user", "assistant")[place % 2] for place in range(len(sent))]
            for before, after in pairwise(sent):
                called = [block["id"] for block in before["content"] if isinstance(block, dict) and "input" in block]
                answered = [block["tool_use_id"] for block in after["content"] if "tool_use_id" in block]
                assert called == answered
    assert len(ids) == 1
    assert {"compacted", "reused"} <= set(actions)


def test_force_by_extra_headers(sdk: Anthropic, upstream: ScriptedUpstream) -> None:
    """``extra_headers`` reach Tidemark, and stay there; ``system`` is as it was."""
    said: list[Any] = []
    for number in range(8):
        said += [{"role": "user", "content": long(number)}, {"role": "assistant", "content": "Fine."}]
    raw = sdk.messages.with_raw_response.create(
        model="small",
        max_tokens=99,
        system="Be brief.",
        messages=[*said, {"role": "user", "content": "What now?"}],
        extra_headers={"X-Tidemark-Summarize": "force"},
    )
    assert raw.headers["x-tidemark-action"] == "forced"
    assert upstream.last.messages[0]["content"][0]["text"].startswith(OPENING)
    assert upstream.last.json["system"] == "Be brief."
    assert not [name for name in upstream.last.headers if name.startswith("x-tidemark")]


def test_tokens_are_counted(sdk: Anthropic, upstream: ScriptedUpstream) -> None:
    """``messages.count_tokens``, by an upstream that has no such endpoint."""
    upstream.others.counts = lambda _: Answer([b"Not Found"], 404)
    got = sdk.messages.count_tokens(model="small", messages=[{"role": "user", "content": "hi"}], tools=TOOLS)
    assert got.input_tokens > 20
    assert upstream.last.path == "/v1/messages/count_tokens"


def test_errors_are_the_sdks(sdk: Anthropic, upstream: ScriptedUpstream) -> None:
    """By status, with the error in the body; Tidemark's code is in it."""
    ask: Any = {"max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
    with pytest.raises(anthropic.NotFoundError) as unknown:
        sdk.messages.create(model="none", **ask)
    assert (unknown.value.type, unknown.value.body["error"]["code"]) == ("not_found_error", "model_not_found")  # type: ignore[index]
    with pytest.raises(anthropic.BadRequestError, match="prompt is too long"):
        sdk.messages.create(model="small", max_tokens=9, messages=[{"role": "user", "content": long(0, 9000)}])
    upstream.script = lambda _: Answer(
        [b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}'], 529
    )
    with pytest.raises(anthropic.APIStatusError) as overloaded:
        sdk.messages.create(model="small", **ask)
    assert overloaded.value.status_code == 529


def test_an_error_within_a_stream_is_raised(sdk: Anthropic, upstream: ScriptedUpstream) -> None:
    """The upstream breaks off, and the SDK hears of it."""
    pieces = streamed_reply(streamed_text("Done."))[:4]
    upstream.script = lambda _: Answer(pieces, headers=list(SSE_HEADERS), breaks=True)
    with (
        pytest.raises(anthropic.APIStatusError, match="upstream_incomplete"),
        sdk.messages.stream(model="small", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as got,
    ):
        got.until_done()


async def test_parallel_requests_of_one_key_are_apart(base_url: str, upstream: ScriptedUpstream) -> None:
    """Each is a conversation of its own."""
    http = DefaultAsyncHttpxClient(verify=NO_TLS)
    async with AsyncAnthropic(base_url=base_url, api_key="many", max_retries=0, http_client=http) as sdk:
        asks = [
            sdk.messages.with_raw_response.create(
                model="small", max_tokens=9, messages=[{"role": "user", "content": f"hi {number}"}]
            )
            for number in range(8)
        ]
        answers = await asyncio.gather(*asks)
    assert len({answer.headers["x-tidemark-conversation"] for answer in answers}) == 8
    assert len(upstream.received) == 8


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_an_upstream_of_chat_completions_alone_is_bridged(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest, *, stream: bool
) -> None:
    """Calls, results, counts and compactions come as if it spoke this dialect, and the id stays."""
    monkeypatch.setattr(bench.upstream, "dialects", {"chat"})
    turns = (Turn("I look.", calls=(Call("read", '{"path": "a b"}'),)), Turn("Fine weather today."))
    monkeypatch.setattr(bench.upstream, "script", calls_tools(*turns))
    http = DefaultHttpxClient(verify=NO_TLS)
    said: list[Any] = []
    ids, actions = set(), []
    with Anthropic(base_url=bench.start(), api_key=request.node.nodeid, max_retries=0, http_client=http) as sdk:
        for number in range(20):
            said.append({"role": "user", "content": long(number, 60)})
            for _ in range(2):
                options: Any = {
                    "model": "small",
                    "max_tokens": 99,
                    "messages": said,
                    "tools": TOOLS,
                    "system": "Brief.",
                }
                if stream:
                    with sdk.messages.stream(**options) as got:
                        message, headers = got.get_final_message(), got.response.headers
                else:
                    raw = sdk.messages.with_raw_response.create(**options)
                    message, headers = raw.parse(), raw.headers
                ids.add(headers["x-tidemark-conversation"])
                actions.append(headers["x-tidemark-action"])
                said.append({"role": "assistant", "content": message.content})
                assert message.usage.output_tokens == 5
                if message.stop_reason == "end_turn":
                    break
                assert message.content[-1].to_dict()["input"] == {"path": "a b"}
                said.append({"role": "user", "content": results(message, f"text {number}")})
    assert len(ids) == 1
    assert {"compacted", "reused"} <= set(actions)
    assert bench.upstream.last.path == "/v1/chat/completions"
