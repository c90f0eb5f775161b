"""The table of clients on docs/clients.md is that of the tests which run them, at the versions of their locks."""

from __future__ import annotations

import json
import re
from itertools import groupby

from tests.clients.agents import AGENTS
from tests.clients.programs import HERE, LIBRARIES, Library
from tests.docs.pages import ROOT

PACKAGES = {
    "aider": "aider-chat",
    "claude-code": "@anthropic-ai/claude-code",
    "codex": "@openai/codex",
    "openai for Node": "openai",
    "opencode": "opencode-ai",
    "pydantic-ai": "pydantic-ai-slim",
}
"""The packages of clients that are known by another name."""
WORDS = {"whole": "whole answers", "stream": "streams", "tools": "tools", "talk": "long talks"}
"""What is tested, by scenario; a row says ``all`` for the four."""
DIALECTS = {"continued": "`previous_response_id`"}


def version(name: str, environment: str) -> str:
    """The version of a client in its lock."""
    package = PACKAGES.get(name, name)
    if environment == "node":
        dependencies: dict[str, str] = json.loads((HERE / "node" / "package.json").read_text())["dependencies"]
        return dependencies[package]
    lock = (HERE / "python" / f"{environment}.txt").read_text()
    found = re.search(rf"^{re.escape(package)}==(\S+)", lock, re.MULTILINE)
    assert found, package
    return found[1]


def rows() -> list[str]:
    """The table's rows, in the order of the tests."""
    made = []
    for (name, environment), group in groupby(LIBRARIES, key=lambda library: (library.name, library.environment)):
        libraries: list[Library] = list(group)
        dialects = ", ".join(DIALECTS.get(library.dialect, library.dialect) for library in libraries)
        tested = [word for name, word in WORDS.items() if any(name in one.scenarios for one in libraries)]
        scenarios = "all" if len(tested) == len(WORDS) else ", ".join(tested)
        made.append(f"| `{name}` | {version(name, environment)} | {dialects} | {scenarios} |")
    for name, agents in groupby(AGENTS, key=lambda agent: agent.name):
        dialects = ", ".join(agent.dialect for agent in agents)
        made.append(f"| `{name}` | {version(name, 'node')} | {dialects} | streams, tools, long talks |")
    return made


def test_the_table_of_clients_is_what_is_tested() -> None:
    """A version that is renewed, or a client that is added, changes the page."""
    page = (ROOT / "docs" / "clients.md").read_text()
    _, _, table = page.partition("| client | version |")
    assert [line for line in table.partition("\n\n")[0].splitlines()[2:] if line.startswith("|")] == rows()
