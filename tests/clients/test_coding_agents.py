"""Codex, Claude Code and opencode work through Tidemark: their streams, their own tools, and talks over processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.agents import AGENTS, CODEX, Agent, compacting_codex
from tests.clients.conftest import LONG, SAYS, SUMMARY, TOLD, Site, skip_unless_installed
from tests.clients.programs import key_name
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.clients, pytest.mark.timeout(400)]


@pytest.fixture(scope="module", params=AGENTS, ids=lambda agent: f"{agent.name}-{agent.dialect}")
def agent(request: pytest.FixtureRequest) -> Agent:
    """One coding agent in one dialect."""
    agent: Agent = request.param
    skip_unless_installed(agent.missing)
    return agent


def key(agent: Agent, scenario: str) -> str:
    """The agent's key in a scenario."""
    return f"sk-{scenario}-{key_name(agent.name, agent.dialect)}"


def test_an_agent_prints_the_answer_that_was_streamed(agent: Agent, site: Site, tmp_path: Path) -> None:
    """Each of its requests asks for a stream."""
    printed = agent.say(site.agents_url, key(agent, "stream"), tmp_path, ["Say hello."])
    assert [text.strip() for text in printed] == [SAYS.text]
    assert all(request.streams for request in site.received(key(agent, "stream")))


def test_an_agents_own_tool_runs_and_its_result_is_answered(agent: Agent, site: Site, tmp_path: Path) -> None:
    """The upstream calls the tool that runs commands."""
    printed = agent.say(site.agents_url, key(agent, "tools"), tmp_path, ["Say hello."])
    assert [text.strip() for text in printed] == [TOLD.text]
    assert b"tidemark-42" in site.received(key(agent, "tools"))[-1].body


def test_an_agents_talk_crosses_the_high_water_as_one_conversation(agent: Agent, site: Site, tmp_path: Path) -> None:
    """Each prompt is a process that goes on where the one before it ended."""
    prompts = [f"Point {turn}: " + " ".join(f"w{turn}x{word % 7}" for word in range(4000)) for turn in range(3)]
    printed = agent.say(site.agents_url, key(agent, "talk"), tmp_path, prompts)
    assert [text.strip() for text in printed] == [SAYS.text] * 3
    assert SUMMARY in site.received(key(agent, "talk"))[-1].body
    expected = 1 + agent.titles
    # A conversation without a name is listed a moment after its turn.
    wait_until(lambda: site.conversations(site.agents_url, key(agent, "talk")) >= expected)
    assert site.conversations(site.agents_url, key(agent, "talk")) == expected


def test_codex_compacts_its_own_talk_twice_and_goes_on(site: Site, tmp_path: Path) -> None:
    """It asks with a trigger, which this upstream does not know and never gets; each summary has the one before it."""
    agent = Agent("codex", "responses", compacting_codex, CODEX)
    skip_unless_installed(agent.missing)
    prompts = [f"Berth {4411 + turn} is closed, and what else?" for turn in range(3)]
    printed = agent.say(site.agents_url, key(agent, "compacts"), tmp_path, prompts)
    assert [text.strip() for text in printed] == [LONG.text] * 3
    received = site.received(key(agent, "compacts"))
    assert len(received) == 3
    assert [request.body.count(SUMMARY) for request in received] == [0, 1, 1]
    assert not any(b'"compaction' in request.body for request in received)
    summary = next(item["content"] for item in received[-1].json["input"] if item["role"] == "system")
    assert all(prompt in summary for prompt in prompts[:2])
    assert LONG.text in summary
