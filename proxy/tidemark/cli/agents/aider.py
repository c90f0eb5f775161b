"""The agent aider, which asks its models through litellm."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.cli.agents.agent import Agent, Place
from tidemark.cli.agents.settings_file import TextFile, below


def _variables(place: Place) -> Mapping[str, str]:
    # aider's own variable goes before its file; litellm reads both of OpenAI's, the first one first.
    openai = ("AIDER_OPENAI_API_BASE", "OPENAI_BASE_URL", "OPENAI_API_BASE")
    return dict.fromkeys(openai, place.openai) | {"ANTHROPIC_API_BASE": place.url}


def _values(place: Place) -> Mapping[str, str]:
    return {"openai-api-base": place.openai, "set-env": f"ANTHROPIC_API_BASE={place.url}"}


def _line(key: str, value: str) -> str:
    return f"{key}: {value}\n"


AIDER = Agent(
    program="aider",
    install="python -m pip install aider-chat",
    variables=_variables,
    file=TextFile(below("", ".", ".aider.conf.yml"), _line, is_first=False),
    values=_values,
)
