"""The Responses API through the whole of Tidemark: compaction, reuse, streams, stored history, errors and counts."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from tests.dialects.responses.events import CALL, REASONING, events_of, response, sse, text_item
from tests.request.conftest import Bench, Client
from tests.request.talk import user
from tests.support.scripted import SSE_HEADERS, Answer, Received, error, says
from tidemark.codings import opened_reply
from tidemark.core.conversation.summary import OPENING
from tidemark.core.lessons import Lessons
from tidemark.core.ports import Caller
from tidemark.dialects.responses.dialect import ResponsesDialect
from tidemark.pipeline.token_count import InputTokenCounting
from tidemark.tokens import LocalTokenCounter
from tidemark.upstream.upstream import LiteLLMUpstream

PATH = "/v1/responses"
LONG = "The harbour opens at seven, and the ferry to the islands leaves when the tide allows it. " * 6
TEXT = "Fine weather."


def answered(request: Received) -> Answer:
    """An upstream that speaks both formats."""
    if request.path != PATH:
        return says(TEXT)(request)
    if request.json.get("stream"):
        return Answer([sse([event]) for event in events_of([text_item(TEXT)])], headers=list(SSE_HEADERS))
    return Answer([json.dumps(response([text_item(TEXT)]), indent=2).encode()])


@dataclass
class Responder:
    """A client of the Responses API."""

    client: Client

    def post(self, body: Any, path: str = PATH, **asked: str) -> httpx.Response:
        """Send a body."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.client.http.post(path, content=content, headers=self.client.headers(**asked))

    def ask(self, items: Any, *, members: dict[str, Any] | None = None, **asked: str) -> httpx.Response:
        """Send items."""
        return self.post({"model": "small", "input": items, "max_output_tokens": 100, **(members or {})}, **asked)


@pytest.fixture
def responder(bench: Bench, client: Client) -> Responder:
    """A client of a Tidemark before such an upstream."""
    bench.upstream.script = answered
    return Responder(client)


def item(role: str, text: str) -> dict[str, Any]:
    """An easy message."""
    return {"role": role, "content": text}


def long_talk(exchanges: int) -> list[dict[str, Any]]:
    """A talk with a question at its end."""
    items = [item("developer", "Be brief.")]
    for number in range(exchanges):
        items += [item("user", f"{number}: {LONG}"), item("assistant", TEXT)]
    return [*items, item("user", "And now?")]


def test_a_request_under_budget_goes_out_as_it_came(bench: Bench, responder: Responder) -> None:
    """Promise 1: only the model's name changes, and the reply's bytes are the upstream's."""
    body = b'{ "model":"small", "odd": [1.0, {"x":null}],\n "input" : [ {"role":"user","content":"Hi."} ] }'
    answer = responder.post(body)
    assert answer.content == json.dumps(response([text_item(TEXT)]), indent=2).encode()
    assert answer.headers["x-tidemark-action"] == "none"
    assert bench.upstream.last.path == PATH
    assert bench.upstream.last.json == json.loads(body) | {"model": "scripted"}
    responder.ask("Hi.")
    assert bench.upstream.last.json["input"] == "Hi."


def test_a_long_talk_is_compacted_and_its_prefix_stays_frozen(bench: Bench, responder: Responder) -> None:
    """The summary is an item after the leading ones; the next request reuses it, byte for byte."""
    talk = long_talk(18)
    first = responder.ask(talk, members={"instructions": "Answer in English."})
    assert first.headers["x-tidemark-action"] == "compacted"
    forwarded = bench.upstream.last.json["input"]
    assert bench.upstream.last.json["instructions"] == "Answer in English."
    assert forwarded[0] == item("developer", "Be brief.")
    assert forwarded[1]["role"] == "system"
    assert forwarded[1]["content"].startswith(OPENING)
    assert forwarded[-1] == item("user", "And now?")
    before = bench.upstream.last.body.partition(b'"input":')[2].rpartition(b"]")[0]
    second = responder.ask([*talk, text_item(TEXT), item("user", "And later?")])
    assert second.headers["x-tidemark-action"] == "reused"
    assert before in bench.upstream.last.body


def test_a_call_is_never_cut_from_its_reasoning_and_its_result(bench: Bench, responder: Responder) -> None:
    """Whatever is summarized."""
    items: list[dict[str, Any]] = [item("user", "Go.")]
    for number in range(30):
        name = f"call_{number}"
        items += [
            {**REASONING, "id": f"rs_{number}"},
            {**CALL, "id": f"fc_{number}", "call_id": name},
            {"type": "function_call_output", "call_id": name, "output": LONG},
        ]
    answer = responder.ask(items)
    assert answer.headers["x-tidemark-action"] == "compacted"
    forwarded = bench.upstream.last.json["input"]
    kinds = [sent.get("type") for sent in forwarded if sent.get("role") not in ("system", "user")]
    assert kinds == ["reasoning", "function_call", "function_call_output"] * (len(kinds) // 3)
    assert 0 < len(kinds) < 90


@pytest.mark.parametrize("echo", [text_item(TEXT), {"role": "assistant", "content": TEXT}])
def test_a_stream_is_carried_and_its_turn_is_stored(responder: Responder, echo: dict[str, Any]) -> None:
    """The stored reply makes the client's next request go on with the same conversation, with ids or without."""
    first = responder.ask([item("user", "How is the weather?")], members={"stream": True})
    assert first.content == sse(events_of([text_item(TEXT)]))
    again = responder.ask([item("user", "How is the weather?"), echo, item("user", "And the tide?")])
    assert again.headers["x-tidemark-conversation"] == first.headers["x-tidemark-conversation"]


def test_stored_history_supplies_the_earlier_turns(bench: Bench, responder: Responder) -> None:
    """The client sends its new turn only; the answer goes out as a client would send it."""
    for text in ("How is the weather?", "And the tide?"):
        responder.ask([item("user", text)], history="stored", conversation="harbour")
    assert bench.upstream.last.json["input"] == [
        item("user", "How is the weather?"),
        {"type": "message", **item("assistant", TEXT)},
        item("user", "And the tide?"),
    ]


def test_a_talk_goes_on_in_the_other_dialect_with_its_summary(bench: Bench, responder: Responder) -> None:
    """From chat completions to Responses, and back."""
    talk = long_talk(18)
    chat = [*talk, item("assistant", TEXT)]
    first = responder.client.chat([{**told, "role": told["role"].replace("developer", "system")} for told in talk])
    assert first.headers["x-tidemark-action"] == "compacted"
    second = responder.ask([*talk, text_item(TEXT), item("user", "And later?")])
    third = responder.client.chat([*chat, user("And later?"), item("assistant", TEXT), user("And then?")])
    for answer in (second, third):
        assert answer.headers["x-tidemark-action"] == "reused"
        assert answer.headers["x-tidemark-conversation"] == first.headers["x-tidemark-conversation"]


def test_a_request_that_asks_the_provider_to_compact_is_carried_whole(bench: Bench, responder: Responder) -> None:
    """``X-Tidemark-Warning`` says why."""
    talk = long_talk(18)
    answer = responder.ask(talk, members={"truncation": "auto"})
    assert answer.headers["x-tidemark-action"] == "none"
    assert "truncation" in answer.headers["x-tidemark-warning"]
    assert bench.upstream.last.json["input"] == talk


def test_an_upstreams_error_reaches_the_client_unchanged(bench: Bench, responder: Responder) -> None:
    """Status, body and headers."""
    bench.upstream.script = lambda _: error(429, "slow down", code="rate_limit_exceeded")
    answer = responder.ask("Hi.")
    assert (answer.status_code, answer.json()["error"]["message"]) == (429, "slow down")


def test_a_malformed_request_is_refused_with_its_member(responder: Responder) -> None:
    """In OpenAI's envelope."""
    answer = responder.ask([{"role": "critic", "content": "Hi."}])
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input[0].role")
    answer = responder.post({"model": "small"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "input")


def test_a_stream_that_breaks_off_ends_with_an_error_in_order(bench: Bench, responder: Responder) -> None:
    """An event ``error``, numbered after the last event that came."""
    events = events_of([text_item(TEXT)])[:5]
    bench.upstream.script = lambda _: Answer([sse(events)], headers=list(SSE_HEADERS))
    answer = responder.ask("Hi.", members={"stream": True})
    assert answer.content.startswith(sse(events))
    name, data = answer.text.strip().rpartition("\n\n")[2].split("\n")
    assert name == "event: error"
    last = json.loads(data.removeprefix("data: "))
    assert (last["type"], last["code"], last["sequence_number"]) == ("error", "upstream_incomplete", 5)


TOO_LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."
WINDOW = "This model's maximum context length is 1200 tokens. Please adjust your input and try again."


def refused_stream(message: str) -> list[bytes]:
    """A stream that finds the input too long, as OpenAI's are."""
    failure = {"code": "context_length_exceeded", "message": message}
    event = {"type": "error", "error": {"type": "invalid_request_error", "param": "input", **failure}}
    events = [
        *events_of([])[:2],
        {**event, "sequence_number": 2},
        {"type": "response.failed", "sequence_number": 3, "response": response([], "failed", error=failure)},
    ]
    return [sse([one]) for one in events]


@pytest.mark.parametrize("message", [TOO_LONG, WINDOW])
@pytest.mark.parametrize("members", [{}, {"truncation": "auto"}])
def test_a_stream_that_was_too_long_is_sent_once_more(
    bench: Bench, responder: Responder, members: dict[str, Any], message: str
) -> None:
    """OpenAI says so in its first events; the client sees one stream, that of the smaller request."""
    first = Answer(refused_stream(message), headers=list(SSE_HEADERS))
    bench.upstream.script = lambda received: first if len(bench.upstream.received) == 1 else answered(received)
    answer = responder.ask(long_talk(9), members={"stream": True, **members})
    assert answer.content == sse(events_of([text_item(TEXT)]))
    assert answer.headers["x-tidemark-action"] == "compacted"
    assert "sent again" in answer.headers["x-tidemark-warning"]
    sizes = [len(received.body) for received in bench.upstream.received]
    assert len(sizes) == 2
    assert sizes[1] < sizes[0]


@pytest.mark.parametrize("is_late", [False, True])
def test_a_refusal_that_cannot_be_mended_reaches_the_client(
    bench: Bench, responder: Responder, monkeypatch: pytest.MonkeyPatch, *, is_late: bool
) -> None:
    """Byte for byte: nothing could be shortened, or the refusal came after the events had to go on."""
    if is_late:
        monkeypatch.setattr(opened_reply, "HOLD_SECONDS", 0.0)
    pieces = refused_stream(TOO_LONG)
    bench.upstream.script = lambda _: Answer(pieces, headers=list(SSE_HEADERS))
    items = long_talk(9) if is_late else [item("user", "word " * 1_500)]
    answer = responder.ask(items, members={"stream": True})
    assert answer.content == b"".join(pieces)
    assert len(bench.upstream.received) == 1


def test_a_background_response_is_carried_and_completes_no_turn(bench: Bench, responder: Responder) -> None:
    """Its answer comes later, and not through this request."""
    body = response([], "queued", background=True)
    bench.upstream.script = lambda _: Answer([json.dumps(body).encode()])
    answer = responder.ask("Hi.", members={"background": True, "include": ["reasoning.encrypted_content"]})
    assert answer.json() == body
    assert bench.upstream.last.json["background"] is True
    assert bench.upstream.last.json["include"] == ["reasoning.encrypted_content"]


def test_tokens_are_counted_without_the_upstream(bench: Bench, responder: Responder) -> None:
    """As the headers of the request itself count them."""
    body = {"model": "small", "input": "Hi.", "instructions": "Be brief."}
    answer = responder.post(body, PATH + "/input_tokens")
    assert answer.json()["object"] == "response.input_tokens"
    assert bench.upstream.received == []
    sent = responder.post(body)
    assert answer.json()["input_tokens"] == int(sent.headers["x-tidemark-tokens-before"])
    assert responder.post({"input": "Hi."}, PATH + "/input_tokens").json()["input_tokens"] > 3
    refused = responder.post({"model": "small"}, PATH + "/input_tokens")
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "input")


def test_tokens_of_the_earlier_conversation_are_counted_too(bench: Bench, responder: Responder) -> None:
    """Where the request names it by an earlier response."""
    bench.upstream.script = answered
    earlier = responder.ask("How is the weather? " + LONG, members={"store": True}).json()["id"]
    members = {"model": "small", "input": "And the tide?"}
    alone, whole = (
        responder.post(body, PATH + "/input_tokens").json()["input_tokens"]
        for body in (members, {**members, "previous_response_id": earlier})
    )
    assert whole > alone + 100


def test_a_provider_that_counts_itself_is_asked(bench: Bench) -> None:
    """At its own address, with the model's name there."""

    async def count() -> bytes:
        upstream = LiteLLMUpstream(
            [
                {
                    "model_name": "small",
                    "litellm_params": {"model": "openai/scripted", "api_base": f"{bench.upstream_url}/v1"},
                }
            ]
        )
        counting = InputTokenCounting(upstream, LocalTokenCounter(), lambda _: True, Lessons(lambda: 0.0))
        try:
            reply = await counting.count(
                ResponsesDialect(), b'{"model": "small", "input": "Hi."}', Caller(b"", ()), "/responses/input_tokens"
            )
            assert not isinstance(reply, int)
            return b"".join([chunk async for chunk in reply.body()])
        finally:
            await upstream.aclose()

    assert json.loads(asyncio.run(count())) == {"object": "response.input_tokens", "input_tokens": 42}
    assert bench.upstream.last.path == "/v1/responses/input_tokens"
    assert bench.upstream.last.json == {"model": "scripted", "input": "Hi."}
