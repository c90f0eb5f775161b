"""Request parameters of an entry on the wire lane: LiteLLM's rule, without LiteLLM."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.scripted import ScriptedUpstream
from tests.upstream.callers import calling, everything
from tidemark.core.ports import TextRequest
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.responses.dialect import ResponsesDialect
from tidemark.upstream.upstream import LiteLLMUpstream

CHAT = ChatDialect()
ALICE = calling(("authorization", "Bearer alice"))
ASKED = {"model": "house", "messages": [{"role": "user", "content": "hi"}]}
THINKS_NOT = {"chat_template_kwargs": {"enable_thinking": False}}


def entry(base: str, params: Mapping[str, Any], provider: str = "hosted_vllm", **more: Any) -> Mapping[str, Any]:
    """An entry of model_list with request parameters."""
    return {"model_name": "house", "litellm_params": {"model": f"{provider}/qwen", "api_base": base, **params}, **more}


async def sent_by(server: ScriptedUpstream, item: Mapping[str, Any], asked: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the body that the server gets for a request through an entry."""
    upstream = LiteLLMUpstream([item])
    route = await upstream.resolve("house")
    body = json.dumps({**ASKED, "model": route.upstream_model, **asked}).encode()
    reply = await upstream.send(route, body, ALICE, dialect=CHAT, stream=False)
    assert reply.status == 200
    await everything(reply)
    await upstream.aclose()
    received: Mapping[str, Any] = server.last.json
    return received


@pytest.mark.parametrize(
    ("params", "asked"),
    [
        ({"temperature": 0.2, "top_p": 0.9}, {}),
        ({"temperature": 0.2}, {"temperature": 0.9}),
        ({"temperature": 0.2}, {"temperature": None}),
        ({"max_tokens": 256, "seed": 7}, {"max_tokens": 12}),
        ({"extra_body": THINKS_NOT}, {}),
        ({"extra_body": {"temperature": 0.1}}, {"temperature": 0.9}),
        ({"min_p": 0.05, "top_k": 20, "repetition_penalty": 1.1}, {}),
        ({"additional_drop_params": ["seed", "user"]}, {"seed": 1, "user": "u", "stop": ["x"]}),
        ({"reasoning_effort": "low", "stop": ["END"]}, {}),
        ({"temperature": 0.3, "additional_drop_params": ["temperature"]}, {"temperature": 1}),
        ({"extra_body": {"min_p": 0.3}, "additional_drop_params": ["min_p"]}, {}),
        ({"top_k": 9, "extra_body": {"top_k": 5}}, {}),
    ],
)
async def test_the_server_gets_what_litellm_would_send(
    server: ScriptedUpstream, base: str, params: Mapping[str, Any], asked: Mapping[str, Any]
) -> None:
    """The client's own members come first, null counts as missing, and the rest is as in litellm."""
    own = await sent_by(server, entry(base, params), asked)
    by_litellm = await sent_by(server, entry(base, params, lane="translate"), asked)
    for sent in (own, by_litellm):  # which of them is left out or null makes no difference to a server
        assert sent["model"] == "qwen"
    assert {name: value for name, value in own.items() if value is not None} == {
        name: value for name, value in by_litellm.items() if name != "stream"
    }


async def test_what_nothing_is_said_of_keeps_its_bytes(server: ScriptedUpstream, base: str) -> None:
    """Also numbers in another notation and members that litellm would leave out."""
    upstream = LiteLLMUpstream([entry(base, {"temperature": 0.2})])
    route = await upstream.resolve("house")
    body = b'{"model":"qwen", "x_own" : 1.50e1,"messages":[{"role": "user","content":"\\u00e9"}]}'
    await everything(await upstream.send(route, body, ALICE, dialect=CHAT, stream=False))
    assert server.last.body == (
        b'{"model":"qwen","x_own":1.50e1,"messages":[{"role": "user","content":"\\u00e9"}],"temperature":0.2}'
    )
    await upstream.aclose()


async def test_the_clients_own_members_come_before_extra_body(server: ScriptedUpstream, base: str) -> None:
    """As in LiteLLM's proxy; only members that OpenAI's SDK has arguments for are replaced."""
    item = entry(base, {"extra_body": {**THINKS_NOT, "temperature": 0.1}})
    thinks = {"chat_template_kwargs": {"enable_thinking": True}}
    sent = await sent_by(server, item, {**thinks, "temperature": 0.9})
    assert (sent["chat_template_kwargs"], sent["temperature"]) == (thinks["chat_template_kwargs"], 0.1)


async def test_either_name_of_the_replys_bound_is_the_clients(server: ScriptedUpstream, base: str) -> None:
    """A server would take the smaller or the newer name of two."""
    sent = await sent_by(server, entry(base, {"max_tokens": 256}), {"max_completion_tokens": 12})
    assert (sent["max_completion_tokens"], sent.get("max_tokens")) == (12, None)


@pytest.mark.parametrize(
    ("item", "lane"),
    [
        (entry("http://a/v1", {"temperature": 0}), "wire"),
        (entry("http://a/v1", {"extra_body": {}}, "openai"), "wire"),
        (entry("https://api.openai.com/v1", {"max_tokens": 9}, "openai"), "translate"),  # o3 knows another name
        (entry("http://a/v1", {"additional_drop_params": ["tools[*].strict"]}), "translate"),
        (entry("http://a/v1", {"stream_options": {"include_usage": True}}), "translate"),
        (entry("http://a/v1", {"temperature": 0, "mock_response": "x"}), "translate"),
        (entry("http://a/v1", {"temperature": 0, "guided_json": {}}), "translate"),  # is it for the body?
        (entry("http://a/v1", {"temperature": 0, "api_key": "k", "timeout": 5, "drop_params": True}), "wire"),
        (entry("http://a/v1", {"thinking": {"type": "enabled"}}), "translate"),
        (entry("http://a/v1", {"extra_body": {"provider": {"order": ["x"]}}}, "openrouter"), "wire"),
        (entry("http://a/v1", {"reasoning_effort": "low"}, "openrouter"), "translate"),  # litellm knows its words
    ],
)
async def test_the_lane_is_wire_if_the_parameters_can_be_written(item: Mapping[str, Any], lane: str) -> None:
    """What is left to litellm are providers whose parameters it renames, and what it does beside the body."""
    assert (await LiteLLMUpstream([item]).resolve("house")).lane == lane


async def test_a_summary_is_asked_for_with_the_same_parameters(server: ScriptedUpstream, base: str) -> None:
    """Or a model thinks for minutes about a summary; but the bound of its length is the summary's own."""
    upstream = LiteLLMUpstream([entry(base, {"max_tokens": 9, "temperature": 0.2, "extra_body": THINKS_NOT})])
    route = await upstream.resolve("house")
    await upstream.complete(route, TextRequest([{"role": "user", "content": "Summarize."}], 300, 5.0), ALICE)
    sent = server.last.json
    assert (sent["max_tokens"], sent["temperature"], sent["chat_template_kwargs"]) == (
        300,
        0.2,
        {"enable_thinking": False},
    )
    await upstream.aclose()


async def test_another_dialect_goes_over_the_bridge_with_the_parameters(server: ScriptedUpstream, base: str) -> None:
    """They are those of chat completions."""
    upstream = LiteLLMUpstream([entry(base, {"temperature": 0.2})], write_chat=CHAT.write)
    route = await upstream.resolve("house")
    body = json.dumps({"model": "qwen", "input": "hi"}).encode()
    await everything(await upstream.send(route, body, ALICE, dialect=ResponsesDialect(), stream=False))
    assert (server.last.path, server.last.json["temperature"]) == ("/v1/chat/completions", 0.2)
    await upstream.aclose()


@pytest.mark.parametrize(
    "more",
    [
        {"lane": "wire"},
        {"model_info": {"dialects": ["responses"]}},
        {"model_info": {"dialects": ["chat", "responses"]}},
    ],
)
async def test_a_stated_lane_or_dialect_goes_as_it_says(
    server: ScriptedUpstream, base: str, more: Mapping[str, Any]
) -> None:
    """An upstream that has the dialect itself keeps its responses, its tools and its reasoning."""
    upstream = LiteLLMUpstream([entry(base, {"temperature": 0.2}, **more)], write_chat=CHAT.write)
    route = await upstream.resolve("house")
    body = json.dumps({"model": "qwen", "input": "hi", "previous_response_id": "resp_1"}).encode()
    await everything(await upstream.send(route, body, ALICE, dialect=ResponsesDialect(), stream=False))
    assert (server.last.path, server.last.body) == ("/v1/responses", body)
    await upstream.aclose()


async def test_neither_model_nor_messages_are_left_out(server: ScriptedUpstream, base: str) -> None:
    """Without them there is no request."""
    sent = await sent_by(server, entry(base, {"additional_drop_params": ["messages", "model", "user"]}), {"user": "u"})
    assert sent == {"model": "qwen", "messages": ASKED["messages"]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("/completions", {"prompt": "hi", "temperature": 0.2, "truncate_prompt_tokens": 9}),
        ("/embeddings?x=1", {"prompt": "hi", "truncate_prompt_tokens": 9}),
        ("/tokenize", {"prompt": "hi"}),
    ],
)
async def test_carried_requests_get_what_their_endpoint_takes(
    server: ScriptedUpstream, base: str, path: str, expected: Mapping[str, Any]
) -> None:
    """Text completions take most, embeddings what ``extra_body`` says."""
    upstream = LiteLLMUpstream(
        [entry(base, {"temperature": 0.2, "tools": [], "extra_body": {"truncate_prompt_tokens": 9}})]
    )
    route = await upstream.resolve("house")
    await everything(await upstream.forward(route, "POST", path, b'{"prompt": "hi"}', ALICE))
    assert server.last.json == expected
    await upstream.aclose()
