"""Codex CLI. Its own provider ``openai`` is led elsewhere, so that its login and its compaction stay."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tidemark.cli.agents.agent import Agent, Place
from tidemark.cli.agents.settings_file import TextFile, below

KEY = "openai_base_url"


def _line(key: str, value: str) -> str:
    return f"{key} = {json.dumps(value)}\n"


def _values(place: Place) -> Mapping[str, str]:
    return {KEY: place.openai}


def _arguments(place: Place) -> Sequence[str]:
    return "-c", f"{KEY}={json.dumps(place.openai)}"


CODEX = Agent(
    program="codex",
    install="npm install --global @openai/codex",
    variables=lambda _: {},
    arguments=_arguments,
    file=TextFile(below("CODEX_HOME", ".codex", "config.toml"), _line, is_first=True),
    values=_values,
)
