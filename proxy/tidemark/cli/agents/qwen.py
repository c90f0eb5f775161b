"""Qwen Code, which reads OpenAI's variables if a setting says to log in by them."""

from __future__ import annotations

from tidemark.cli.agents.agent import Agent

QWEN = Agent(
    program="qwen",
    install="npm install --global @qwen-code/qwen-code",
    variables=lambda place: {"OPENAI_BASE_URL": place.openai},
    arguments=lambda _: ("--auth-type", "openai"),
)
