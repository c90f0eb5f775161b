"""The clients: in which environment each runs, over which dialects, and what is asked of it.

`make test-clients` makes the environments from the lock files in this folder; docs/clients.md lists their versions.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
ENVIRONMENTS = ROOT / ".venv-clients"
NODE = ENVIRONMENTS / "node"
MODULES = NODE / "node_modules"
SECONDS = 100
"""For all scenarios of one client, on a busy machine."""
TALK_WINDOW = 2000
EVERYTHING = ("whole", "stream", "tools", "talk")
COMMAND = "echo tidemark-$((40 + 2))"
COMMAND_TOOLS: Mapping[str, Mapping[str, Any]] = {
    "weather": {"city": "Paris"},
    "exec_command": {"cmd": COMMAND},
    "shell_command": {"command": COMMAND},
    "shell": {"command": ["bash", "-c", COMMAND]},
    "Bash": {"command": COMMAND, "description": "Say something"},
    "bash": {"command": COMMAND, "description": "Say something"},
}
"""The tools that the scripted upstream calls, with their arguments: the drivers' own, and those of coding agents."""
QUIET = {
    "CI": "1",
    "DO_NOT_TRACK": "1",
    "LANGSMITH_TRACING": "false",
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "NO_COLOR": "1",
    "NO_PROXY": "*",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "PYTHONDONTWRITEBYTECODE": "",
    "TERM": "dumb",
}
"""Nothing is reported to anybody, looked up or updated."""


@dataclass(frozen=True)
class Library:
    """A library with a driver."""

    name: str
    """As docs/clients.md names it."""
    dialect: str
    """``continued`` and ``v1`` are ways of their own to speak a dialect."""
    driver: str
    scenarios: Sequence[str] = EVERYTHING
    environment: str = "python"

    @property
    def missing(self) -> str:
        """Why it cannot run here; empty where it can."""
        found = MODULES if self.environment == "node" else self.python
        return "" if found.exists() else f"{found.relative_to(ROOT)} is not installed: make test-clients"

    @property
    def python(self) -> Path:
        """The interpreter of a Python client."""
        return ENVIRONMENTS / self.environment / "bin" / "python"

    def run(self, url: str, folder: Path) -> dict[str, dict[str, Any]]:
        """Run all scenarios in one process; return what the driver reports, by scenario."""
        if self.environment == "node":
            command = ["node", "--preserve-symlinks", "--preserve-symlinks-main", str(NODE / "drivers" / self.driver)]
        else:
            command = [str(self.python), str(HERE / "python" / self.driver)]
        more = {"TIDEMARK_URL": url, "CLIENT_NAME": key_name(self.name, self.dialect)}
        output = execute([*command, self.dialect, *self.scenarios], folder, more)
        reports = [json.loads(line) for line in output.splitlines() if line.startswith('{"scenario"')]
        return {report["scenario"]: report for report in reports}


def key_name(name: str, dialect: str) -> str:
    """The end of a client's key."""
    return f"{name}-{dialect}".replace("/", "_").replace(" ", "_")


def execute(command: Sequence[str], folder: Path, more: Mapping[str, str]) -> str:
    """Run a process in a folder that is also its home; return what it prints, or fail with all of it."""
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), **QUIET, **more}
    none = subprocess.DEVNULL
    done = subprocess.run(
        command, check=False, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS, stdin=none
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-3000:]}\n{done.stderr[-6000:]}"
    return done.stdout


LIBRARIES = [
    Library("openai", "chat", "openai_sdk.py"),
    Library("openai", "responses", "openai_sdk.py"),
    Library("openai", "continued", "openai_sdk.py", ("talk",)),
    Library("anthropic", "messages", "anthropic_sdk.py"),
    Library("langchain-openai", "chat", "langchain_models.py"),
    Library("langchain-openai", "responses", "langchain_models.py"),
    Library("langchain-anthropic", "messages", "langchain_models.py"),
    Library("openai-agents", "chat", "openai_agents.py"),
    Library("openai-agents", "responses", "openai_agents.py"),
    Library("pydantic-ai", "chat", "pydantic_ai_agent.py", environment="pydantic"),
    Library("pydantic-ai", "responses", "pydantic_ai_agent.py", environment="pydantic"),
    Library("pydantic-ai", "messages", "pydantic_ai_agent.py", environment="pydantic"),
    Library("llama-index-llms-openai", "chat", "llama_index_llm.py"),
    Library("llama-index-llms-openai", "responses", "llama_index_llm.py"),
    Library("litellm", "chat", "litellm_sdk.py"),
    Library("litellm", "messages", "litellm_sdk.py"),
    Library("litellm", "responses", "litellm_sdk.py", ("whole", "stream")),
    Library("llm", "chat", "llm_models.py"),
    Library("llm", "responses", "llm_models.py"),
    Library("aider", "chat", "aider_coder.py", ("whole", "stream", "talk"), "aider"),
    Library("openai for Node", "chat", "openai_sdk.mjs", environment="node"),
    Library("openai for Node", "responses", "openai_sdk.mjs", environment="node"),
    Library("@anthropic-ai/sdk", "messages", "anthropic_sdk.mjs", environment="node"),
    Library("@ai-sdk/openai", "chat", "vercel_ai.mjs", environment="node"),
    Library("@ai-sdk/openai", "responses", "vercel_ai.mjs", environment="node"),
    Library("@ai-sdk/anthropic", "messages", "vercel_ai.mjs", environment="node"),
]
