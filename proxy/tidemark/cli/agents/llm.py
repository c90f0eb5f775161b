"""The command ``llm``, whose OpenAI models and whose plugin for Anthropic's read the variables of the SDKs."""

from __future__ import annotations

from tidemark.cli.agents.agent import Agent

LLM = Agent(
    program="llm",
    install="python -m pip install llm",
    variables=lambda place: {"OPENAI_BASE_URL": place.openai, "ANTHROPIC_BASE_URL": place.url},
)
