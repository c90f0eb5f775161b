"""The official ``openai`` SDK, sync and async, through a real Tidemark: what an application does every day."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from threading import Thread
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI
from openai.types.chat import ChatCompletionMessage, ChatCompletionMessageFunctionToolCall
from pydantic import BaseModel

from tests.request.conftest import Bench, benched
from tests.request.talk import Said, history, long, system, user
from tests.support.scripted import (
    SSE_HEADERS,
    Answer,
    Received,
    ScriptedUpstream,
    chunk,
    error,
    says,
    streamed,
    whole,
)
from tests.support.serving import NO_TLS
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("imported_litellm")]

TOOLS: list[Any] = [
    {
        "type": "function",
        "function": {
            "name": name,
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"path": {"type": "string"}},
                "required": ["path"],
                "additionalProperties": False,
            },
        },
    }
    for name in ("read", "list")
]


class Capital(BaseModel):
    """A structured answer."""

    city: str
    people: int


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests; each has a key of its own, so that no conversation is met twice."""
    with benched(store_url, tmp_path_factory.mktemp("sdk")) as made:
        yield made


@pytest.fixture(scope="module")
def base_url(bench: Bench) -> str:
    """What an application sets ``OPENAI_BASE_URL`` to; the model ``small`` has a window of 2,000 tokens."""
    return bench.start() + "/v1"


@pytest.fixture
def upstream(bench: Bench) -> ScriptedUpstream:
    """The upstream, with nothing received yet."""
    bench.upstream.received.clear()
    bench.upstream.script = says("Hello there.")
    return bench.upstream


@pytest.fixture
def sdk(base_url: str, upstream: ScriptedUpstream, request: pytest.FixtureRequest) -> Iterator[OpenAI]:
    """The SDK as applications make it, without retries."""
    http = DefaultHttpxClient(verify=NO_TLS)
    with OpenAI(base_url=base_url, api_key=request.node.nodeid, max_retries=0, timeout=30, http_client=http) as made:
        yield made


@asynccontextmanager
async def asynchronous(sdk: OpenAI) -> AsyncIterator[AsyncOpenAI]:
    """The asynchronous SDK with the same key."""
    http = DefaultAsyncHttpxClient(verify=NO_TLS)
    key = sdk.api_key
    async with AsyncOpenAI(base_url=sdk.base_url, api_key=key, max_retries=0, timeout=30, http_client=http) as made:
        yield made


def tool_calls(number: int) -> Answer:
    """A stream of two parallel calls, each in pieces."""

    def piece(index: int, arguments: str, **more: str) -> bytes:
        name = {"name": ("read", "list")[index]} if more else {}
        call = {"index": index, **more, "function": {**name, "arguments": arguments}}
        return chunk(delta={"tool_calls": [call]}, finish_reason=None)

    return Answer(
        [
            chunk(delta={"role": "assistant", "content": None, "refusal": None}, finish_reason=None),
            piece(0, "", id=f"call_{number}_a", type="function"),
            piece(0, '{"path":'),
            piece(0, f' "file{number}.py"}}'),
            piece(1, "", id=f"call_{number}_b", type="function"),
            piece(1, '{"path": "."}'),
            chunk(delta={}, finish_reason="tool_calls"),
            b"data: [DONE]\n\n",
        ],
        headers=list(SSE_HEADERS),
    )


def agent(received: Received) -> Answer:
    """Calls tools for what the user asks, and tells the end when it has their results; streamed or not as asked."""
    number = len(received.messages)
    if received.messages[-1]["role"] == "tool":
        return streamed(f"Done with {number}.") if received.json.get("stream") else whole(f"Done with {number}.")
    if received.json.get("stream"):
        return tool_calls(number)
    calls = [
        {"id": f"call_{number}_{one}", "type": "function", "function": {"name": "read", "arguments": '{"path": "."}'}}
        for one in "ab"
    ]
    return whole("", content=None, tool_calls=calls)


def by_hand(message: ChatCompletionMessage) -> Said:
    """The least that a hand-written client sends back."""
    said: Said = {"role": "assistant", "content": message.content or ""}
    if message.tool_calls:
        said["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.function.name, "arguments": call.function.arguments},
            }
            for call in message.tool_calls
            if isinstance(call, ChatCompletionMessageFunctionToolCall)
        ]
    return said


ECHOES: dict[str, Any] = {
    "dumped": lambda message: message.model_dump(),
    "dumped without nulls": lambda message: message.model_dump(exclude_none=True),
    "dumped as JSON": lambda message: message.model_dump(mode="json", exclude_unset=True),
    "by hand": by_hand,
    "the object itself": lambda message: message,
}


def test_create_gives_the_upstreams_answer(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """The SDK's types are filled with the upstream's own words, unknown fields included."""
    got = sdk.chat.completions.create(model="small", messages=[{"role": "user", "content": "hi"}])
    assert got.choices[0].message.content == "Hello there."
    assert got.usage is not None
    assert got.usage.prompt_tokens_details is not None
    assert got.usage.prompt_tokens_details.cached_tokens == 7
    assert got.model_extra == {"unknown_field": {"kept": True}}
    assert upstream.last.headers["authorization"] == f"Bearer {sdk.api_key}"


def test_a_stream_is_iterated_chunk_by_chunk(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """``stream=True``: every chunk the upstream sent, and the end."""
    upstream.script = says("one two three")
    with sdk.chat.completions.create(model="small", messages=[{"role": "user", "content": "hi"}], stream=True) as got:
        choices = [event.choices[0] for event in got]
    assert [choice.delta.content for choice in choices] == ["", "one", " two", " three", None]
    assert choices[-1].finish_reason == "stop"


def test_the_stream_helper_gathers_the_answer(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """``client.chat.completions.stream(...)``: its events, and the completion at the end."""
    upstream.script = says("one two three")
    with sdk.chat.completions.stream(model="small", messages=[{"role": "user", "content": "hi"}]) as got:
        deltas = [event.delta for event in got if event.type == "content.delta"]
        final = got.get_final_completion()
    assert "".join(deltas) == final.choices[0].message.content == "one two three"


@pytest.mark.parametrize("stream", [False, True])
def test_raw_responses_carry_what_was_done(sdk: OpenAI, upstream: ScriptedUpstream, *, stream: bool) -> None:
    """``with_raw_response``: Tidemark's headers beside the upstream's, on streams too."""
    upstream.script = says("ok")
    raw = sdk.chat.completions.with_raw_response.create(
        model="small", messages=[{"role": "user", "content": "hi"}], stream=stream
    )
    assert raw.headers["x-tidemark-action"] == "none"
    assert raw.headers["x-tidemark-tokens-before"] == "8"
    assert raw.headers["x-request-id"] == "req_1"
    parsed = raw.parse()
    if isinstance(parsed, openai.Stream):
        parsed.close()


def test_force_by_extra_headers(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """``extra_headers`` reach Tidemark, and stay there."""
    said: Any = [*history(4), user("What now?")]
    raw = sdk.chat.completions.with_raw_response.create(
        model="small", messages=said, extra_headers={"X-Tidemark-Summarize": "force"}
    )
    assert raw.headers["x-tidemark-action"] == "forced"
    assert upstream.last.messages[0]["content"].startswith("Summary of earlier turns")
    assert not [name for name in upstream.last.headers if name.startswith("x-tidemark")]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("echo", ECHOES)
def test_commands_leave_no_trace(sdk: OpenAI, upstream: ScriptedUpstream, echo: str, *, stream: bool) -> None:
    """``/context`` and ``/summarize`` are answered as by a model, and gone in whichever form they are sent back."""
    said: list[Any] = [*history(6)]
    final: Any = None
    for command in ("/context", "/summarize", "/context"):
        said.append({"role": "user", "content": command})
        if stream:
            options: Any = {"include_usage": True}
            with sdk.chat.completions.stream(model="small", messages=said, stream_options=options) as got:
                final = got.get_final_completion()
        else:
            final = sdk.chat.completions.create(model="small", messages=said)
        assert final.id.startswith("chatcmpl-tidemark-")
        assert (final.model, final.usage.total_tokens, final.choices[0].finish_reason) == ("small", 0, "stop")
        assert final.choices[0].message.content.startswith("[Tidemark ")
        said.append(ECHOES[echo](final.choices[0].message))
    told = re.search(r"a summary stands for (\d+)", final.choices[0].message.content)
    assert told
    assert not upstream.received
    raw = sdk.chat.completions.with_raw_response.create(
        model="small", messages=[*said, {"role": "user", "content": "What now?"}]
    )
    assert raw.headers["x-tidemark-action"] == "reused"
    assert upstream.last.messages[1:] == [*history(6)[int(told[1]) :], {"role": "user", "content": "What now?"}]


@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
@pytest.mark.parametrize("echo", ECHOES)
def test_tool_rounds_stay_one_conversation(sdk: OpenAI, upstream: ScriptedUpstream, echo: str, *, stream: bool) -> None:
    """Ten turns of parallel calls and results: in whichever form the SDK's messages are sent back, one id."""
    upstream.script = agent
    said: list[Any] = [{"role": "system", "content": "You are an agent."}]
    ids = []

    def turn() -> ChatCompletionMessage:
        raw = sdk.chat.completions.with_raw_response.create(model="small", messages=said, tools=TOOLS)
        ids.append(raw.headers["x-tidemark-conversation"])
        return raw.parse().choices[0].message

    def streamed_turn() -> ChatCompletionMessage:
        with sdk.chat.completions.stream(model="small", messages=said, tools=TOOLS) as got:
            message = got.get_final_completion().choices[0].message
            ids.append(got._response.headers["x-tidemark-conversation"])  # noqa: SLF001 - the helper has no public way
        return message

    for number in range(5):
        said.append({"role": "user", "content": f"Look at file {number}."})
        calling = streamed_turn() if stream else turn()
        assert calling.tool_calls is not None
        said.append(ECHOES[echo](calling))
        said += [{"role": "tool", "tool_call_id": call.id, "content": f"text {number}"} for call in calling.tool_calls]
        ended = streamed_turn() if stream else turn()
        assert ended.content == f"Done with {len(said)}."
        said.append(ECHOES[echo](ended))
    assert len(ids) == 10
    assert len(set(ids)) == 1


def test_a_long_tool_conversation_is_compacted_and_stays_valid(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """Past the window, the SDK's own dumps are cut between rounds only, and the id stays."""
    upstream.script = agent
    said: list[Any] = []
    ids, actions = set(), []
    for number in range(20):
        said.append({"role": "user", "content": long(number, 40)})
        for _ in range(2):
            raw = sdk.chat.completions.with_raw_response.create(
                model="small", messages=said, tools=TOOLS, max_tokens=100
            )
            message = raw.parse().choices[0].message
            said.append(message.model_dump())
            ids.add(raw.headers["x-tidemark-conversation"])
            actions.append(raw.headers["x-tidemark-action"])
            calls = message.tool_calls or ()
            said += [{"role": "tool", "tool_call_id": call.id, "content": long(number, 60)} for call in calls]
            sent = upstream.last.messages
            called = [one["id"] for each in sent for one in each.get("tool_calls") or ()]
            assert sorted(called) == sorted(each["tool_call_id"] for each in sent if each["role"] == "tool")
    assert len(ids) == 1
    assert "compacted" in actions
    assert "reused" in actions


def test_a_structured_answer_is_parsed(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """``parse`` with a pydantic model; its schema is counted, and the parsed message is known when it is sent back."""
    upstream.script = says('{"city": "Oslo", "people": 700000}')
    said: list[Any] = [{"role": "user", "content": "The capital of Norway?"}]
    raw = sdk.chat.completions.with_raw_response.parse(model="small", messages=said, response_format=Capital)
    message = raw.parse().choices[0].message
    assert message.parsed == Capital(city="Oslo", people=700000)
    assert upstream.last.json["response_format"]["json_schema"]["name"] == "Capital"
    assert int(raw.headers["x-tidemark-tokens-before"]) > 20
    said += [message.model_dump(warnings=False), {"role": "user", "content": "And of Sweden?"}]
    again = sdk.chat.completions.with_raw_response.parse(model="small", messages=said, response_format=Capital)
    assert again.headers["x-tidemark-conversation"] == raw.headers["x-tidemark-conversation"]


def test_models_are_listed_and_retrieved(sdk: OpenAI) -> None:
    """``models.list()`` and ``models.retrieve()``, with the window as an extra field."""
    listed = sdk.models.list()
    assert [model.id for model in listed] == ["small"]
    got = sdk.models.retrieve("small")
    assert (got.id, got.object) == ("small", "model")
    assert got.model_extra is not None
    assert got.model_extra["context_length"] == 2000
    with pytest.raises(openai.NotFoundError) as caught:
        sdk.models.retrieve("org/none")
    assert caught.value.code == "model_not_found"


@pytest.mark.parametrize("stream", [False, True])
def test_what_cannot_fit_is_a_bad_request(sdk: OpenAI, upstream: ScriptedUpstream, *, stream: bool) -> None:
    """The exception that applications catch when a context is too long, with OpenAI's code."""
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.chat.completions.create(
            model="small", messages=[{"role": "user", "content": "word " * 5000}], stream=stream
        )
    assert (caught.value.code, caught.value.param) == ("context_length_exceeded", "messages")
    assert caught.value.type == "invalid_request_error"
    assert not upstream.received


def test_an_unknown_model_is_not_found(sdk: OpenAI) -> None:
    """``NotFoundError`` with OpenAI's code, and what is configured in its message."""
    with pytest.raises(openai.NotFoundError, match="small") as caught:
        sdk.chat.completions.create(model="none-such", messages=[{"role": "user", "content": "hi"}])
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, openai.BadRequestError),
        (401, openai.AuthenticationError),
        (403, openai.PermissionDeniedError),
        (409, openai.ConflictError),
        (422, openai.UnprocessableEntityError),
        (429, openai.RateLimitError),
        (500, openai.InternalServerError),
        (503, openai.InternalServerError),
    ],
)
def test_an_upstreams_error_is_the_sdks_own_exception(
    sdk: OpenAI, upstream: ScriptedUpstream, status: int, kind: type[openai.APIStatusError], *, stream: bool
) -> None:
    """The class, the code and ``retry-after`` are as without Tidemark; nothing is retried on the way."""
    upstream.script = lambda _: error(status, "no", code="theirs", headers=[(b"retry-after", b"7")])
    with pytest.raises(kind) as caught:
        sdk.chat.completions.create(model="small", messages=[{"role": "user", "content": "hi"}], stream=stream)
    assert caught.value.code == "theirs"
    assert caught.value.response.headers["retry-after"] == "7"
    assert caught.value.request_id == "req_1"
    assert len(upstream.received) == 1


def test_the_sdks_own_retry_works(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """The upstream's ``retry-after-ms`` is obeyed by the SDK, and the second try is served."""
    answers = iter([error(429, "slow down", headers=[(b"retry-after-ms", b"1")]), whole("Now.")])
    upstream.script = lambda _: next(answers)
    got = sdk.with_options(max_retries=1).chat.completions.create(
        model="small", messages=[{"role": "user", "content": "hi"}]
    )
    assert got.choices[0].message.content == "Now."
    assert len(upstream.received) == 2


def test_an_answer_that_breaks_off_is_no_connection_error(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """Whole: a 502 in the envelope. Streamed: what there was, then an error event that the SDK raises."""
    upstream.script = lambda _: Answer([b'{"choices": ['], breaks=True)
    with pytest.raises(openai.InternalServerError) as caught:
        sdk.chat.completions.create(model="small", messages=[{"role": "user", "content": "hi"}])
    assert caught.value.code == "upstream_incomplete"
    cut = streamed("only a part", finish=False, done=False)
    cut.breaks = True
    upstream.script = lambda _: cut
    texts: list[str | None] = []

    def read() -> None:
        with sdk.chat.completions.create(
            model="small", messages=[{"role": "user", "content": "hi"}], stream=True
        ) as got:
            texts.extend(event.choices[0].delta.content for event in got)

    with pytest.raises(openai.APIError) as told:
        read()
    assert not isinstance(told.value, openai.APIConnectionError)
    assert texts == ["", "only", " a", " part"]


def test_sixty_turns_past_a_small_window(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """The main job by the SDK: whatever grows, no turn is refused, and every id is the same."""
    said: list[Any] = [system("Be brief.")]
    ids, actions = set(), []
    for number in range(60):
        said.append(user(long(2 * number)))
        upstream.script = says(long(2 * number + 1))
        raw = sdk.chat.completions.with_raw_response.create(model="small", messages=said, max_tokens=100)
        said.append(raw.parse().choices[0].message.model_dump())
        ids.add(raw.headers["x-tidemark-conversation"])
        actions.append(raw.headers["x-tidemark-action"])
        assert int(raw.headers["x-tidemark-tokens-after"]) <= 1800
    assert len(ids) == 1
    assert 2 <= actions.count("compacted") <= 12
    assert set(actions) == {"none", "compacted", "reused"}


def test_closing_a_stream_reaches_the_upstream(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """``stream.close()`` in the middle: the upstream is not left generating."""
    upstream.script = lambda _: Answer([chunk(delta={"content": "a"}, finish_reason=None), 30.0], headers=SSE_HEADERS)
    got = sdk.chat.completions.create(model="small", messages=[{"role": "user", "content": "hi"}], stream=True)
    assert next(iter(got)).choices[0].delta.content == "a"
    got.close()
    wait_until(lambda: upstream.last.gone)


def test_a_task_that_is_cancelled_reaches_the_upstream(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """Async: cancelling the awaiting task closes the upstream call before its first byte, too."""

    async def run() -> None:
        arrived, loop = asyncio.Event(), asyncio.get_running_loop()

        def silent(_: Received) -> Answer:
            loop.call_soon_threadsafe(arrived.set)
            return Answer([], before_headers=30)

        upstream.script = silent
        async with asynchronous(sdk) as client:
            asking = asyncio.create_task(
                client.chat.completions.create(model="small", messages=[{"role": "user", "content": "hi"}])
            )
            await arrived.wait()
            asking.cancel()
            await asyncio.gather(asking, return_exceptions=True)

    asyncio.run(run())
    wait_until(lambda: upstream.last.gone)


def test_fifty_streams_at_once_keep_to_themselves(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """Async: each of 50 conversations gets its own text and its own id, three turns long."""
    upstream.script = lambda got: streamed(f"You said {got.messages[-1]['content']} indeed.", pace=0.005)

    async def talk(client: AsyncOpenAI, name: int) -> set[str]:
        said: list[Any] = []
        ids = set()
        for turn in range(3):
            said.append({"role": "user", "content": f"number {name} turn {turn}"})
            raw = await client.chat.completions.with_raw_response.create(model="small", messages=said, stream=True)
            text = "".join([event.choices[0].delta.content or "" async for event in raw.parse()])
            assert text == f"You said number {name} turn {turn} indeed."
            said.append({"role": "assistant", "content": text})
            ids.add(raw.headers["x-tidemark-conversation"])
        return ids

    async def run() -> list[set[str]]:
        async with asynchronous(sdk) as client:
            return await asyncio.gather(*(talk(client, name) for name in range(50)))

    ids = asyncio.run(run())
    assert all(len(each) == 1 for each in ids)
    assert len(set.union(*ids)) == 50


def test_the_async_sdk_does_the_same(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """Async: whole, streamed, by the helper, models and errors."""

    async def run() -> None:
        async with asynchronous(sdk) as client:
            said: list[Any] = [{"role": "user", "content": "hi"}]
            done = await client.chat.completions.create(model="small", messages=said)
            assert done.choices[0].message.content == "Hello there."
            upstream.script = says("one two")
            async with client.chat.completions.stream(model="small", messages=said) as helped:
                final = await helped.get_final_completion()
            assert final.choices[0].message.content == "one two"
            assert [model.id async for model in client.models.list()] == ["small"]
            with pytest.raises(openai.NotFoundError):
                await client.chat.completions.create(model="none-such", messages=said)

    asyncio.run(run())


def test_a_large_body_arrives_whole(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """An image of two megabytes is no text: it is forwarded as it came."""
    url = "data:image/png;base64," + "A" * 2_000_000
    parts: Any = [
        {"type": "text", "text": "What is this?"},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
    ]
    got = sdk.chat.completions.create(model="small", messages=[{"role": "user", "content": parts}])
    assert got.choices[0].message.content == "Hello there."
    assert upstream.last.messages[0]["content"] == parts
    assert json.loads(upstream.last.body)["model"] == "scripted"


def stored(name: str) -> dict[str, str]:
    """What an application sends along that leaves its history to Tidemark."""
    return {"X-Tidemark-Conversation": name, "X-Tidemark-History": "stored"}


def test_an_application_sends_its_new_messages_only(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """With ``extra_headers``; streamed or not, the model gets the whole conversation, compacted where it is long."""
    action = ""
    for turn in range(14):
        asked: Any = [user(long(turn, 200))]
        if turn % 2:
            made = sdk.chat.completions.with_raw_response.create(
                model="small", messages=asked, max_tokens=100, extra_headers=stored("sdk")
            )
            assert made.parse().choices[0].message.content == "Hello there."
            action = made.headers["x-tidemark-action"]
        else:
            with sdk.chat.completions.create(
                model="small", messages=asked, max_tokens=100, stream=True, extra_headers=stored("sdk")
            ) as chunks:
                assert "".join(one.choices[0].delta.content or "" for one in chunks) == "Hello there."
    sent = upstream.last.messages
    assert action == "reused"
    assert sent[0]["content"].startswith("Summary of earlier turns")
    assert sent[-1] == user(long(13, 200))
    assert [one["role"] for one in sent[1:]] == ["user", "assistant"] * (len(sent) // 2 - 1) + ["user"]


def test_an_application_learns_of_a_conflict(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """As the SDK's own ``ConflictError``, with its code."""
    upstream.script = lambda _: streamed("slowly, slowly, slowly", pace=0.3)
    first = sdk.chat.completions.create(
        model="small", messages=[{"role": "user", "content": "One."}], stream=True, extra_headers=stored("conflict")
    )
    next(iter(first))
    with pytest.raises(openai.ConflictError) as caught:
        sdk.chat.completions.create(
            model="small", messages=[{"role": "user", "content": "Two."}], extra_headers=stored("conflict")
        )
    assert caught.value.code == "conversation_conflict"
    assert [one for one in first if one.choices[0].finish_reason]


def test_the_sdk_tries_again_until_the_turn_is_free(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """Its own retries, which applications leave on, heed ``Retry-After``."""
    patient = sdk.with_options(max_retries=5)
    upstream.script = lambda received: (
        streamed("one two three", pace=0.2) if received.json.get("stream") else whole("Second.")
    )
    with patient.chat.completions.create(
        model="small", messages=[{"role": "user", "content": "One."}], stream=True, extra_headers=stored("patient")
    ) as first:
        chunks = iter(first)
        next(chunks)
        reading = Thread(target=lambda: [None for _ in chunks])
        reading.start()
        made = patient.chat.completions.create(
            model="small", messages=[{"role": "user", "content": "Two."}], extra_headers=stored("patient")
        )
        reading.join()
    assert made.choices[0].message.content == "Second."
    assert [one["content"] for one in upstream.last.messages] == ["One.", "one two three", "Two."]
