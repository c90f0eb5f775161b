"""The clients that ``tidemark wrap`` starts by their names. To add one, write its file and name it here."""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.cli.agents.agent import Agent
from tidemark.cli.agents.aider import AIDER
from tidemark.cli.agents.claude import CLAUDE
from tidemark.cli.agents.codex import CODEX
from tidemark.cli.agents.llm import LLM
from tidemark.cli.agents.opencode import OPENCODE
from tidemark.cli.agents.pi import PI
from tidemark.cli.agents.qwen import QWEN

AGENTS: Mapping[str, Agent] = {agent.program: agent for agent in (CLAUDE, CODEX, OPENCODE, AIDER, QWEN, PI, LLM)}
