"""Claude Code. Source of the switches: the texts of the program, 2.1.197.

At another address than Anthropic's it sends no search for tools, and assumes that the address lacks other features,
unless a variable says otherwise. The long window goes with the model's name (``[1m]``), at any address.
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.cli.agents.agent import Agent, Place
from tidemark.cli.agents.settings_file import JsonFile, below

FIRST_PARTY = "_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL"
TOOL_SEARCH = "ENABLE_TOOL_SEARCH"


def _variables(place: Place) -> Mapping[str, str]:
    variables = {"ANTHROPIC_BASE_URL": place.url}
    if place.spoken == "anthropic":
        variables[FIRST_PARTY] = "1"
    if place.spoken != "other":  # a bridge to another format has nothing like `tool_reference`
        variables[TOOL_SEARCH] = "true"
    return variables


def _values(place: Place) -> Mapping[str, str]:
    return {f"env.{name}": value for name, value in _variables(place).items()}


CLAUDE = Agent(
    program="claude",
    install="npm install --global @anthropic-ai/claude-code",
    variables=_variables,
    file=JsonFile(below("CLAUDE_CONFIG_DIR", ".claude", "settings.json")),
    values=_values,
)
