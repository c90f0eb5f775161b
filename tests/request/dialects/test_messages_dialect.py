"""Anthropic's Messages API runs through the whole pipeline: budgets, summaries, stored turns, errors and streams."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import httpx
import pytest
from anthropic.types import ErrorResponse

from tests.dialects.messages.anthropic_talk import (
    CACHED,
    assistant,
    calls,
    event,
    events_in,
    result,
    streamed_reply,
    streamed_text,
    text,
    thinking,
    user,
    whole_reply,
)
from tests.request.conftest import Bench, Client
from tests.request.talk import long
from tests.support.scripted import SSE_HEADERS, Answer, Received, says
from tidemark.core.conversation.summary import OPENING

MESSAGES = "/v1/messages"


@dataclass
class AnthropicClient:
    """A client of the Messages API."""

    client: Client

    def post(self, body: Any, path: str = MESSAGES, **asked: str) -> httpx.Response:
        """Send a body."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        headers = {name: value for name, value in self.client.headers(**asked).items() if name != "authorization"}
        headers |= {"x-api-key": self.client.key, "anthropic-version": "2023-06-01"}
        return self.client.http.post(path, content=content, headers=headers)

    def ask(self, messages: list[dict[str, Any]], **members: Any) -> httpx.Response:
        """Send messages."""
        return self.post({"model": "small", "max_tokens": 100, "messages": messages, **members})


def speaking(request: Received) -> Answer:
    """An upstream that speaks chat completions and the Messages API."""
    if not request.path.endswith("/messages"):
        return says("Fine weather.")(request)
    if request.json.get("stream"):
        return Answer(streamed_reply(streamed_text("Fine weather.")), headers=list(SSE_HEADERS))
    return Answer([whole_reply(text("Fine weather."))])


@pytest.fixture
def anthropic_client(bench: Bench, request: pytest.FixtureRequest) -> AnthropicClient:
    """A client of a Tidemark before an upstream that speaks both."""
    bench.upstream.script = speaking
    return AnthropicClient(bench.client(request.node.nodeid))


def long_talk(exchanges: int) -> list[dict[str, Any]]:
    """A talk with a question at its end."""
    turns: list[dict[str, Any]] = []
    for number in range(exchanges):
        turns += [user(long(number, 90)), assistant("Fine weather.")]
    return [*turns, user("And now?")]


def test_a_small_request_goes_out_as_it_came(bench: Bench, anthropic_client: AnthropicClient) -> None:
    """Promise 1: only the model's name changes; headers of Anthropic's pass on."""
    body = b'{ "model":"small", "system" : [{"type":"text","text":"Be brief."}],\n "max_tokens":9, "odd": [1.0, {}],'
    body += b' "messages" : [ {"role":"user","content":"Hi."} ] }'
    answer = anthropic_client.post(body, f"{MESSAGES}?beta=true")
    assert answer.content == whole_reply(text("Fine weather."))
    assert bench.upstream.last.json == json.loads(body) | {"model": "scripted"}
    assert bench.upstream.last.path == MESSAGES
    assert bench.upstream.last.headers["anthropic-version"] == "2023-06-01"
    assert bench.upstream.last.headers["x-api-key"] == anthropic_client.client.key


def test_a_base_url_that_ends_in_v1_is_understood(bench: Bench, anthropic_client: AnthropicClient) -> None:
    """The SDK adds ``/v1/messages`` to it."""
    answer = anthropic_client.post({"model": "small", "max_tokens": 9, "messages": [user("Hi.")]}, "/v1/v1/messages")
    assert (answer.status_code, bench.upstream.last.path) == (200, MESSAGES)


@pytest.mark.parametrize("stream", [False, True])
def test_a_long_talk_is_compacted_and_its_prefix_stays_frozen(
    bench: Bench, anthropic_client: AnthropicClient, *, stream: bool
) -> None:
    """System stays, the summary is marked because the client caches, and the next request reuses it."""
    system = [text("x-header: 1"), text("Be brief.", cache_control=CACHED)]
    talk = long_talk(24)
    first = anthropic_client.ask(talk, system=system, stream=stream)
    assert first.headers["x-tidemark-action"] == "compacted"
    sent = bench.upstream.last.json
    assert sent["system"] == system
    assert sent["messages"][0]["role"] == "user"
    summary = sent["messages"][0]["content"][0]
    assert summary["text"].startswith(OPENING)
    assert summary["cache_control"] == CACHED
    assert sent["messages"][-1] == user("And now?")
    before = bench.upstream.last.body.partition(b'"messages":')[2].partition(b"And now?")[0]
    system[0] = text("x-header: 2")  # Claude Code's first block changes with each request
    talk += [assistant(text("Fine weather.")), user("And later?")]
    second = anthropic_client.ask(talk, system=system, stream=stream)
    assert second.headers["x-tidemark-action"] == "reused"
    assert second.headers["x-tidemark-conversation"] == first.headers["x-tidemark-conversation"]
    assert before in bench.upstream.last.body


def test_a_conversation_goes_on_in_the_other_dialect_with_its_summary(
    bench: Bench, anthropic_client: AnthropicClient
) -> None:
    """It begins in chat completions, with a tool."""
    function = {"name": "look", "arguments": '{"at": 7}'}
    call = {"id": "a", "type": "function", "function": function}
    tool_talk: list[dict[str, Any]] = [
        {"role": "user", "content": "Look."},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "It rains."},
        {"role": "assistant", "content": "It rains."},
    ]
    rest = long_talk(24)
    chat = anthropic_client.client.chat([*tool_talk, *rest])
    assert chat.headers["x-tidemark-action"] == "compacted"
    told = [
        user("Look."),
        assistant(thinking("Hm."), calls("look", "a", at=7)),
        user(result("a", "It rains.")),
        assistant("It rains."),
    ]
    anthropic = anthropic_client.ask([*told, *rest, assistant("Fine weather."), user("And later?")])
    assert anthropic.headers["x-tidemark-action"] == "reused"
    assert anthropic.headers["x-tidemark-conversation"] == chat.headers["x-tidemark-conversation"]
    assert bench.upstream.last.json["messages"][0]["content"][0]["text"].startswith(OPENING)


def test_a_fork_of_a_talk_keeps_its_summary(anthropic_client: AnthropicClient) -> None:
    """The client edits its newest question."""
    talk = long_talk(24)
    assert anthropic_client.ask(talk).headers["x-tidemark-action"] == "compacted"
    assert anthropic_client.ask([*talk[:-1], user("And then?")]).headers["x-tidemark-action"] == "reused"


def test_parallel_results_stay_with_their_calls(bench: Bench, anthropic_client: AnthropicClient) -> None:
    """Also where the cut is near them; they go out as one message."""
    turn = [
        assistant(calls("look", "a", at=1), calls("look", "b", at=2)),
        user(result("a", "One."), result("b", "Two."), text("Well?")),
    ]
    answer = anthropic_client.ask([*long_talk(24), *turn])
    assert answer.headers["x-tidemark-action"] == "compacted"
    assert bench.upstream.last.json["messages"][-2:] == turn


def test_a_stream_is_carried_byte_for_byte_and_its_turn_is_stored(
    bench: Bench, anthropic_client: AnthropicClient
) -> None:
    """Pings too; the next request goes on with the same conversation."""
    first = anthropic_client.ask([user("How is the weather?")], stream=True)
    assert first.content == b"".join(streamed_reply(streamed_text("Fine weather.")))
    again = anthropic_client.ask([user("How is the weather?"), assistant("Fine weather."), user("And the tide?")])
    assert again.headers["x-tidemark-conversation"] == first.headers["x-tidemark-conversation"]
    assert len(bench.upstream.received) == 2


def test_stored_history_supplies_the_earlier_turns(bench: Bench, anthropic_client: AnthropicClient) -> None:
    """The client sends its new turn only; results answer the stored calls."""
    bench.upstream.script = lambda _: Answer([whole_reply(thinking("Hm."), calls("f", "a"), calls("f", "b"))])
    body = {"model": "small", "max_tokens": 100}
    asked = {"history": "stored", "conversation": "harbour"}
    anthropic_client.post({**body, "messages": [user("Look.")]}, **asked)
    results = user(result("a", "One."), result("b", "Two."))
    answer = anthropic_client.post({**body, "messages": [results]}, **asked)
    assert answer.status_code == 200
    stored = assistant(thinking("Hm."), calls("f", "a"), calls("f", "b"))
    assert bench.upstream.last.json["messages"] == [user("Look."), stored, results]


def test_errors_have_anthropics_envelope(anthropic_client: AnthropicClient) -> None:
    """A bad body, a model that nobody serves, and a request that does not fit."""
    bad = anthropic_client.ask([{"role": "wizard", "content": "Hi."}])
    assert (bad.status_code, bad.json()["type"]) == (400, "error")
    assert bad.json()["error"]["param"] == "messages.0.role"
    unknown = anthropic_client.post({"model": "none", "max_tokens": 9, "messages": [user("Hi.")]})
    assert (unknown.status_code, unknown.json()["error"]["type"]) == (404, "not_found_error")
    large = anthropic_client.ask([user(long(0, 4000))])
    assert (large.status_code, large.json()["error"]["code"]) == (400, "context_length_exceeded")


def test_an_upstreams_error_passes_unchanged(bench: Bench, anthropic_client: AnthropicClient) -> None:
    """Status and body."""
    body = b'{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"},"request_id":"req_1"}'
    bench.upstream.script = lambda _: Answer([body], 529)
    answer = anthropic_client.ask([user("Hi.")])
    assert (answer.status_code, answer.content) == (529, body)


def test_an_overflow_is_replayed_smaller(bench: Bench, anthropic_client: AnthropicClient) -> None:
    """The upstream's window is smaller than known."""
    refusal = {"type": "invalid_request_error", "message": "prompt is too long: 1500 tokens > 1000 maximum"}

    def small(request: Received) -> Answer:
        if len(request.body) > 2200:
            return Answer([json.dumps({"type": "error", "error": refusal}).encode()], 400)
        return speaking(request)

    bench.upstream.script = small
    answer = anthropic_client.ask(long_talk(16))
    assert (answer.status_code, answer.json()["content"][0]["text"]) == (200, "Fine weather.")
    assert "tokens and sent again" in answer.headers["x-tidemark-warning"]


@pytest.mark.parametrize("stream", [False, True])
def test_what_only_anthropic_serves_is_left_out_with_a_warning(
    bench: Bench, anthropic_client: AnthropicClient, *, stream: bool
) -> None:
    """An upstream of chat completions cannot reach the client's MCP servers; the answer says so."""
    bench.upstream.dialects = {"chat"}
    servers = [{"type": "url", "name": "tides", "url": "https://tides.test/mcp"}]
    talk = [user("How is the weather?")]
    got = anthropic_client.ask(talk, stream=stream, mcp_servers=servers, container={"skills": []})
    assert got.status_code == 200, got.text
    assert "mcp_servers and container was left out" in got.headers["x-tidemark-warning"]
    plain = anthropic_client.ask(talk, stream=stream, mcp_servers=[], container=None)
    assert "x-tidemark-warning" not in plain.headers


def test_a_stream_that_breaks_off_ends_with_an_error_event(bench: Bench, anthropic_client: AnthropicClient) -> None:
    """No ``message_stop`` is made up, and what the upstream said of its own failure passes."""
    pieces = streamed_reply(streamed_text("Fine weather."))[:4]
    bench.upstream.script = lambda _: Answer(pieces, headers=list(SSE_HEADERS), breaks=True)
    answer = anthropic_client.ask([user("Hi.")], stream=True)
    assert events_in(answer.content)[-1]["error"]["code"] == "upstream_incomplete"
    problem = event("error", error={"type": "overloaded_error", "message": "Overloaded"})
    bench.upstream.script = lambda _: Answer([*pieces, problem], headers=list(SSE_HEADERS))
    answer = anthropic_client.ask([user("Hi.")], stream=True)
    assert answer.content == b"".join([*pieces, problem])


def test_a_request_that_asks_for_a_compaction_is_left_to_the_provider(anthropic_client: AnthropicClient) -> None:
    """A warning says so; edits of thinking change nothing."""
    talk = long_talk(24)
    left = anthropic_client.ask(talk, context_management={"edits": [{"type": "compact_20260112"}]})
    assert left.headers["x-tidemark-action"] == "none"
    assert "compact_20260112" in left.headers["x-tidemark-warning"]
    edits = [{"type": "clear_thinking_20251015", "keep": "all"}]
    assert anthropic_client.ask(talk, context_management={"edits": edits}).headers["x-tidemark-action"] == "compacted"


@pytest.mark.parametrize("stream", [False, True])
def test_a_command_is_answered_where_it_is_switched_on(
    bench: Bench, request: pytest.FixtureRequest, *, stream: bool
) -> None:
    """In this dialect, and without a trace in what goes upstream; else it is a question like any other."""
    bench.upstream.script = speaking
    off = AnthropicClient(bench.client(f"{request.node.nodeid} off"))
    assert off.ask([user("/context")]).json()["content"][0]["text"] == "Fine weather."
    client = AnthropicClient(bench.client(request.node.nodeid, more=", command_dialects: [chat, messages]"))
    talk = [user("Look."), assistant(calls("look", "a"), calls("look", "b"))]
    talk += [user(result("a", "One."), result("b", "Two.")), assistant("Done.")]
    answer = client.ask([*talk, user("/context")], stream=stream)
    if stream:
        said = "".join(
            [
                data["delta"]["text"]
                for data in events_in(answer.content)
                if data["type"].endswith("_delta") and "text" in data["delta"]
            ]
        )
    else:
        said = answer.json()["content"][0]["text"]
    assert "Total tokens" in said
    client.ask([*talk, user("/context"), assistant(said), user("And now?")])
    assert bench.upstream.last.json["messages"] == [*talk, user("And now?")]


def test_an_answer_that_the_client_began_goes_upstream_as_it_is(
    bench: Bench, anthropic_client: AnthropicClient
) -> None:
    """The last message is the assistant's."""
    talk = [user("How is the weather?"), assistant("The weather is")]
    assert anthropic_client.ask(talk).status_code == 200
    assert bench.upstream.last.json["messages"] == talk


REFUSED: dict[str, tuple[bytes, dict[str, str], int]] = {
    "invalid_json": (b"{", {}, 400),
    "invalid_type": (b'{"model":"small","messages":"Hi."}', {}, 400),
    "empty_array": (b'{"model":"small","messages":[]}', {}, 400),
    "unsupported_encoding": (b"{}", {"content-encoding": "lzma"}, 415),
    "invalid_encoding": (b"{}", {"content-encoding": "gzip"}, 400),
    "foreign_origin": (b"{}", {"origin": "https://evil.example"}, 403),
}


@pytest.mark.parametrize("code", REFUSED)
@pytest.mark.parametrize("path", [MESSAGES, "/v1/v1/messages", f"{MESSAGES}/count_tokens"])
def test_every_refusal_has_anthropics_envelope(anthropic_client: AnthropicClient, path: str, code: str) -> None:
    """Whatever is wrong; the page of another site has no credential."""
    body, headers, status = REFUSED[code]
    own = {"content-type": "application/json", **({} if "origin" in headers else {"x-api-key": "k"}), **headers}
    answer = anthropic_client.client.http.post(path, content=body, headers=own)
    error = ErrorResponse.model_validate_json(answer.content).error
    assert (answer.status_code, error.to_dict()["code"]) == (status, code)


def test_a_header_that_is_refused_has_anthropics_envelope(anthropic_client: AnthropicClient) -> None:
    """With the header's name."""
    answer = anthropic_client.post({"model": "small", "messages": [user("Hi.")]}, summarize="maybe")
    assert answer.json()["error"]["param"] == "X-Tidemark-Summarize"
    ErrorResponse.model_validate(answer.json())


@pytest.mark.parametrize("path", [MESSAGES, "/v1/v1/messages", f"{MESSAGES}/count_tokens"])
def test_another_method_has_anthropics_envelope(anthropic_client: AnthropicClient, path: str) -> None:
    """``Allow`` names the right one."""
    answer = anthropic_client.client.http.put(path, headers={"x-api-key": "k"}, content=b"")
    assert (answer.status_code, answer.json()["type"]) == (405, "error")
    assert "POST" in answer.headers["allow"]
