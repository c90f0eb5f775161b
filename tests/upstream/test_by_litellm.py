"""``transport.lane: litellm``: which routes it changes, and whose keys, headers and cookies go where."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from tests.support.scripted import Answer, Received, ScriptedUpstream, says
from tests.support.serving import Serving
from tests.upstream.callers import calling, everything
from tidemark.core.errors import DialectNotServed
from tidemark.core.ports import Caller, Route, UpstreamReply
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.upstream.upstream import LiteLLMUpstream

CHAT = ChatDialect()
ALICE = calling(("authorization", "Bearer alice"))
ASKED = {"model": "small", "messages": [{"role": "user", "content": "hi"}]}


async def ask(upstream: LiteLLMUpstream, caller: Caller = ALICE, model: str = "small", **members: Any) -> UpstreamReply:
    """Send a chat request, and read its answer."""
    route = await upstream.resolve(model)
    reply = await upstream.send(
        route, json.dumps({**ASKED, "model": model, **members}).encode(), caller, dialect=CHAT, stream=False
    )
    await everything(reply)
    return reply


def entry(name: str, model: str, **more: Any) -> Mapping[str, Any]:
    """An entry of model_list."""
    return {"model_name": name, "litellm_params": {"model": model, "api_base": "http://house/v1"}, **more}


async def test_the_switch_changes_routes_of_bytes_and_an_entrys_own_lane_comes_first() -> None:
    """Claude's messages, which go as bytes without it, are among them."""
    upstream = LiteLLMUpstream(
        [
            entry("house", "openai/house"),
            entry("kept", "openai/kept", lane="wire"),
            entry("asked", "openai/asked", lane="translate"),
            entry("claude", "anthropic/claude-sonnet-4-5"),
        ],
        by_litellm=True,
    )
    routes = {name: await upstream.resolve(name) for name in ("house", "kept", "asked", "claude")}
    assert {name: (route.lane, route.takes_bytes) for name, route in routes.items()} == {
        "house": ("translate", True),
        "kept": ("wire", False),
        "asked": ("translate", False),
        "claude": ("translate", True),
    }
    assert routes["claude"].dialects == {"chat"}


async def test_an_upstream_without_chat_is_refused_with_both_ways_out() -> None:
    """Which are another list of dialects, and the entry's own lane."""
    upstream = LiteLLMUpstream(
        [entry("codex", "openai/codex", model_info={"dialects": ["responses"]})], by_litellm=True
    )
    route: Route = await upstream.resolve("codex")
    with pytest.raises(DialectNotServed, match="chat") as refused:
        await upstream.send(route, b"{}", ALICE, dialect=_Responses(), stream=False)  # type: ignore[arg-type]
    assert "lane: wire" in refused.value.message


class _Responses:
    """A dialect of that name, of which nothing but the name is read."""

    name = "responses"


async def test_a_key_is_the_callers_or_none_and_never_the_servers(
    server: ScriptedUpstream, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also in the header of another SDK, where a gateway may read it."""
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-server")
    upstream = LiteLLMUpstream([], base, by_litellm=True)
    sent = []
    for caller in (ALICE, calling(("x-api-key", "bob")), calling()):
        await ask(upstream, caller)
        sent.append([(name, value) for name, value in server.last.lines if name in ("authorization", "x-api-key")])
    assert sent == [
        [("authorization", "Bearer alice")],
        [("authorization", "Bearer bob"), ("x-api-key", "bob")],
        [("authorization", "Bearer none")],
    ]
    assert not upstream.has_credential(await upstream.resolve("small"))
    await upstream.aclose()


async def test_a_clients_own_key_goes_without_the_servers_organization(
    server: ScriptedUpstream, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The organization and project of the environment belong to the server's key, and are told to nobody else."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-server")
    monkeypatch.setenv("OPENAI_PROJECT_ID", "proj-of-the-server")
    upstream = LiteLLMUpstream([], base, by_litellm=True)
    await ask(upstream, calling(("authorization", "Bearer alice")))
    assert [line for line in server.last.lines if line[0].startswith("openai-")] == []
    assert ("authorization", "Bearer alice") in server.last.lines
    await upstream.aclose()


async def test_headers_arrive_once_and_the_clients_come_before_the_environments(
    server: ScriptedUpstream, base: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK beneath litellm reads an organization from the environment."""
    monkeypatch.setenv("OPENAI_ORG_ID", "org-of-the-server")
    params = {"model": "openai/small", "api_base": base, "extra_headers": {"X-House": "1"}}
    upstream = LiteLLMUpstream([{"model_name": "small", "litellm_params": params}], by_litellm=True)
    await ask(upstream, calling(("authorization", "Bearer alice"), ("openai-organization", "org-a"), ("x-own", "2")))
    named = ("openai-organization", "x-house", "x-own")
    assert sorted(line for line in server.last.lines if line[0] in named) == [
        ("openai-organization", "org-a"),
        ("x-house", "1"),
        ("x-own", "2"),
    ]
    await upstream.aclose()


async def test_members_that_steer_litellm_go_to_the_upstream_as_they_are(server: ScriptedUpstream, base: str) -> None:
    """A body changes neither destination nor credential, and a server's own members arrive."""
    upstream = LiteLLMUpstream([], base, by_litellm=True)
    members: dict[str, Any] = {
        "api_base": "http://evil",
        "mock_response": "x",
        "cache_prompt": True,
        "top_k": 3,
        "thinking": {"a": 1},
    }
    await ask(upstream, model="openai/gpt-oss", reasoning_effort="high", **members)
    assert server.last.json == {**ASKED, "model": "openai/gpt-oss", "reasoning_effort": "high", **members}
    await upstream.aclose()


async def test_a_cookie_of_one_answer_goes_with_no_later_request(server: ScriptedUpstream, base: str) -> None:
    """The client beneath litellm is shared between requests, and httpx would keep them."""

    def baking(request: Received) -> Answer:
        return says("Hello.")(request).with_headers(set_cookie="session=alices")

    server.script = baking
    upstream = LiteLLMUpstream([], base, by_litellm=True)
    for _ in range(2):
        await ask(upstream)
    assert [dict(request.lines).get("cookie") for request in server.received] == [None, None]
    await upstream.aclose()


async def test_a_redirect_is_not_followed(server: ScriptedUpstream, base: str) -> None:
    """It would send the prompt to an address that nobody configured."""
    other = ScriptedUpstream(says("Hello."))
    with Serving(other) as elsewhere:
        target = f"{elsewhere.url}/v1/chat/completions".encode()
        server.script = lambda _: Answer([], 307, [(b"location", target)])
        upstream = LiteLLMUpstream([], base, by_litellm=True)
        with pytest.raises(Exception, match="small") as failed:
            await ask(upstream)
        assert not isinstance(failed.value, AssertionError)
        assert other.received == []
        await upstream.aclose()
