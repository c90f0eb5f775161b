"""The coding agents: command lines that hold one talk in several processes, each in a home of its own."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.clients.programs import MODULES, ROOT, execute

CODEX = MODULES / "@openai/codex/bin/codex.js"
CLAUDE = MODULES / "@anthropic-ai/claude-code-linux-x64/claude"
COMPACT_TOKENS = 20_000
"""Beyond how many tokens of a reply's usage Codex asks for a compaction."""
OPENCODE = MODULES / "opencode-linux-x64/bin/opencode"


def codex(url: str, key: str, folder: Path, *, goes_on: bool) -> tuple[list[str], dict[str, str]]:
    """Codex, which speaks responses only."""
    (folder / ".codex").mkdir(exist_ok=True)
    provider = f'{{name="Tidemark", base_url="{url}/v1", env_key="CLIENT_KEY", wire_api="responses"}}'
    settings = {
        "model_provider": '"tidemark"',
        "model_providers.tidemark": provider,
        "check_for_update_on_startup": "false",
    }
    more = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
    rest = ["--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "-m", "small", *more]
    verb = ["exec", "resume", "--last"] if goes_on else ["exec"]
    return ["node", str(CODEX), *verb, *rest], {"CLIENT_KEY": key, "CODEX_HOME": str(folder / ".codex")}


def compacting_codex(url: str, key: str, folder: Path, *, goes_on: bool) -> tuple[list[str], dict[str, str]]:
    """Codex with a provider that it takes for OpenAI, so that it asks for a compaction beyond a number of tokens."""
    command, more = codex(url, key, folder, goes_on=goes_on)
    command = [part.replace('name="Tidemark"', 'name="OpenAI"') for part in command]
    return [*command, "-c", f"model_auto_compact_token_limit={COMPACT_TOKENS}"], more


def claude(
    url: str, key: str, folder: Path, *, goes_on: bool, model: str = "small"
) -> tuple[list[str], dict[str, str]]:
    """Claude Code, which speaks messages only."""
    command = [str(CLAUDE), *(["--continue"] if goes_on else []), "--model", model, "--allowedTools", "Bash", "-p"]
    quiet = ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "DISABLE_AUTOUPDATER", "DISABLE_TELEMETRY", "IS_SANDBOX")
    models = dict.fromkeys(("ANTHROPIC_DEFAULT_HAIKU_MODEL", "ANTHROPIC_SMALL_FAST_MODEL"), model)
    return command, {"ANTHROPIC_BASE_URL": url, "ANTHROPIC_API_KEY": key, **models, **dict.fromkeys(quiet, "1")}


def opencode(package: str) -> Callable[..., tuple[list[str], dict[str, str]]]:
    """The agent opencode, with one of its provider packages, each of which speaks a dialect."""

    def command(url: str, key: str, folder: Path, *, goes_on: bool) -> tuple[list[str], dict[str, str]]:
        options = {"baseURL": f"{url}/v1", "apiKey": key}
        model = {"name": "small", "tool_call": True, "limit": {"context": 200_000, "output": 32_000}}
        provider = {"npm": package, "name": "Tidemark", "options": options, "models": {"small": model}}
        settings = {
            "provider": {"tidemark": provider},
            "autoupdate": False,
            "share": "disabled",
            "small_model": "tidemark/small",
        }
        (folder / "opencode.json").write_text(json.dumps(settings))
        quiet = ("OPENCODE_DISABLE_AUTOUPDATE", "OPENCODE_DISABLE_MODELS_FETCH", "OPENCODE_DISABLE_LSP_DOWNLOAD")
        more = {"OPENCODE_CONFIG": str(folder / "opencode.json"), **dict.fromkeys(quiet, "1")}
        go_on = ["--continue"] if goes_on else []
        return [str(OPENCODE), "run", *go_on, "--model", "tidemark/small", "--auto"], more

    return command


@dataclass(frozen=True)
class Agent:
    """A coding agent."""

    name: str
    dialect: str
    command: Callable[..., tuple[list[str], Mapping[str, str]]]
    program: Path
    titles: int = 0
    """The conversations that it begins on its own to find a title."""

    @property
    def missing(self) -> str:
        """Why it cannot run here; empty where it can."""
        return "" if self.program.exists() else f"{self.program.relative_to(ROOT)} is not installed: make test-clients"

    def say(self, url: str, key: str, folder: Path, prompts: Sequence[str]) -> list[str]:
        """Hold a talk, a process for each prompt; return what each one prints."""
        printed = []
        for number, prompt in enumerate(prompts):
            command, more = self.command(url, key, folder, goes_on=number > 0)
            printed.append(execute([*command, prompt], folder, more))
        return printed


AGENTS = [
    Agent("codex", "responses", codex, CODEX),
    Agent("claude-code", "messages", claude, CLAUDE),
    Agent("opencode", "chat", opencode("@ai-sdk/openai-compatible"), OPENCODE, titles=1),
    Agent("opencode", "responses", opencode("@ai-sdk/openai"), OPENCODE, titles=1),
    Agent("opencode", "messages", opencode("@ai-sdk/anthropic"), OPENCODE, titles=1),
]
