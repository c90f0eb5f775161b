"""The real Claude Code with what ``tidemark wrap claude`` sets: its long window and its tool search stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.agents import CLAUDE, claude
from tests.clients.conftest import SAYS, Site, skip_unless_installed
from tests.clients.programs import execute
from tidemark.cli.agents import AGENTS
from tidemark.cli.agents.agent import Place, Spoken

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]

LONG_WINDOW = "context-1m-"
TOOL_SEARCH = "advanced-tool-use-"
"""Beginnings of the beta headers."""


def betas(site: Site, spoken: Spoken, folder: Path) -> list[str]:
    """The beta headers that reached the upstream from one question, of each request."""
    skip_unless_installed("" if CLAUDE.exists() else "Claude Code is not installed: make test-clients")
    key = f"sk-wrapped-{spoken}"
    _, environ = claude(site.agents_url, key, folder, goes_on=False)
    switches = AGENTS["claude"].variables(Place(site.agents_url, spoken, {}))
    command = [str(CLAUDE), "--model", "small[1m]", "-p", "Say hello."]
    assert execute(command, folder, {**environ, **switches}).strip() == SAYS.text
    return [request.headers.get("anthropic-beta", "") for request in site.received(key)]


def test_the_long_window_and_tool_search_reach_anthropic(site: Site, tmp_path: Path) -> None:
    """Where every model is at its own address."""
    sent = betas(site, "anthropic", tmp_path)
    assert sent
    assert all(LONG_WINDOW in beta and TOOL_SEARCH in beta for beta in sent)


def test_tool_search_is_not_asked_of_what_has_none(site: Site, tmp_path: Path) -> None:
    """The same program before another upstream; this is what the switch changes."""
    sent = betas(site, "other", tmp_path)
    assert sent
    assert not any(TOOL_SEARCH in beta for beta in sent)
