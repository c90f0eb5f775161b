"""The agent pi: it has no variable for an address, so an extension of ours leads its providers elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from tidemark.cli.agents.agent import Agent, Place
from tidemark.cli.agents.settings_file import JsonFile, below

EXTENSION = Path(__file__).with_name("pi_extension.js")


def _values(place: Place) -> Mapping[str, str]:
    return {"providers.openai.baseUrl": place.openai, "providers.anthropic.baseUrl": place.url}


PI = Agent(
    program="pi",
    install="npm install --global @earendil-works/pi-coding-agent",
    variables=lambda place: {"PI_TIDEMARK_URL": place.url},
    arguments=lambda _: ("--extension", str(EXTENSION)),
    file=JsonFile(below("PI_CODING_AGENT_DIR", ".pi/agent", "models.json")),
    values=_values,
)
