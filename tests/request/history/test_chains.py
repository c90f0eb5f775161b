"""A chain of proxies: Tidemark before Tidemark before a server that speaks chat completions only."""

from __future__ import annotations

import json
from typing import Any

import pytest
from anthropic.types import Message, RawMessageStreamEvent
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from tests.request.conftest import Bench, Client
from tests.support.answers import Answer, Received
from tests.support.chat_answers import error, streamed, whole

OUTER = """
model_list:
  - model_name: small
    litellm_params: {{model: openai/small, api_base: "INNER/v1"}}
    model_info: {{max_input_tokens: 2000, max_output_tokens: 200}}
"""
READERS: dict[str, tuple[str, TypeAdapter[Any], TypeAdapter[Any]]] = {
    "chat": ("/v1/chat/completions", TypeAdapter(ChatCompletion), TypeAdapter(ChatCompletionChunk)),
    "responses": ("/v1/responses", TypeAdapter(Response), TypeAdapter(ResponseStreamEvent)),
    "messages": ("/v1/messages", TypeAdapter(Message), TypeAdapter(RawMessageStreamEvent)),
}


def only_chat(received: Received) -> Answer:
    """A server of chat completions; everything else is a missing path to it."""
    if not received.path.endswith("/chat/completions"):
        return error(404, "File Not Found")
    return streamed("Hello there.") if received.json.get("stream") else whole("Hello there.")


@pytest.fixture
def chain(bench: Bench, request: pytest.FixtureRequest) -> Client:
    """A client of the outer of two Tidemarks."""
    bench.upstream.script = only_chat
    inner = bench.start()
    return bench.client(request.node.nodeid, config=OUTER.replace("INNER", inner))


def body_of(dialect: str, question: str, *, stream: bool = False) -> dict[str, Any]:
    """A request of one question."""
    asked = [{"role": "user", "content": question}]
    members: dict[str, Any] = {"messages": asked, "max_tokens": 100}
    if dialect == "responses":
        members = {"input": asked, "max_output_tokens": 100}
    return {"model": "small", "stream": stream, **members}


@pytest.mark.parametrize("dialect", READERS)
def test_every_dialect_passes_two_proxies(bench: Bench, chain: Client, dialect: str) -> None:
    """The outer one sends the client's dialect on; the inner one builds the bridge. The key arrives at the end."""
    path, reply, event = READERS[dialect]
    answer = chain.http.post(path, json=body_of(dialect, "Hi."), headers=chain.headers())
    assert answer.status_code == 200
    reply.validate_python(answer.json(), strict=False)
    assert "Hello there." in answer.text
    assert len(answer.headers.get_list("x-tidemark-conversation")) == 1
    live = chain.http.post(path, json=body_of(dialect, "Hi again.", stream=True), headers=chain.headers())
    lines = [line.removeprefix("data: ") for line in live.text.splitlines() if line.startswith("data: {")]
    assert lines
    for line in lines:
        event.validate_python(json.loads(line), strict=False)
    assert "there." in live.text
    assert bench.upstream.last.path.endswith("/chat/completions")
    assert bench.upstream.last.headers["authorization"] == f"Bearer {chain.key}"
    assert not [name for name in bench.upstream.last.headers if name.startswith("x-tidemark")]


@pytest.mark.parametrize("dialect", READERS)
def test_a_refusal_passes_two_proxies_in_the_dialect_of_the_client(bench: Bench, chain: Client, dialect: str) -> None:
    """Status, words and ``Retry-After`` are those of the server at the end."""

    def refuse(received: Received) -> Answer:
        if not received.path.endswith("/chat/completions"):
            return only_chat(received)
        return error(429, "Slow down.", code="rate_limit_exceeded", headers=[(b"retry-after", b"7")])

    bench.upstream.script = refuse
    answer = chain.http.post(READERS[dialect][0], json=body_of(dialect, "Hi."), headers=chain.headers())
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "7")
    assert answer.json()["error"]["message"] == "Slow down."
    if dialect == "messages":
        assert (answer.json()["type"], answer.json()["error"]["type"]) == ("error", "rate_limit_error")


def test_an_anthropic_sdks_key_reaches_a_server_that_reads_authorization(bench: Bench, chain: Client) -> None:
    """The key in ``x-api-key`` is the caller's in both proxies, and at the end a bearer's, too."""
    answer = chain.http.post("/v1/messages", json=body_of("messages", "Hi."), headers={"x-api-key": chain.key})
    assert answer.status_code == 200
    assert bench.upstream.last.headers["authorization"] == f"Bearer {chain.key}"


def test_a_response_is_gone_on_from_through_two_proxies(bench: Bench, chain: Client) -> None:
    """The server at the end keeps nothing; the history comes from a Tidemark."""
    first = chain.http.post("/v1/responses", json=body_of("responses", "My name is Ada."), headers=chain.headers())
    bench.settle()
    more = {"model": "small", "input": "What is my name?", "previous_response_id": first.json()["id"]}
    answer = chain.http.post("/v1/responses", json=more, headers=chain.headers())
    assert answer.status_code == 200
    asked = [message["content"] for message in bench.upstream.last.messages]
    assert asked == ["My name is Ada.", "Hello there.", "What is my name?"]


def test_a_dialect_without_a_way_is_refused_with_the_setting(bench: Bench, request: pytest.FixtureRequest) -> None:
    """Never a bare 404, which clients read as a wrong model."""
    config = OUTER.replace("INNER/v1", "{base}").replace("{{max_input", "{{dialects: [responses], max_input")
    client = bench.client(request.node.nodeid, config=config)
    answer = client.http.post("/v1/messages", json=body_of("messages", "Hi."), headers=client.headers())
    assert answer.status_code == 400
    assert answer.json()["error"]["code"] == "dialect_not_served"
    assert "model_info.dialects" in answer.json()["error"]["message"]
    assert not bench.upstream.received
