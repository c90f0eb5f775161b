"""``client.responses`` of the official ``openai`` SDK through a real Tidemark: what its applications do every day."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI, DefaultAsyncHttpxClient, DefaultHttpxClient, OpenAI
from openai.types.responses import Response, ResponseInputItemParam, ResponseStreamEvent
from pydantic import BaseModel, TypeAdapter

from tests.dialects.responses.events import events_of, response, sse, text_item
from tests.request.conftest import Bench, benched
from tests.support.scripted import SSE_HEADERS, Answer, Received, ScriptedUpstream, error, says
from tests.support.serving import NO_TLS
from tidemark.core.conversation.summary import OPENING

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("imported_litellm")]

ITEM: TypeAdapter[Any] = TypeAdapter(ResponseInputItemParam)
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
LONG = "The harbour opens at seven, and the ferry to the islands leaves when the tide allows it. " * 6
TEXT = "Fine weather."
TOOLS: list[Any] = [
    {
        "type": "function",
        "name": "read",
        "strict": True,
        "parameters": {
            "type": "object",
            "properties": {"path": {"type": "string"}},
            "required": ["path"],
            "additionalProperties": False,
        },
    }
]


class Capital(BaseModel):
    """A structured answer."""

    city: str


@pytest.fixture(scope="module")
def bench(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """One for all of these tests; each has a key of its own, so that no conversation is met twice."""
    with benched(store_url, tmp_path_factory.mktemp("responses")) as made:
        yield made


@pytest.fixture(scope="module")
def base_url(bench: Bench) -> str:
    """What an application sets ``OPENAI_BASE_URL`` to; the model ``small`` has a window of 2,000 tokens."""
    return bench.start() + "/v1"


@pytest.fixture
def upstream(bench: Bench) -> ScriptedUpstream:
    """The upstream, with nothing received yet."""
    bench.upstream.received.clear()
    bench.upstream.script = agent
    return bench.upstream


@pytest.fixture
def sdk(base_url: str, upstream: ScriptedUpstream, request: pytest.FixtureRequest) -> Iterator[OpenAI]:
    """The SDK as applications make it, without retries."""
    http = DefaultHttpxClient(verify=NO_TLS)
    with OpenAI(base_url=base_url, api_key=request.node.nodeid, max_retries=0, timeout=30, http_client=http) as made:
        yield made


def agent(received: Received) -> Answer:
    """Calls a tool for what the user asks, and answers when it has the results; streamed or not as asked."""
    if not received.path.endswith("/responses"):
        return says(TEXT)(received)
    items, tools = received.json["input"], received.json.get("tools")
    results = [item for item in items if isinstance(item, dict) and item.get("type") == "function_call_output"]
    output = [text_item(TEXT)]
    if tools and (not results or items[-1].get("role") == "user"):
        number = sha256(received.body).hexdigest()[:8]
        calls = [
            {
                "type": "function_call",
                "id": f"fc_{number}_{one}",
                "call_id": f"call_{number}_{one}",
                "name": "read",
                "arguments": '{"path":"."}',
                "status": "completed",
            }
            for one in "ab"
        ]
        sealed = {"type": "reasoning", "id": f"rs_{number}", "summary": [], "encrypted_content": "gAAAA" * 40}
        output = [sealed, *calls]
    if received.json.get("stream"):
        return Answer([sse([event]) for event in events_of(output)], headers=list(SSE_HEADERS))
    return Answer([json.dumps(response(output)).encode()])


def assert_valid(received: Received, sent: list[Any]) -> None:
    """Assert that each forwarded item is one that the client sent, or one of the SDK's own types."""
    for item in received.json["input"]:
        if item not in sent:
            ITEM.validate_python(item, strict=True)


def test_a_string_is_answered(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """The first example of OpenAI's quickstart."""
    answer = sdk.responses.create(model="small", input="How is the weather?", instructions="Be brief.")
    assert answer.output_text == TEXT
    assert answer.usage is not None
    assert answer.usage.input_tokens == 11
    Response.model_validate(answer.model_dump(), strict=True)
    assert upstream.last.json == {"model": "scripted", "input": "How is the weather?", "instructions": "Be brief."}


def test_a_stream_is_answered_event_by_event(sdk: OpenAI) -> None:
    """Raw events and the SDK's own accumulation of them."""
    events = list(sdk.responses.create(model="small", input="How is the weather?", stream=True))
    for number, event in enumerate(events):
        EVENT.validate_python(event.model_dump(), strict=True)
        assert event.sequence_number == number
    assert "".join([event.delta for event in events if event.type == "response.output_text.delta"]) == TEXT
    with sdk.responses.stream(model="small", input="How is the weather?") as stream:
        stream.until_done()
        assert stream.get_final_response().output_text == TEXT


def test_the_asynchronous_client_is_answered(sdk: OpenAI) -> None:
    """Whole and streamed."""

    async def ask() -> list[str]:
        http = DefaultAsyncHttpxClient(verify=NO_TLS)
        async with AsyncOpenAI(base_url=sdk.base_url, api_key=sdk.api_key, http_client=http) as client:
            whole = await client.responses.create(model="small", input="Hi.")
            events = await client.responses.create(model="small", input="Hi.", stream=True)
            deltas = [event.delta async for event in events if event.type == "response.output_text.delta"]
        return [whole.output_text, "".join(deltas)]

    assert asyncio.run(ask()) == [TEXT, TEXT]


@pytest.mark.parametrize("echo", ["items", "dumped", "without ids"])
@pytest.mark.parametrize("stream", [False, True])
def test_an_agents_loop_crosses_the_high_water_as_one_conversation(
    sdk: OpenAI, upstream: ScriptedUpstream, echo: str, *, stream: bool
) -> None:
    """Calls, their reasoning and their results stay together; every item that goes out is valid."""
    items: list[Any] = [{"role": "developer", "content": "You read files."}]
    actions: list[str] = []
    names: set[str] = set()
    for turn in range(14):
        items.append({"role": "user", "content": f"Look at file {turn}. {LONG}"})
        output: list[Any] = []
        while not output or output[-1].type == "function_call":
            output, headers = answered(sdk, items, stream=stream)
            actions.append(headers["x-tidemark-action"])
            names.add(headers["x-tidemark-conversation"])
            items += [echoed(item, echo) for item in output]
            items += [
                {"type": "function_call_output", "call_id": item.call_id, "output": f"{item.call_id}: {LONG}"}
                for item in output
                if item.type == "function_call"
            ]
    assert "compacted" in actions
    assert "reused" in actions
    assert len(names) == 1
    for received in upstream.received:
        assert_valid(received, items)
        assert_whole_pairs(received.json["input"])
    assert upstream.last.json["input"][0] == items[0]
    assert upstream.last.json["input"][1]["content"].startswith(OPENING)


def answered(sdk: OpenAI, items: list[Any], *, stream: bool) -> tuple[list[Any], Any]:
    """The output items of an answer, and the response's headers."""
    if not stream:
        raw = sdk.responses.with_raw_response.create(
            model="small", input=items, tools=TOOLS, store=False, include=["reasoning.encrypted_content"]
        )
        return list(raw.parse().output), raw.headers
    events = sdk.responses.create(
        model="small", input=items, tools=TOOLS, store=False, include=["reasoning.encrypted_content"], stream=True
    )
    final = [event for event in events if event.type == "response.completed"]
    return list(final[0].response.output), events.response.headers


def echoed(item: Any, echo: str) -> dict[str, Any]:
    """An output item as different clients send it back."""
    dumped: dict[str, Any] = item.to_dict() if echo == "items" else item.model_dump()
    return dumped if echo != "without ids" else {name: dumped[name] for name in dumped.keys() - {"id", "status"}}


def assert_whole_pairs(items: list[Any]) -> None:
    """Assert that no call is without its result and its reasoning, and no result without its call."""
    calls = {item["call_id"] for item in items if item.get("type") == "function_call"}
    results = {item["call_id"] for item in items if item.get("type") == "function_call_output"}
    assert calls == results
    turns = {name.rpartition("_")[0] for name in calls}
    assert len([item for item in items if item.get("type") == "reasoning"]) == len(turns)


def test_a_talk_that_begins_in_chat_goes_on_in_responses_with_its_summary(
    sdk: OpenAI, upstream: ScriptedUpstream
) -> None:
    """And returns to chat completions."""
    talk: list[Any] = [{"role": "system", "content": "Be brief."}]
    headers: list[Any] = []

    def ask(question: str, *, in_chat: bool) -> str:
        talk.append({"role": "user", "content": question})
        if in_chat:
            chat = sdk.chat.completions.with_raw_response.create(model="small", messages=talk)
            headers.append(chat.headers)
            talk.append({"role": "assistant", "content": chat.parse().choices[0].message.content})
        else:
            answer = sdk.responses.with_raw_response.create(model="small", input=talk)
            headers.append(answer.headers)
            talk.append({"role": "assistant", "content": answer.parse().output_text})
        return str(headers[-1]["x-tidemark-action"])

    while ask(f"{len(talk)}: {LONG}", in_chat=True) != "compacted":
        assert len(talk) < 100
    assert ask("And the ferry?", in_chat=False) == "reused"
    assert ask("And the tide?", in_chat=True) == "reused"
    assert len({one["x-tidemark-conversation"] for one in headers}) == 1
    sent = [received.json.get("messages") or received.json["input"] for received in upstream.received[-3:]]
    assert sent[0][1]["content"].startswith(OPENING)
    assert sent[0][1] == sent[1][1] == sent[2][1]


def test_a_parsed_answer_has_the_applications_type(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """``responses.parse`` with a model of pydantic; the schema reaches the upstream unchanged."""
    upstream.script = lambda _: Answer([json.dumps(response([text_item('{"city": "Bern"}')])).encode()])
    answer = sdk.responses.parse(model="small", input="Where?", text_format=Capital)
    assert answer.output_parsed == Capital(city="Bern")
    assert upstream.last.json["text"]["format"]["type"] == "json_schema"


def test_input_tokens_are_counted(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """``client.responses.input_tokens.count``, without the upstream."""
    counted = sdk.responses.input_tokens.count(model="small", input="How is the weather?", tools=TOOLS)
    assert counted.object == "response.input_tokens"
    assert counted.input_tokens > 20
    assert upstream.received == []


def test_errors_are_the_sdks_own(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """Tidemark's before, the upstream's after."""
    wrong: Any = [{"role": "critic", "content": "Hi."}]
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.responses.create(model="small", input=wrong)
    assert refused.value.param == "input[0].role"
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.responses.create(model="small", input="word " * 3_000)
    assert refused.value.code == "context_length_exceeded"
    upstream.script = lambda _: error(429, "slow down", code="rate_limit_exceeded")
    with pytest.raises(openai.RateLimitError):
        sdk.responses.create(model="small", input="Hi.")


def test_a_stream_that_breaks_off_has_an_error_event(sdk: OpenAI, upstream: ScriptedUpstream) -> None:
    """The SDK gives it to the application, in order."""
    events = events_of([text_item(TEXT)])[:5]
    upstream.script = lambda _: Answer([sse(events)], headers=list(SSE_HEADERS))
    *before, last = sdk.responses.create(model="small", input="Hi.", stream=True)
    assert len(before) == 5
    assert last.type == "error"
    assert (last.code, last.sequence_number) == ("upstream_incomplete", 5)
    EVENT.validate_python(last.model_dump(), strict=True)
