"""The search function in Messages and Responses: a model finds what a summary lacks, and the client sees one answer.

``test_searching_models.py`` has the same of chat completions, and what holds for all.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import httpx
import pytest

from tests.request.compaction.test_recall import FACT
from tests.request.compaction.test_searching_models import ANSWER, SEARCH, TALK, TOOL, searches_then
from tests.request.conftest import Bench, Client
from tests.request.talk import Said
from tests.support.scripted import Answer, Call, Received, Turn, error, refuses, says, tells
from tidemark.core.recall.search_function import FUNCTION_NAME, MOST_SEARCHES, RESULT_OPENING

STREAMED = pytest.mark.parametrize("stream", [False, True], ids=["whole", "streamed"])
OWN_CALL = Call("weather", '{"place": "Lisbon"}')


@dataclass(frozen=True)
class Dialect:
    """How a client of a dialect asks, and what it reads."""

    name: str
    path: str
    member: str
    schema: str

    def body(self, said: list[Said], **members: Any) -> dict[str, Any]:
        """The body of a request."""
        plain = [{"role": one["role"], "content": one["content"]} for one in said]
        bound = {"max_tokens": 100} if self.name == "messages" else {"max_output_tokens": 100}
        return {"model": "small", self.member: plain, **bound, **members}

    def tool(self, name: str) -> dict[str, Any]:
        """A tool of the client's."""
        kind = {"type": "function"} if self.name == "responses" else {}
        return {**kind, "name": name, self.schema: {"type": "object"}}

    def parts(self, got: httpx.Response) -> list[dict[str, Any]]:
        """The blocks or items of an answer, streamed or not."""
        member = "content" if self.name == "messages" else "output"
        if not got.headers["content-type"].startswith("text/event-stream"):
            whole: list[dict[str, Any]] = got.json()[member]
            return whole
        events = [json.loads(line[6:]) for line in got.text.splitlines() if line.startswith("data: {")]
        if self.name == "responses":
            last: list[dict[str, Any]] = events[-1]["response"]["output"]
            return last
        blocks: list[dict[str, Any]] = []
        for event in events:
            if event["type"] == "content_block_start":
                blocks.append(dict(event["content_block"]))
            elif event["type"] == "content_block_delta" and event["delta"]["type"] == "text_delta":
                blocks[event["index"]]["text"] += event["delta"]["text"]
        return blocks

    def texts(self, got: httpx.Response) -> list[str]:
        """The texts of an answer."""
        if self.name == "messages":
            return [block["text"] for block in self.parts(got) if block["type"] == "text"]
        return [part["text"] for item in self.parts(got) if item["type"] == "message" for part in item["content"]]

    def calls(self, got: httpx.Response) -> list[str]:
        """The names of the tools that an answer calls."""
        return [part["name"] for part in self.parts(got) if part["type"] in ("tool_use", "function_call")]


MESSAGES = Dialect("messages", "/v1/messages", "messages", "input_schema")
RESPONSES = Dialect("responses", "/v1/responses", "input", "parameters")
DIALECTS = pytest.mark.parametrize("dialect", [MESSAGES, RESPONSES], ids=lambda one: str(one.name))


@pytest.fixture
def searching(bench: Bench, request: pytest.FixtureRequest) -> Client:
    """A client of a Tidemark whose models may search."""
    bench.upstream.script = searches_then(Turn(ANSWER), Turn(calls=(SEARCH,)))
    return bench.client(request.node.nodeid, more=TOOL)


def ask(client: Client, dialect: Dialect, body: dict[str, Any], **asked: str) -> httpx.Response:
    """Send a request in a dialect."""
    return client.http.post(dialect.path, json=body, headers=client.headers(**asked))


def tools_of(request: Received) -> list[str]:
    """The names of the tools that a request offers."""
    return [tool["name"] for tool in request.json.get("tools", ())]


def result_of(dialect: Dialect, request: Received) -> tuple[str, str]:
    """The id and the text of the result that a request ends with."""
    last = request.messages[-1]
    if dialect is RESPONSES:
        return last["call_id"], last["output"]
    block = last["content"][-1]
    return block["tool_use_id"], block["content"]


@DIALECTS
@STREAMED
def test_a_search_is_answered_within_the_request(
    bench: Bench, searching: Client, dialect: Dialect, *, stream: bool
) -> None:
    """The upstream gets the call and its result; the client gets the answer alone, with the tokens of both rounds."""
    got = ask(searching, dialect, dialect.body(TALK, stream=stream))
    assert dialect.texts(got) == [ANSWER]
    assert FUNCTION_NAME not in got.text
    first, second = bench.upstream.received
    assert tools_of(first) == tools_of(second) == [FUNCTION_NAME]
    assert second.messages[: len(first.messages)] == first.messages
    call, text = result_of(dialect, second)
    assert call in json.dumps(second.messages[-2])
    assert text.startswith(RESULT_OPENING)
    assert FACT in text
    served = searching.http.get("/metrics", headers=searching.headers()).text
    assert 'tidemark_recall_searches_total{outcome="recalled"} 1.0' in served


@DIALECTS
@STREAMED
def test_a_request_that_is_translated_is_searched_too(
    bench: Bench, searching: Client, dialect: Dialect, *, stream: bool
) -> None:
    """An upstream that speaks chat completions only gets the function, the call and the result in these."""
    bench.upstream.dialects = {"chat"}
    got = ask(searching, dialect, dialect.body(TALK, stream=stream))
    assert dialect.texts(got) == [ANSWER]
    assert FUNCTION_NAME not in got.text
    asked = [request for request in bench.upstream.received if request.dialect == "chat"]
    assert [tool["function"]["name"] for tool in asked[-1].json["tools"]] == [FUNCTION_NAME]
    assert FACT in asked[-1].messages[-1]["content"]


@DIALECTS
def test_all_results_of_a_round_go_back_together(bench: Bench, searching: Client, dialect: Dialect) -> None:
    """As the provider wants them: in Messages as blocks of one message, in Responses as items."""
    bench.upstream.script = searches_then(Turn(ANSWER), Turn(calls=(SEARCH, SEARCH)))
    assert dialect.texts(ask(searching, dialect, dialect.body(TALK))) == [ANSWER]
    first, second = bench.upstream.received
    added = second.messages[len(first.messages) :]
    if dialect is MESSAGES:
        assert [message["role"] for message in added] == ["assistant", "user"]
        assert [block["type"] for block in added[1]["content"]] == ["tool_result", "tool_result"]
    else:
        kinds = [item["type"] for item in added]
        assert kinds == ["function_call", "function_call", "function_call_output", "function_call_output"]


@DIALECTS
@STREAMED
def test_thinking_goes_back_to_the_model_and_not_to_the_client(
    bench: Bench, searching: Client, dialect: Dialect, *, stream: bool
) -> None:
    """Providers demand it whole before a call; without the call a client cannot send it back."""
    bench.upstream.script = searches_then(
        Turn(ANSWER, thought="I have it."), Turn(calls=(SEARCH,), thought="I must search.")
    )
    got = ask(searching, dialect, dialect.body(TALK, stream=stream))
    assert "I must search." not in got.text
    assert "I have it." in got.text
    back = json.dumps(bench.upstream.last.messages)
    assert "I must search." in back
    assert ("c2lnbmVk" if dialect is MESSAGES else "c2VhbGVk") in back


@DIALECTS
@STREAMED
def test_calls_of_the_client_go_through_without_the_search_beside_them(
    bench: Bench, searching: Client, dialect: Dialect, *, stream: bool
) -> None:
    """The client answers its own call first; the model may search again then."""
    bench.upstream.script = tells(Turn("Both.", calls=(SEARCH, OWN_CALL)))
    got = ask(searching, dialect, dialect.body(TALK, stream=stream, tools=[dialect.tool("weather")]))
    assert tools_of(bench.upstream.last) == ["weather", FUNCTION_NAME]
    assert len(bench.upstream.received) == 1
    assert dialect.calls(got) == ["weather"]
    assert FUNCTION_NAME not in got.text


@DIALECTS
@STREAMED
@pytest.mark.parametrize("own", [False, True], ids=["alone", "with the client's"])
def test_the_number_of_searches_is_bounded(
    bench: Bench, searching: Client, dialect: Dialect, *, stream: bool, own: bool
) -> None:
    """The request after the last search offers no function; a model that calls it again just ends."""
    bench.upstream.script = tells(Turn("Hm.", calls=(SEARCH,)))
    members: dict[str, Any] = {"tools": [dialect.tool("weather")]} if own else {}
    got = ask(searching, dialect, dialect.body(TALK, stream=stream, **members))
    assert len(bench.upstream.received) == MOST_SEARCHES + 1
    last = bench.upstream.last
    assert tools_of(last) == (["weather"] if own else [FUNCTION_NAME])
    forbidden: Any = {"type": "none"} if dialect is MESSAGES else "none"
    assert last.json.get("tool_choice") == (None if own else forbidden)
    assert dialect.calls(got) == []
    assert dialect.texts(got) == ["Hm."] * (MOST_SEARCHES + 1)
    assert FUNCTION_NAME not in got.text


@DIALECTS
@pytest.mark.parametrize("choice", ["none", "forced", "same name"])
def test_what_the_client_chose_is_respected(bench: Bench, searching: Client, dialect: Dialect, choice: str) -> None:
    """No tool, one of its own, or one of the same name: then the request goes out with its own members."""
    bench.upstream.script = says("Fine.")
    members: dict[str, Any] = {"tools": [dialect.tool(FUNCTION_NAME if choice == "same name" else "weather")]}
    if choice != "same name":
        forced = {"type": "tool" if dialect is MESSAGES else "function", "name": "weather"}
        nothing: Any = {"type": "none"} if dialect is MESSAGES else "none"
        members["tool_choice"] = forced if choice == "forced" else nothing
    got = ask(searching, dialect, dialect.body(TALK, **members))
    assert got.headers["x-tidemark-action"] == "compacted"
    assert {name: bench.upstream.last.json[name] for name in members} == members


@DIALECTS
@STREAMED
def test_the_stored_history_has_the_answer_alone(
    bench: Bench, searching: Client, dialect: Dialect, *, stream: bool
) -> None:
    """The conversation goes on from the answer that the client got, as one that it sends back."""
    bench.upstream.script = searches_then(Turn(ANSWER), Turn("Let me look.", calls=(SEARCH,)))
    got = ask(searching, dialect, dialect.body(TALK, stream=stream), conversation="c")
    assert dialect.texts(got) == ["Let me look.", ANSWER]
    bench.settle()
    path = f"/tidemark/conversations/{got.headers['x-tidemark-conversation']}/export"
    stored = searching.http.get(path, headers=searching.headers()).text
    assert FUNCTION_NAME not in stored
    assert ANSWER in stored.splitlines()[-1]
    bench.upstream.script = says("Fine.")
    again = dialect.body([*TALK])
    again[dialect.member] += [
        *([{"role": "assistant", "content": dialect.parts(got)}] if dialect is MESSAGES else dialect.parts(got)),
        {"role": "user", "content": "Thanks."},
    ]
    following = ask(searching, dialect, again, conversation="c")
    assert following.headers["x-tidemark-action"] == "reused"
    assert following.headers["x-tidemark-conversation"] == got.headers["x-tidemark-conversation"]


@STREAMED
def test_a_later_response_goes_on_from_a_searched_one(bench: Bench, searching: Client, *, stream: bool) -> None:
    """By the id that the client has, which is that of the first round."""
    got = ask(searching, RESPONSES, RESPONSES.body(TALK, stream=stream))
    events = [json.loads(line[6:]) for line in got.text.splitlines() if line.startswith("data: {")]
    response = events[-1]["response"] if stream else got.json()
    bench.settle()
    bench.upstream.script = says("Fine.")
    members = {"previous_response_id": response["id"]}
    following = ask(searching, RESPONSES, {**RESPONSES.body([]), "input": "Thanks.", **members})
    assert following.status_code == 200, following.text
    sent = json.dumps(bench.upstream.last.messages)
    assert ANSWER in sent
    assert FUNCTION_NAME not in sent
    assert response["tools"] == []
    assert response["usage"]["total_tokens"] == 32


@DIALECTS
def test_a_refused_function_is_not_offered_again(bench: Bench, searching: Client, dialect: Dialect) -> None:
    """A server without tools refuses the request once; it gets the client's own, then and from then on."""

    def script(request: Received) -> Answer:
        return error(400, "this model does not support tools") if request.json.get("tools") else says("Fine.")(request)

    bench.upstream.script = script
    for sent in (2, 1):
        bench.upstream.received.clear()
        assert dialect.texts(ask(searching, dialect, dialect.body(TALK))) == ["Fine."]
        assert len(bench.upstream.received) == sent


@DIALECTS
@pytest.mark.parametrize("text", ["", "Let me look."])
def test_an_error_after_a_search_ends_a_stream(bench: Bench, searching: Client, dialect: Dialect, text: str) -> None:
    """The stream has begun: the upstream's error is its last event, and no end is made up."""

    def script(request: Received) -> Answer:
        return refuses(429, "slow down")(request) if request.has_results else tells(Turn(text, (SEARCH,)))(request)

    bench.upstream.script = script
    got = ask(searching, dialect, dialect.body(TALK, stream=True))
    assert "slow down" in got.text.splitlines()[-2]
    assert "message_stop" not in got.text
    assert "response.completed" not in got.text
    assert FUNCTION_NAME not in got.text


@DIALECTS
def test_an_answer_that_needs_no_search_keeps_its_bytes(bench: Bench, searching: Client, dialect: Dialect) -> None:
    """Offering the function changes nothing of a stream that does not call it, but that no tools repeat it."""
    bench.upstream.script = says(ANSWER)
    got = ask(searching, dialect, dialect.body(TALK, stream=True))
    sent = b"".join([piece for piece in says(ANSWER)(bench.upstream.last).pieces if isinstance(piece, bytes)])
    if dialect is MESSAGES:
        assert got.content == sent
    else:
        assert FUNCTION_NAME.encode() in sent
        assert FUNCTION_NAME not in got.text
        assert len(got.text.splitlines()) == len(sent.decode().splitlines())


def test_the_libraries_of_the_providers_read_a_searched_replies(bench: Bench, searching: Client) -> None:
    """Their accumulators join blocks and items by the places in the events."""
    anthropic, openai = import_module("anthropic"), import_module("openai")  # no other test here needs their time
    rounds = (Turn("Let me look.", calls=(SEARCH,), thought="I must search."), Turn(calls=(SEARCH,), thought="Again."))
    said: Any = MESSAGES.body(TALK)["messages"]
    address = str(searching.http.base_url).rstrip("/")
    bench.upstream.script = searches_then(Turn(ANSWER, thought="I have it."), *rounds)
    with (
        anthropic.Anthropic(api_key=searching.key, base_url=address) as client,
        client.messages.stream(model="small", max_tokens=100, messages=said) as stream,
    ):
        message = stream.get_final_message()
    assert [block.text for block in message.content if block.type == "text"] == ["Let me look.", ANSWER]
    assert [block.type for block in message.content] == ["thinking", "text", "text"]
    assert (message.stop_reason, message.usage.output_tokens) == ("end_turn", 15)
    bench.upstream.script = searches_then(Turn(ANSWER, thought="I have it."), *rounds)
    with (
        openai.OpenAI(api_key=searching.key, base_url=f"{address}/v1") as library,
        library.responses.stream(model="small", input=said, max_output_tokens=100) as events,
    ):
        response = events.get_final_response()
    assert [item.type for item in response.output] == ["reasoning", "message", "reasoning", "message"]
    assert response.output_text.endswith(ANSWER)
    assert response.usage is not None
    assert response.usage.total_tokens == 48
