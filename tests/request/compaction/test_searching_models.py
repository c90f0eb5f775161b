"""The search function as a client sees it: a model finds what a summary lacks, and the client sees one answer."""

from __future__ import annotations

import gzip
import json
import re
import socket
from dataclasses import replace
from typing import Any

import httpx
import pytest
import respx

from tests.request.compaction.test_recall import FACT, QUESTION, talk_with_fact
from tests.request.compaction.test_recall_in_place import TRANSLATED
from tests.request.conftest import Bench, Client
from tests.request.talk import Said, assistant, history, long, user
from tests.request.wire.test_leaving_clients import CHAT, LONG, send_request
from tests.support.answers import SSE_HEADERS
from tests.support.chat_answers import DONE, chunk, event, failure
from tests.support.scripted import Answer, Call, Received, Script, Turn, error, refuses, says, tells
from tests.support.waiting import wait_until
from tests.upstream import anthropic
from tidemark.core.recall.search_function import (
    BEYOND,
    FUNCTION_NAME,
    MOST_SEARCHES,
    NO_MESSAGE,
    NO_QUERY,
    NO_RANGE,
    NOTHING,
    RESULT_CLOSING,
    RESULT_OPENING,
)
from tidemark.dialects.chat.dialect import DEFINITION
from tidemark.pipeline.notices import NO_SEARCH

TOOL = ", max_summary_tokens: 64, recall: {tool: true}"
SEARCH = Call(FUNCTION_NAME, json.dumps({"query": "code of the archive's door"}))
ANSWER = "The code is 7731-QX."
WEATHER = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
TALK = [*talk_with_fact(), QUESTION]


def searches_then(answer: Turn, *first: Turn) -> Script:
    """Answer one request after the other with ``first``, and all following ones with ``answer``."""
    turns = list(first)

    def script(request: Received) -> Answer:
        return tells(turns.pop(0) if turns else answer)(request)

    return script


def sse(*pieces: bytes) -> Answer:
    """A stream of these events."""
    return Answer([*pieces, DONE], headers=list(SSE_HEADERS))


@pytest.fixture
def searching(bench: Bench, request: pytest.FixtureRequest) -> Client:
    """A client of a Tidemark whose models may search."""
    bench.upstream.script = searches_then(Turn(ANSWER), Turn(calls=(SEARCH,)))
    return bench.client(request.node.nodeid, more=TOOL)


def body_of(messages: list[Said], **members: Any) -> dict[str, Any]:
    """The body of a request."""
    return {"model": "small", "messages": messages, "max_tokens": 100, **members}


def events(text: str) -> list[dict[str, Any]]:
    """The chunks of a stream."""
    lines = [line[6:] for line in text.splitlines() if line.startswith("data: ")]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def said_in(chunks: list[dict[str, Any]]) -> str:
    """The text of a stream."""
    deltas = [choice["delta"] for one in chunks for choice in one.get("choices", ())]
    return "".join(delta.get("content") or "" for delta in deltas)


def tools_of(request: Received) -> list[str]:
    """The names of the functions that a request offers."""
    return [tool["function"]["name"] for tool in request.json.get("tools", ())]


def test_a_search_is_answered_within_the_request(bench: Bench, searching: Client) -> None:
    """The upstream gets the call and its result, word for word and framed; the client gets the answer alone."""
    got = searching.chat(TALK)
    first, second = bench.upstream.received
    assert tools_of(first) == tools_of(second) == [FUNCTION_NAME]
    call, result = second.messages[-2:]
    assert second.messages[:-2] == first.messages
    assert call["tool_calls"][0]["function"]["name"] == FUNCTION_NAME
    assert result["tool_call_id"] == call["tool_calls"][0]["id"]
    assert result["content"].startswith(RESULT_OPENING)
    assert result["content"].endswith(RESULT_CLOSING)
    handle, other = re.findall(r"<<<(?:user|assistant) (m[0-9a-f]{8})\n", result["content"])
    quotes = f"<<<user {handle}\n{FACT}\n>>>\n<<<assistant {other}\nI will remember the door.\n>>>"
    assert quotes in result["content"]
    choice = got.json()["choices"][0]
    assert choice["message"]["content"] == ANSWER
    assert "tool_calls" not in choice["message"]
    assert choice["finish_reason"] == "stop"
    assert FUNCTION_NAME not in got.text


def test_the_tokens_of_an_answer_are_those_of_all_rounds(searching: Client) -> None:
    """Members within members too; the provider bills them all."""
    got = searching.chat(TALK).json()["usage"]
    assert (got["prompt_tokens"], got["completion_tokens"], got["total_tokens"]) == (22, 10, 32)
    assert got["prompt_tokens_details"] == {"cached_tokens": 14}


def test_a_stream_stays_one_stream(bench: Bench, searching: Client) -> None:
    """One role, one id, one reason to end, the tokens of all rounds, and nothing of the search."""
    got = searching.post(body_of(TALK, stream=True, stream_options={"include_usage": True}))
    assert len(bench.upstream.received) == 2
    assert FUNCTION_NAME not in got.text
    assert got.text.count("[DONE]") == 1
    chunks = events(got.text)
    choices = [choice for one in chunks for choice in one["choices"]]
    assert said_in(chunks) == ANSWER
    assert [choice["finish_reason"] for choice in choices if choice["finish_reason"]] == ["stop"]
    assert sum("role" in choice["delta"] for choice in choices) == 1
    assert not any("tool_calls" in choice["delta"] for choice in choices)
    assert [one["usage"]["total_tokens"] for one in chunks if one.get("usage")] == [32]


def test_all_chunks_of_a_stream_have_the_head_of_its_first(bench: Bench, searching: Client) -> None:
    """Each round of the upstream has an id of its own; clients join chunks by it."""
    texts = iter(("one", "two"))

    def script(request: Received) -> Answer:
        head = {"id": next(texts), "created": len(bench.upstream.received)}
        call = {"index": 0, "id": "c", "type": "function", "function": {"name": FUNCTION_NAME, "arguments": "{}"}}
        delta = {"content": "Found."} if request.has_results else {"tool_calls": [call]}
        ends = {"index": 0, "delta": {}, "finish_reason": "stop"}
        return sse(event(**head, choices=[{"index": 0, "delta": delta}]), event(**head, choices=[ends]))

    bench.upstream.script = script
    chunks = events(searching.post(body_of(TALK, stream=True)).text)
    assert said_in(chunks) == "Found."
    assert {(one["id"], one["created"]) for one in chunks} == {("one", 1)}


@pytest.mark.parametrize("stream", [False, True])
def test_a_text_before_the_search_stays(bench: Bench, searching: Client, *, stream: bool) -> None:
    """A stream has sent it already; the answer goes on in a paragraph of its own, and the model sees its own text."""
    bench.upstream.script = searches_then(Turn(ANSWER), Turn("Let me look.", calls=(SEARCH,)))
    got = searching.post(body_of(TALK, stream=stream))
    text = said_in(events(got.text)) if stream else got.json()["choices"][0]["message"]["content"]
    assert text == f"Let me look.\n\n{ANSWER}"
    assert bench.upstream.last.messages[-2]["content"] == "Let me look."


@pytest.mark.parametrize("stream", [False, True])
def test_the_stored_history_has_the_answer_alone(bench: Bench, searching: Client, *, stream: bool) -> None:
    """Neither call nor result is stored, and the conversation goes on from the answer that the client got."""
    got = searching.post(body_of(TALK, stream=stream), conversation="c")
    bench.settle()
    path = f"/tidemark/conversations/{got.headers['x-tidemark-conversation']}/export"
    stored = searching.http.get(path, headers=searching.headers())
    assert FUNCTION_NAME not in stored.text
    assert json.loads(stored.text.splitlines()[-1])["content"] == ANSWER
    bench.upstream.script = says("Fine.")
    again = searching.post(body_of([*TALK, assistant(ANSWER), user("Thanks.")]), conversation="c")
    assert again.headers["x-tidemark-conversation"] == got.headers["x-tidemark-conversation"]
    assert again.headers["x-tidemark-action"] == "reused"


@pytest.mark.parametrize("stream", [False, True])
def test_a_stored_history_is_searched_too(bench: Bench, searching: Client, *, stream: bool) -> None:
    """The client sends the question alone; what is searched is what Tidemark keeps, and the search is not kept."""
    bench.upstream.script = says("Fine.")
    searching.chat(TALK[:-1], conversation="talk", history="stored")
    bench.settle()
    bench.upstream.script = searches_then(Turn(ANSWER), Turn(calls=(SEARCH,)))
    got = searching.post(body_of([QUESTION], stream=stream), conversation="talk", history="stored")
    text = said_in(events(got.text)) if stream else got.json()["choices"][0]["message"]["content"]
    assert text == ANSWER
    assert FUNCTION_NAME not in got.text
    assert FACT in bench.upstream.last.messages[-1]["content"]
    bench.settle()
    path = f"/tidemark/conversations/{got.headers['x-tidemark-conversation']}/export"
    stored = searching.http.get(path, headers=searching.headers())
    assert FUNCTION_NAME not in stored.text
    assert json.loads(stored.text.splitlines()[-1])["content"] == ANSWER


def test_a_conversation_without_a_summary_goes_out_byte_for_byte(bench: Bench, searching: Client) -> None:
    """The whole conversation is in context, so there is nothing to search."""
    bench.upstream.script = says("Hello.")
    body = json.dumps(body_of([*history(2), QUESTION]), indent=1).encode()
    searching.post(body)
    assert json.loads(bench.upstream.last.body) == {**json.loads(body), "model": "scripted"}
    assert FUNCTION_NAME.encode() not in bench.upstream.last.body


def test_the_function_is_off_by_default(bench: Bench, client: Client) -> None:
    """Each search is a request more, which the operator has to want."""
    client.chat(TALK)
    assert client.chat(TALK).headers["x-tidemark-action"] == "reused"
    assert FUNCTION_NAME.encode() not in bench.upstream.last.body


def test_the_function_stands_after_the_tools_of_the_client(bench: Bench, searching: Client) -> None:
    """The same bytes in every request, so that the provider's cache keeps them; the client's own keep theirs."""
    searching.post(body_of(TALK, tools=[WEATHER]))
    for received in bench.upstream.received:
        assert tools_of(received) == ["weather", FUNCTION_NAME]
        assert received.body.count(DEFINITION) == 1
        assert json.dumps(WEATHER).encode() in received.body


@pytest.mark.parametrize(
    "members",
    [
        {"tools": [WEATHER], "tool_choice": "none"},
        {"tools": [WEATHER], "tool_choice": "required"},
        {"tools": [WEATHER], "tool_choice": {"type": "function", "function": {"name": "weather"}}},
        {"tools": [{"type": "function", "function": {"name": FUNCTION_NAME}}]},
        {"functions": [{"name": "weather"}]},
        {"n": 2},
    ],
    ids=["none", "required", "forced", "same name", "legacy", "choices"],
)
def test_what_the_client_chose_is_respected(bench: Bench, searching: Client, members: dict[str, Any]) -> None:
    """No function, one of its own, or one of the same name: then the request goes out with its own members."""
    bench.upstream.script = says("Fine.")
    got = searching.post(body_of(TALK, **members))
    assert got.headers["x-tidemark-action"] == "compacted"
    sent = bench.upstream.last.json
    assert {name: sent[name] for name in members} == members
    assert not any(tool == json.loads(DEFINITION) for tool in sent.get("tools", ()))


@pytest.mark.parametrize("stream", [False, True])
def test_calls_of_the_client_go_through_without_the_search_beside_them(
    bench: Bench, searching: Client, *, stream: bool
) -> None:
    """The client answers its own call first; the model may search again then."""
    own = Call("weather", '{"place": "Lisbon"}')
    bench.upstream.script = tells(Turn("Both.", calls=(SEARCH, own)))
    got = searching.post(body_of(TALK, tools=[WEATHER], stream=stream))
    assert len(bench.upstream.received) == 1
    assert FUNCTION_NAME not in got.text
    if stream:
        choices = [choice for one in events(got.text) for choice in one["choices"]]
        pieces = [piece for choice in choices for piece in choice["delta"].get("tool_calls", ())]
        assert {piece["index"] for piece in pieces} == {0}, "an index left out would end some clients"
        calls = [{"function": {"name": "weather", "arguments": "".join(p["function"]["arguments"] for p in pieces)}}]
        reason = choices[-1]["finish_reason"]
    else:
        choice = got.json()["choices"][0]
        calls, reason = choice["message"]["tool_calls"], choice["finish_reason"]
    assert [(call["function"]["name"], call["function"]["arguments"]) for call in calls] == [(own.name, own.arguments)]
    assert reason == "tool_calls"


def test_the_function_stays_up_to_the_next_compaction(bench: Bench, searching: Client) -> None:
    """It stands before all messages in a provider's cache, so a compaction is due before it has no space."""
    bench.upstream.script = says("Fine.")
    talk, compactions = [*TALK], 0
    while compactions < 3:
        compactions += searching.chat(talk).headers["x-tidemark-action"] == "compacted"
        assert tools_of(bench.upstream.last) == [FUNCTION_NAME]
        talk += [assistant("Fine."), user(f"Berth {len(talk)} is free, I say, and what else is there to say?")]


def test_the_function_leaves_where_nothing_else_helps(bench: Bench, searching: Client) -> None:
    """A request that fits without it is not refused; its warning says so."""
    bench.upstream.script = says("Fine.")
    seen: list[tuple[bool, list[str]]] = []
    for count in range(1200, 2000, 20):  # as long as it fits at all
        got = searching.chat([*TALK, assistant("Fine."), user("word " * count)])
        if got.status_code != 200:
            break
        warned = NO_SEARCH in got.headers.get("x-tidemark-warning", "")
        seen.append((warned, tools_of(bench.upstream.last)))
    assert [tools for warned, tools in seen if not warned] == [[FUNCTION_NAME]] * sum(not warned for warned, _ in seen)
    assert [tools for warned, tools in seen if warned] == [[]] * sum(warned for warned, _ in seen)
    assert {warned for warned, _ in seen} == {False, True}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("tools", [[], [WEATHER]], ids=["alone", "with the client's"])
def test_the_number_of_searches_is_bounded(bench: Bench, searching: Client, *, stream: bool, tools: list[Any]) -> None:
    """The request after the last search offers no function, so that the model answers; one that calls it again ends."""
    bench.upstream.script = tells(Turn(calls=(SEARCH,)))
    got = searching.post(body_of(TALK, stream=stream, **({"tools": tools} if tools else {})))
    assert len(bench.upstream.received) == MOST_SEARCHES + 1
    last = bench.upstream.last.json
    assert last.get("tool_choice") == ("none" if not tools else None)
    assert tools_of(bench.upstream.last) == (["weather"] if tools else [FUNCTION_NAME])
    assert FUNCTION_NAME not in got.text
    choices = events(got.text)[-1]["choices"] if stream else got.json()["choices"]
    assert choices[0]["finish_reason"] == "stop"


def test_every_round_stays_within_the_limit(bench: Bench, searching: Client) -> None:
    """What the searches bring is counted, and the one that would pass the limit gets less."""
    bench.upstream.script = tells(Turn(calls=(SEARCH, SEARCH)))
    got = searching.chat(TALK)
    for received in list(bench.upstream.received):
        counted = searching.post({**received.json, "model": "small"}, summarize="off")
        assert int(counted.headers["x-tidemark-tokens-before"]) <= int(got.headers["x-tidemark-limit"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [('{"query": "zzzqqq xyzzyx"}', NOTHING), ("{}", NO_QUERY), ("no JSON", NO_QUERY), ('{"query": 7}', NO_QUERY)],
)
def test_a_search_for_nothing_is_told_so(bench: Bench, searching: Client, arguments: str, text: str) -> None:
    """The model goes on; arguments that are no object go back as an empty one, which every provider accepts."""
    bench.upstream.script = searches_then(Turn(ANSWER), Turn(calls=(Call(FUNCTION_NAME, arguments),)))
    assert searching.chat(TALK).json()["choices"][0]["message"]["content"] == ANSWER
    assert bench.upstream.last.messages[-1]["content"] == text
    assert isinstance(json.loads(bench.upstream.last.messages[-2]["tool_calls"][0]["function"]["arguments"]), dict)


def test_a_refused_function_is_not_offered_again(bench: Bench, searching: Client) -> None:
    """A server without functions refuses the request once; it gets the client's own, then and from then on."""

    def script(request: Received) -> Answer:
        return error(400, "this model does not support tools") if request.json.get("tools") else says("Fine.")(request)

    bench.upstream.script = script
    for sent in (2, 1):
        bench.upstream.received.clear()
        assert searching.chat(TALK).json()["choices"][0]["message"]["content"] == "Fine."
        assert len(bench.upstream.received) == sent


def test_a_function_that_was_refused_for_one_credential_is_offered_to_another(bench: Bench, searching: Client) -> None:
    """What is refused may be the text of one client, or what its key may do."""

    def script(request: Received) -> Answer:
        return error(400, "this model does not support tools") if request.json.get("tools") else says("Fine.")(request)

    bench.upstream.script = script
    assert searching.chat(TALK).status_code == 200
    bench.upstream.received.clear()
    assert Client(searching.http, "another key").chat(TALK).status_code == 200
    assert [bool(request.json.get("tools")) for request in bench.upstream.received] == [True, False]


def test_an_error_of_the_first_round_is_the_upstreams(bench: Bench, searching: Client) -> None:
    """It has nothing to do with the function."""
    bench.upstream.script = refuses(429, "slow down")
    got = searching.chat(TALK)
    assert (got.status_code, got.json()["error"]["message"]) == (429, "slow down")
    assert len(bench.upstream.received) == 1


def test_an_error_after_a_search_is_the_upstreams(bench: Bench, searching: Client) -> None:
    """Nothing was sent to the client, so it is an ordinary error."""

    def script(request: Received) -> Answer:
        return refuses(429, "slow down")(request) if request.has_results else tells(Turn(calls=(SEARCH,)))(request)

    bench.upstream.script = script
    got = searching.chat(TALK)
    assert (got.status_code, got.json()["error"]["message"]) == (429, "slow down")


@pytest.mark.parametrize("text", ["", "Let me look."])
def test_an_error_after_a_search_ends_a_stream(bench: Bench, searching: Client, text: str) -> None:
    """The stream has begun: the upstream's error is its last event, and no end is made up."""

    def script(request: Received) -> Answer:
        return refuses(429, "slow down")(request) if request.has_results else tells(Turn(text, (SEARCH,)))(request)

    bench.upstream.script = script
    got = searching.post(body_of(TALK, stream=True))
    assert said_in(events(got.text)) == text
    assert events(got.text)[-1]["error"]["message"] == "slow down"
    assert "[DONE]" not in got.text
    assert FUNCTION_NAME not in got.text


def test_a_stream_that_breaks_after_a_search_is_told(bench: Bench, searching: Client) -> None:
    """As any stream that its upstream cuts short."""

    def script(request: Received) -> Answer:
        told = tells(Turn(ANSWER) if request.has_results else Turn(calls=(SEARCH,)))(request)
        return told.cut(3, breaks=True) if request.has_results else told

    bench.upstream.script = script
    got = searching.post(body_of(TALK, stream=True))
    assert events(got.text)[-1]["error"]["code"] == "upstream_incomplete"


def test_an_error_within_a_round_is_passed_on(bench: Bench, searching: Client) -> None:
    """An event of an error in place of the end of a round: nothing more is asked."""
    piece = {"index": 0, "id": "c", "type": "function", "function": {"name": FUNCTION_NAME, "arguments": "{"}}
    bench.upstream.script = lambda _: sse(chunk(delta={"tool_calls": [piece]}), failure("overheated"))
    got = searching.post(body_of(TALK, stream=True))
    assert len(bench.upstream.received) == 1
    assert "overheated" in got.text


def test_a_search_cut_short_is_not_run(bench: Bench, searching: Client) -> None:
    """The reply's bound ended the call: the client gets the reason, and no call."""

    def script(request: Received) -> Answer:
        told = tells(Turn("Well.", calls=(SEARCH,)))(request)
        whole = b"".join([piece for piece in told.pieces if isinstance(piece, bytes)])
        return Answer([whole.replace(b'"finish_reason": "tool_calls"', b'"finish_reason": "length"')])

    bench.upstream.script = script
    got = searching.chat(TALK)
    choice = got.json()["choices"][0]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("length", "Well.")
    assert FUNCTION_NAME not in got.text
    assert len(bench.upstream.received) == 1


def test_a_compressed_answer_is_searched_too(bench: Bench, searching: Client) -> None:
    """An upstream may compress although it was asked not to; the client gets one readable answer."""

    def script(request: Received) -> Answer:
        told = tells(Turn(ANSWER) if request.has_results else Turn(calls=(SEARCH,)))(request)
        data = gzip.compress(b"".join([piece for piece in told.pieces if isinstance(piece, bytes)]))
        return Answer([data], headers=told.headers).with_headers(content_encoding="gzip")

    bench.upstream.script = script
    assert searching.chat(TALK).json()["choices"][0]["message"]["content"] == ANSWER
    assert said_in(events(searching.post(body_of(TALK, stream=True)).text)) == ANSWER


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_the_round(bench: Bench, searching: Client, *, stream: bool) -> None:
    """The upstream sees its connection closed, and nothing more is asked."""

    def script(request: Received) -> Answer:
        told = tells(Turn(ANSWER if request.has_results else "", () if request.has_results else (SEARCH,)))(request)
        return replace(told, before_headers=LONG) if request.has_results else told

    bench.upstream.script = script
    place = searching.http.base_url
    with socket.create_connection((place.host, int(place.port or 0)), timeout=20) as wire:
        send_request(wire, CHAT, "key", body_of(TALK, stream=stream))
        wait_until(lambda: len(bench.upstream.received) == 2, 20)
        assert not bench.upstream.last.gone
    wait_until(lambda: bench.upstream.last.gone, 20)


def test_an_answer_that_needs_no_search_keeps_its_bytes(bench: Bench, searching: Client) -> None:
    """Offering the function changes nothing of a reply that does not call it."""
    bench.upstream.script = says(ANSWER)
    offered = bench.upstream.script
    whole = searching.chat(TALK)
    answer = offered(bench.upstream.last)
    assert whole.content == b"".join([piece for piece in answer.pieces if isinstance(piece, bytes)])
    stream = searching.post(body_of(TALK, stream=True))
    told = offered(bench.upstream.last)
    assert stream.content == b"".join([piece for piece in told.pieces if isinstance(piece, bytes)])


def test_searches_are_counted(searching: Client) -> None:
    """By what they found."""
    searching.chat(TALK)
    metrics = searching.http.get("/metrics", headers=searching.headers()).text
    assert 'tidemark_recall_searches_total{outcome="recalled"} 1.0' in metrics


def test_a_request_that_litellm_translates_is_searched_too(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Anthropic's request has the function, the call and its result; the client gets one completion."""
    call = {"type": "tool_use", "id": "toolu_1", "name": FUNCTION_NAME, "input": {"query": "code archive door"}}
    client = bench.client(request.node.nodeid, config=TRANSLATED, more=TOOL)
    with respx.mock() as router:
        router.route(host="127.0.0.1").pass_through()
        answers = [
            httpx.Response(200, json=anthropic.message(call)),
            httpx.Response(200, json=anthropic.message({"type": "text", "text": ANSWER})),
        ]
        provider = router.post(anthropic.MESSAGES_URL).mock(side_effect=answers)
        got = client.chat(TALK)
    first, second = [json.loads(one.request.content) for one in provider.calls]
    assert [tool["name"] for tool in first["tools"]] == [FUNCTION_NAME]
    assert second["messages"][: len(first["messages"])] == first["messages"]
    assert FACT in json.dumps(second["messages"][-1])
    assert got.json()["choices"][0]["message"]["content"] == ANSWER
    assert FUNCTION_NAME not in got.text


def test_recall_and_searches_go_together(bench: Bench, request: pytest.FixtureRequest) -> None:
    """What was put back is in the request already, and the function stands beside it."""
    client = bench.client(request.node.nodeid, more=", max_summary_tokens: 64, recall: {tool: true, max_tokens: 150}")
    bench.upstream.script = searches_then(Turn(ANSWER), Turn(calls=(SEARCH,)))
    got = client.chat(TALK)
    assert got.json()["choices"][0]["message"]["content"] == ANSWER
    assert int(got.headers["x-tidemark-recalled-tokens"]) > 0
    assert FACT in bench.upstream.last.messages[-1]["content"]


def test_a_request_that_is_too_long_is_no_refusal_of_the_function(bench: Bench, searching: Client) -> None:
    """OpenAI's error names the tokens of functions; the request goes out smaller, and still with the function."""
    text = (
        "This model's maximum context length is 1500 tokens. However, your messages resulted in 1700 tokens "
        "(1600 in the messages, 100 in the functions)."
    )
    answers = [error(400, text, code="context_length_exceeded")]

    def script(request: Received) -> Answer:
        return answers.pop() if answers else says(ANSWER)(request)

    bench.upstream.script = script
    assert searching.chat(TALK).json()["choices"][0]["message"]["content"] == ANSWER
    assert [tools_of(one) for one in bench.upstream.received] == [[FUNCTION_NAME]] * 2
    assert len(bench.upstream.received[1].body) < len(bench.upstream.received[0].body)


def test_a_stream_may_end_without_its_last_empty_line(bench: Bench, searching: Client) -> None:
    """The end of the connection ends the last event; here it says that the round only searches."""

    def script(request: Received) -> Answer:
        if request.has_results:
            return says(ANSWER)(request)
        call = {"index": 0, "id": "c", "type": "function", "function": {"name": FUNCTION_NAME, "arguments": "{}"}}
        ends = chunk(delta={}, finish_reason="tool_calls").rstrip()
        return Answer([chunk(delta={"tool_calls": [call]}), ends], headers=list(SSE_HEADERS))

    bench.upstream.script = script
    assert said_in(events(searching.post(body_of(TALK, stream=True)).text)) == ANSWER


def test_a_search_may_bring_more_than_recall_does_for_one_question(
    bench: Bench, request: pytest.FixtureRequest
) -> None:
    """8 % of the limit, in a window of any size: the ceiling of ``auto`` is for what nobody asked to search."""
    client = bench.client(request.node.nodeid, window=60_000, more=TOOL)
    doors = [one for number in range(60) for one in (user(f"Door {number}: {long(number, 500)}"), assistant("Noted."))]
    bench.upstream.script = searches_then(Turn(ANSWER), Turn(calls=(SEARCH,)))
    got = client.chat([*doors, *history(4), user("Go on.")], summarize="force")
    assert got.headers["x-tidemark-action"] == "forced"
    result = bench.upstream.last.messages[-1]
    assert result["role"] == "tool"
    assert len(result["content"]) > 3 * 2_000


def test_a_long_result_is_read_byte_for_byte_by_its_handle(bench: Bench, searching: Client) -> None:
    """A search finds a part of it, and the handle reads the rest, also over HTTP; nothing in it is changed."""
    lines = [f'{number:>3}\t{{"crate": "K-{number * 7919}", "note": "<<<\u00e4 >>>"}}  ' for number in range(400)]
    result = "\r\n".join(lines)
    asked = [user("List the crates of the harbour.")]
    call = {"id": "c1", "type": "function", "function": {"name": "crates", "arguments": "{}"}}
    listed: list[Said] = [*asked, {"role": "assistant", "content": None, "tool_calls": [call]}]
    listed += [{"role": "tool", "tool_call_id": "c1", "content": result}, {"role": "assistant", "content": "Done."}]
    talk = [*listed, *talk_with_fact(), QUESTION]
    wanted = Call(FUNCTION_NAME, json.dumps({"query": f"crate K-{200 * 7919}"}))
    handles: list[str] = []

    def script(request: Received) -> Answer:
        content = str(request.messages[-1]["content"])
        if request.messages[-1]["role"] != "tool":
            return tells(Turn(calls=(wanted,)))(request)
        if not handles:
            assert f"K-{200 * 7919}" in content
            handles.extend(re.findall(r"<<<tool (m[0-9a-f]{8}) \(400 lines\)\n", content))
            arguments = json.dumps({"handle": handles[0], "range": "lines 201-203"})
            return tells(Turn(calls=(Call(FUNCTION_NAME, arguments),)))(request)
        heading, _, text = content.partition("\n")
        assert heading.startswith(f"{handles[0]} (tool), lines 201-203 of 400.")
        assert text == "\r\n".join(lines[200:203]) + "\r\n"
        return says(ANSWER)(request)

    bench.upstream.script = script
    got = searching.chat(talk)
    assert got.json()["choices"][0]["message"]["content"] == ANSWER
    assert len(handles) == 1
    bench.settle()
    path = f"/tidemark/conversations/{got.headers['x-tidemark-conversation']}/results"
    read = searching.http.get(f"{path}/{handles[0]}", headers=searching.headers())
    assert (read.status_code, read.content) == (200, result.encode())
    assert read.headers["content-type"].startswith("text/plain")
    missing = searching.http.get(f"{path}/m00000000", headers=searching.headers())
    assert (missing.status_code, missing.json()["error"]["code"]) == (404, "message_not_found")
    other = searching.http.get(f"{path}/{handles[0]}", headers={"authorization": "Bearer another"})
    assert (other.status_code, other.json()["error"]["code"]) == (404, "conversation_not_found")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ('{"handle": "m00000000"}', NO_MESSAGE),
        ('{"handle": "%s", "range": "all of it"}', NO_RANGE),
        ('{"handle": "%s", "range": "lines 9-12"}', BEYOND.format(lines=1, size=len(FACT))),
    ],
)
def test_a_call_that_reads_nothing_is_told_why(bench: Bench, searching: Client, arguments: str, text: str) -> None:
    """A handle that nothing has, a range in other words, one behind the end."""
    bench.upstream.script = searches_then(Turn(ANSWER), Turn(calls=(SEARCH,)))
    searching.chat(TALK)
    handle = re.findall(r"<<<user (m[0-9a-f]{8})\n", bench.upstream.last.messages[-1]["content"])[0]
    if "%s" in arguments:
        arguments %= handle
    bench.upstream.script = searches_then(Turn(ANSWER), Turn(calls=(Call(FUNCTION_NAME, arguments),)))
    assert searching.chat(TALK).json()["choices"][0]["message"]["content"] == ANSWER
    assert bench.upstream.last.messages[-1]["content"] == text
