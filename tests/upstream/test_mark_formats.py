"""Which upstreams are known to take cache marks, by provider, address and model."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tidemark.core.conversation.cache_marks import MarkPolicy
from tidemark.core.ports import Caller, Route
from tidemark.upstream.upstream import LiteLLMUpstream

CALLER = Caller(b"f", ())
CLAUDE, GPT = "claude-sonnet-4-5", "gpt-5.6-terra"
ANTHROPIC = Route("translate", "m", CLAUDE, "anthropic", "https://api.anthropic.com")
BEDROCK = Route("translate", "m", f"anthropic.{CLAUDE}-20250929-v1:0", "bedrock", "")
VERTEX = Route("translate", "m", CLAUDE, "vertex_ai", "")
OPENAI = Route("wire", "m", GPT, "openai", "https://api.openai.com/v1")
OWN = Route("wire", "m", CLAUDE, "openai", "http://127.0.0.1:8080/v1")
GATEWAY = replace(ANTHROPIC, base_url="https://gateway.example/anthropic")


def members(route: Route, policy: MarkPolicy = "auto") -> list[str]:
    """The member by which each dialect's requests are marked; empty for none."""
    upstream = LiteLLMUpstream()
    forms = [upstream.mark_format(route, dialect, CALLER, policy) for dialect in ("chat", "responses", "messages")]
    return ["" if form is None else form.names[0] for form in forms]


@pytest.mark.parametrize("route", [ANTHROPIC, BEDROCK, VERTEX])
def test_claude_at_its_providers_is_marked(route: Route) -> None:
    """In chat completions, which go through litellm, and in messages. No bridge carries marks of Responses."""
    assert members(route) == ["cache_control", "", "cache_control"]


def test_openai_is_marked_by_its_own_member() -> None:
    """In both of its formats, and from the model on that takes it."""
    assert members(OPENAI) == ["prompt_cache_breakpoint", "prompt_cache_breakpoint", ""]
    assert members(replace(OPENAI, upstream_model="gpt-5.5")) == ["", "", ""]


@pytest.mark.parametrize(
    "route",
    [OWN, GATEWAY, replace(OPENAI, base_url="https://openai.example/v1"), replace(BEDROCK, upstream_model="nova-pro")],
)
def test_servers_that_may_refuse_the_member_get_none(route: Route) -> None:
    """Those that speak the same format at another address, and other models of the same cloud."""
    assert members(route) == ["", "", ""]


def test_on_marks_at_any_address_by_the_models_name() -> None:
    """As for a gateway before the provider; ``off`` marks nowhere."""
    assert members(OWN, "on") == ["cache_control", "", "cache_control"]
    assert members(GATEWAY, "on") == ["cache_control", "", "cache_control"]
    assert members(replace(OWN, upstream_model=GPT), "on") == ["prompt_cache_breakpoint", "prompt_cache_breakpoint", ""]
    assert members(replace(OWN, upstream_model="house-model"), "on") == ["", "", ""]
    assert all(members(route, "off") == ["", "", ""] for route in (ANTHROPIC, BEDROCK, OPENAI, OWN))
