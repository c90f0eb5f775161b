"""The agent pi: it has no variable for an address, so an extension of ours leads its providers elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from proxy.cli.agents.agent import Agent, Place
from proxy.cli.agents.settings_file import Environ, JsonFile

EXTENSION = Path(__file__).with_name("pi_extension.js")


def _values(place: Place) -> Mapping[str, str]:
    return {"providers.openai.baseUrl": place.openai, "providers.anthropic.baseUrl": place.url}


def _path(environ: Environ) -> Path:
    folder = environ.get("PI_CODING_AGENT_DIR")
    return (Path(folder) if folder else Path(environ.get("HOME", "~")).expanduser() / ".pi" / "agent") / "models.json"


PI = Agent(
    program="pi",
    install="npm install --global @earendil-works/pi-coding-agent",
    variables=lambda place: {"PI_TIDEMARK_URL": place.url},
    arguments=lambda _: ("--extension", str(EXTENSION)),
    file=JsonFile(_path),
    values=_values,
)
