"""The agent opencode: its providers ``openai`` and ``anthropic`` are led elsewhere, beside the user's own settings."""

from __future__ import annotations

import json
from collections.abc import Mapping

from tidemark.cli.agents.agent import Agent, Place
from tidemark.cli.agents.settings_file import JsonFile, below

CONTENT = "OPENCODE_CONFIG_CONTENT"
"""Settings that opencode lays over those of its files."""


def _values(place: Place) -> Mapping[str, str]:
    return {f"provider.{provider}.options.baseURL": place.openai for provider in ("openai", "anthropic")}


FILE = JsonFile(below("XDG_CONFIG_HOME", ".config", "opencode", "opencode.json"))


def _variables(place: Place) -> Mapping[str, str]:
    return {CONTENT: json.dumps(json.loads(FILE.with_values(place.environ.get(CONTENT, ""), _values(place))))}


OPENCODE = Agent(
    program="opencode",
    install="npm install --global opencode-ai",
    variables=_variables,
    file=FILE,
    values=_values,
)
