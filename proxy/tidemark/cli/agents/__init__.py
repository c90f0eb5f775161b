"""The clients that ``tidemark wrap`` starts by their names. To add one, describe it here, and name it in ``AGENTS``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from tidemark.cli.agents.agent import Agent, Place
from tidemark.cli.agents.settings_file import JsonFile, TextFile, below


def _claude_variables(place: Place) -> Mapping[str, str]:
    """Return what Claude Code needs. Source: the texts of the program, 2.1.197.

    At another address than Anthropic's it sends no search for tools, and assumes that the address lacks other features,
    unless a variable says otherwise. The long window goes with the model's name (``[1m]``), at any address.
    """
    variables = {"ANTHROPIC_BASE_URL": place.url}
    if place.spoken == "anthropic":
        variables["_CLAUDE_CODE_ASSUME_FIRST_PARTY_BASE_URL"] = "1"
    if place.spoken != "other":  # a bridge to another format has nothing like `tool_reference`
        variables["ENABLE_TOOL_SEARCH"] = "true"
    return variables


CLAUDE = Agent(
    program="claude",
    install="npm install --global @anthropic-ai/claude-code",
    variables=_claude_variables,
    file=JsonFile(below("CLAUDE_CONFIG_DIR", ".claude", "settings.json")),
    values=lambda place: {f"env.{name}": value for name, value in _claude_variables(place).items()},
)

_CODEX_KEY = "openai_base_url"
"""Leads Codex CLI's own provider ``openai`` elsewhere, so that its login and its compaction stay."""


def _toml_line(key: str, value: str) -> str:
    return f"{key} = {json.dumps(value)}\n"


CODEX = Agent(
    program="codex",
    install="npm install --global @openai/codex",
    variables=lambda _: {},
    arguments=lambda place: ("-c", f"{_CODEX_KEY}={json.dumps(place.openai)}"),
    file=TextFile(below("CODEX_HOME", ".codex", "config.toml"), _toml_line, is_first=True),
    values=lambda place: {_CODEX_KEY: place.openai},
)

_OPENCODE_CONTENT = "OPENCODE_CONFIG_CONTENT"
"""Settings that opencode lays over those of its files: its providers are led elsewhere, beside the user's own."""
_OPENCODE_FILE = JsonFile(below("XDG_CONFIG_HOME", ".config", "opencode", "opencode.json"))


def _opencode_values(place: Place) -> Mapping[str, str]:
    return {f"provider.{provider}.options.baseURL": place.openai for provider in ("openai", "anthropic")}


def _opencode_variables(place: Place) -> Mapping[str, str]:
    content = _OPENCODE_FILE.with_values(place.environ.get(_OPENCODE_CONTENT, ""), _opencode_values(place))
    return {_OPENCODE_CONTENT: json.dumps(json.loads(content))}


OPENCODE = Agent(
    program="opencode",
    install="npm install --global opencode-ai",
    variables=_opencode_variables,
    file=_OPENCODE_FILE,
    values=_opencode_values,
)


def _aider_variables(place: Place) -> Mapping[str, str]:
    # aider's own variable goes before its file; litellm, by which it asks, reads both of OpenAI's, the first one first.
    openai = ("AIDER_OPENAI_API_BASE", "OPENAI_BASE_URL", "OPENAI_API_BASE")
    return dict.fromkeys(openai, place.openai) | {"ANTHROPIC_API_BASE": place.url}


def _yaml_line(key: str, value: str) -> str:
    return f"{key}: {value}\n"


AIDER = Agent(
    program="aider",
    install="python -m pip install aider-chat",
    variables=_aider_variables,
    file=TextFile(below("", ".", ".aider.conf.yml"), _yaml_line, is_first=False),
    values=lambda place: {"openai-api-base": place.openai, "set-env": f"ANTHROPIC_API_BASE={place.url}"},
)

QWEN = Agent(
    program="qwen",
    install="npm install --global @qwen-code/qwen-code",
    variables=lambda place: {"OPENAI_BASE_URL": place.openai},
    arguments=lambda _: ("--auth-type", "openai"),  # only so does it read the variable
)

PI = Agent(
    program="pi",
    install="npm install --global @earendil-works/pi-coding-agent",
    variables=lambda place: {"PI_TIDEMARK_URL": place.url},
    # It has no variable for an address, so an extension of ours leads its providers elsewhere.
    arguments=lambda _: ("--extension", str(Path(__file__).with_name("pi_extension.js"))),
    file=JsonFile(below("PI_CODING_AGENT_DIR", ".pi/agent", "models.json")),
    values=lambda place: {"providers.openai.baseUrl": place.openai, "providers.anthropic.baseUrl": place.url},
)

LLM = Agent(
    program="llm",
    install="python -m pip install llm",
    variables=lambda place: {"OPENAI_BASE_URL": place.openai, "ANTHROPIC_BASE_URL": place.url},
)
"""Its OpenAI models, and its plugin for Anthropic's, read the variables of the SDKs."""

AGENTS: Mapping[str, Agent] = {agent.program: agent for agent in (CLAUDE, CODEX, OPENCODE, AIDER, QWEN, PI, LLM)}
