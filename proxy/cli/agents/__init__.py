"""The clients that ``tidemark wrap`` starts by their names. To add one, write its file and name it here."""

from __future__ import annotations

from collections.abc import Mapping

from proxy.cli.agents.agent import Agent
from proxy.cli.agents.aider import AIDER
from proxy.cli.agents.claude import CLAUDE
from proxy.cli.agents.codex import CODEX
from proxy.cli.agents.llm import LLM
from proxy.cli.agents.opencode import OPENCODE
from proxy.cli.agents.pi import PI
from proxy.cli.agents.qwen import QWEN

AGENTS: Mapping[str, Agent] = {agent.program: agent for agent in (CLAUDE, CODEX, OPENCODE, AIDER, QWEN, PI, LLM)}
