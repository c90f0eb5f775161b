"""An upstream is asked in the client's dialect where it speaks it, and in chat completions where it does not."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import respx

from tests.support.scripted import Exchange, ScriptedServer, serving
from tests.upstream.callers import calling, everything
from tidemark.core.conversation.request import Dialect
from tidemark.core.errors import ConfigError
from tidemark.core.lessons import LESSON_SECONDS
from tidemark.core.ports import UpstreamReply
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.messages.dialect import MessagesDialect
from tidemark.dialects.responses.dialect import ResponsesDialect
from tidemark.upstream.upstream import LiteLLMUpstream
from tidemark.upstream.wire import WireLane

CHAT, RESPONSES, MESSAGES = ChatDialect(), ResponsesDialect(), MessagesDialect()
OTHERS: list[Dialect] = [RESPONSES, MESSAGES]
BEARER = ("authorization", "Bearer sk-caller")
ANSWER = json.dumps(
    {"choices": [{"index": 0, "message": {"role": "assistant", "content": "Hello."}, "finish_reason": "stop"}]}
).encode()
MISSING = {
    "llama.cpp": b'{"error":{"code":404,"message":"File Not Found","type":"not_found_error"}}',
    "vLLM": b'{"detail":"Not Found"}',
    "Ollama": b"404 page not found",
    "OpenAI": b'{"error":{"message":"Invalid URL (POST /v1/messages)","type":"invalid_request_error"}}',
}
OBJECTS = {
    "a model": b'{"error":{"message":"The model `x` does not exist","code":"model_not_found"}}',
    "a model of Ollama": b'{"error":"model \'x\' not found"}',
    "a response": b'{"error":{"message":"Previous response with id \'resp_1\' not found."}}',
}


def body_of(dialect: Dialect) -> bytes:
    """Return a small request."""
    question = [{"role": "user", "content": "Hi."}]
    members = {"input": question} if dialect is RESPONSES else {"messages": question, "max_tokens": 9}
    return json.dumps({"model": "m", **members}).encode()


class Clock:
    """A clock that a test moves."""

    now = 0.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@asynccontextmanager
async def chat_only(status: str, missing: bytes) -> AsyncIterator[ScriptedServer]:
    """Run a server that has chat completions and no other endpoint."""

    async def script(exchange: Exchange) -> None:
        if "/chat/completions" in exchange.line:
            await exchange.answer(ANSWER, headers=b"content-type: application/json\r\n")
        else:
            await exchange.answer(missing, status)

    async with serving(script) as server:
        yield server


def upstream_at(server: ScriptedServer, wire: WireLane, clock: Clock | None = None, **info: Any) -> LiteLLMUpstream:
    """Return the upstream with one model at a server."""
    params = {"model": "openai/m", "api_base": server.base_url}
    entry: dict[str, Any] = {"model_name": "m", "litellm_params": params, "model_info": info}
    return LiteLLMUpstream([entry], wire=wire, write_chat=CHAT.write, clock=clock or Clock())


async def ask(
    upstream: LiteLLMUpstream,
    dialect: Dialect,
    model: str = "m",
    *headers: tuple[str, str],
    by: bytes = b"alice",
    body: bytes = b"",
) -> UpstreamReply:
    """Send a small request."""
    route = await upstream.resolve(model)
    caller = calling(*(headers or (BEARER,)), fingerprint=by)
    return await upstream.send(route, body or body_of(dialect), caller, dialect=dialect, stream=False)


def paths(server: ScriptedServer) -> list[str]:
    """Return the paths that were asked."""
    return [exchange.line.split(" ")[1].removeprefix("/v1") for exchange in server.exchanges]


@pytest.mark.parametrize("dialect", OTHERS, ids=lambda dialect: dialect.name)
@pytest.mark.parametrize("server_name", MISSING)
async def test_a_server_without_the_endpoint_is_asked_once_and_then_over_the_bridge(
    wire: WireLane, dialect: Dialect, server_name: str
) -> None:
    """The client's first request is answered, too; after a while the server is asked once more."""
    clock = Clock()
    async with chat_only("404 Not Found", MISSING[server_name]) as server:
        upstream = upstream_at(server, wire, clock)
        for _ in range(3):
            reply = await ask(upstream, dialect)
            read = dialect.fold_body(await everything(reply))
            assert reply.status == 200
            assert read.message is not None
            assert read.message.text == "Hello."
        assert paths(server) == [dialect.path, *["/chat/completions"] * 3]
        clock.now = LESSON_SECONDS + 1
        await everything(await ask(upstream, dialect))
        assert paths(server)[4:] == [dialect.path, "/chat/completions"]


@pytest.mark.parametrize("status", ["405 Method Not Allowed", "501 Not Implemented"])
async def test_a_method_that_is_not_allowed_says_the_same(wire: WireLane, status: str) -> None:
    """Whatever the body says."""
    async with chat_only(status, b"no model here") as server:
        assert (await ask(upstream_at(server, wire), MESSAGES)).status == 200


@asynccontextmanager
async def behind_a_firewall() -> AsyncIterator[ScriptedServer]:
    """Run a server with every endpoint, behind a firewall that answers some texts with 405."""

    async def script(exchange: Exchange) -> None:
        if b"UNION SELECT" in exchange.body:
            await exchange.answer(b"<html>405</html>", "405 Method Not Allowed")
        else:
            await exchange.answer(b'{"native": true}', headers=b"content-type: application/json\r\n")

    async with serving(script) as server:
        yield server


def attack_in(dialect: Dialect) -> bytes:
    """Return a small request whose text the firewall refuses."""
    return body_of(dialect).replace(b"Hi.", b"' UNION SELECT 1")


@pytest.mark.parametrize("dialect", OTHERS, ids=lambda dialect: dialect.name)
async def test_what_a_firewall_says_of_one_clients_text_changes_nothing_for_others(
    wire: WireLane, dialect: Dialect
) -> None:
    """Not even before anybody was answered; a lesson is that of its credential."""
    async with behind_a_firewall() as server:
        upstream = upstream_at(server, wire)
        await everything(await ask(upstream, dialect, by=b"mallory", body=attack_in(dialect)))
        await everything(await ask(upstream, dialect, by=b"victim"))
        assert paths(server)[-1] == dialect.path


async def test_a_refusal_of_a_dialect_that_was_answered_before_is_the_clients(wire: WireLane) -> None:
    """It is carried as it came, sent once, and the next request of the same credential goes out natively."""
    async with behind_a_firewall() as server:
        upstream = upstream_at(server, wire)
        await everything(await ask(upstream, RESPONSES))
        refused = await ask(upstream, RESPONSES, body=attack_in(RESPONSES))
        assert (refused.status, await everything(refused)) == (405, b"<html>405</html>")
        await everything(await ask(upstream, RESPONSES))
        assert paths(server) == ["/responses"] * 3


@pytest.mark.parametrize("name", OBJECTS)
async def test_a_404_about_a_model_or_a_response_is_the_clients(wire: WireLane, name: str) -> None:
    """It is carried byte for byte, and the endpoint counts as there."""
    async with chat_only("404 Not Found", OBJECTS[name]) as server:
        upstream = upstream_at(server, wire)
        for _ in range(2):
            reply = await ask(upstream, RESPONSES)
            assert (reply.status, await everything(reply)) == (404, OBJECTS[name])
        assert paths(server) == ["/responses", "/responses"]


async def test_what_is_configured_is_not_asked(wire: WireLane) -> None:
    """model_info.dialects: the others go over the bridge at once, and a 404 of one that is listed is the client's."""
    async with chat_only("404 Not Found", MISSING["vLLM"]) as server:
        await everything(await ask(upstream_at(server, wire, dialects=["chat"]), RESPONSES))
        assert paths(server) == ["/chat/completions"]
        listed = upstream_at(server, wire, dialects=["chat", "responses"])
        assert (await ask(listed, RESPONSES)).status == 404


@pytest.mark.parametrize("value", ["chat", [], ["grpc"], [1]])
def test_an_unknown_dialect_in_the_configuration_is_refused(value: Any) -> None:
    """The error lists what there is."""
    entry = {"model_name": "m", "litellm_params": {"model": "openai/m"}, "model_info": {"dialects": value}}
    with pytest.raises(ConfigError, match=r"model_list\[0\]\.model_info\.dialects .*chat, responses, messages"):
        LiteLLMUpstream([entry])


@pytest.mark.parametrize(
    ("sent", "configured", "expected"),
    [
        (("authorization", "Bearer a-token"), None, {"authorization": "Bearer a-token"}),
        (("x-api-key", "sk-ant-1"), None, {"x-api-key": "sk-ant-1"}),
        (("authorization", "Bearer sk-ant-1"), "sk-own", {"x-api-key": "sk-own"}),
        (("authorization", "Bearer sk-ant-oat01-x"), None, {"authorization": "Bearer sk-ant-oat01-x"}),
    ],
)
async def test_a_gateway_of_anthropics_format_gets_messages_with_the_headers_of_that_format(
    wire: WireLane, sent: tuple[str, str], configured: str | None, expected: dict[str, str]
) -> None:
    """Over the wire, although chat completions for it go through litellm; the version has a default."""

    async def script(exchange: Exchange) -> None:
        await exchange.answer(b"{}")

    async with serving(script) as server:
        params: dict[str, Any] = {"model": "anthropic/claude", "api_base": server.base_url.removesuffix("/v1")}
        params |= {"api_key": configured} if configured else {}
        upstream = LiteLLMUpstream([{"model_name": "m", "litellm_params": params}], wire=wire, write_chat=CHAT.write)
        assert (await upstream.resolve("m")).lane == "translate"
        await everything(await ask(upstream, MESSAGES, "m", sent, ("anthropic-beta", "a,b")))
        assert server.last.line == "POST /v1/messages HTTP/1.1"
        headers = dict(server.last.headers)
        assert headers["anthropic-version"] == "2023-06-01"
        assert headers["anthropic-beta"] == "a,b"
        assert {name: value for name, value in headers.items() if name in ("authorization", "x-api-key")} == expected
        route = await upstream.resolve("m")
        await everything(await upstream.forward(route, "GET", "/messages/batches?limit=1", b"", calling(sent)))
        assert server.last.line == "GET /v1/messages/batches?limit=1 HTTP/1.1"


@respx.mock
async def test_other_providers_get_every_dialect_through_litellm(wire: WireLane) -> None:
    """Gemini is asked in its own format, and the client gets a response."""
    parts = {"role": "model", "parts": [{"text": "Hello."}]}
    answer = {
        "candidates": [{"content": parts, "finishReason": "STOP", "index": 0}],
        "usageMetadata": {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5},
    }
    asked = respx.post(host="generativelanguage.googleapis.com").mock(return_value=httpx.Response(200, json=answer))
    entry = {"model_name": "m", "litellm_params": {"model": "gemini/gemini-2.5-flash", "api_key": "k"}}
    upstream = LiteLLMUpstream([entry], wire=wire, write_chat=CHAT.write)
    for dialect in OTHERS:
        reply = await ask(upstream, dialect)
        read = dialect.fold_body(await everything(reply))
        assert read.message is not None
        assert (read.message.text, read.complete) == ("Hello.", True)
    assert asked.call_count == len(OTHERS)
