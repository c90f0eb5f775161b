"""Makes a page for each client, of what `tidemark wrap` sets, docs/clients.md says and `make test-clients` runs."""

from __future__ import annotations

import ast
import json
import re
import shlex
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.clients import agents, programs
from tests.docs.pages import ROOT, cells, section_of
from tidemark.cli.agents import AGENTS
from tidemark.cli.agents.agent import Place

URL = "http://127.0.0.1:8787"
PAGE = "docs/clients.md"
ADDRESSES = {"V1": f"{URL}/v1", "BASE_URL": URL}
"""What a driver of the tests calls the addresses of Tidemark."""
OPENAI = {"OPENAI_BASE_URL": f"{URL}/v1", "OPENAI_API_KEY": "your key"}
ANTHROPIC = {"ANTHROPIC_BASE_URL": URL, "ANTHROPIC_API_KEY": "your key"}
VARIABLES = {"openai": OPENAI, "openai for Node": OPENAI, "anthropic": ANTHROPIC, "@anthropic-ai/sdk": ANTHROPIC}
"""What the providers' own libraries read from the environment."""

MODELS = """## Model names

Write the name as its provider does, such as `gpt-4o` or `claude-sonnet-4-5`, or as `model_name` of your
[`model_list`](configuration.md#models) says. This lists the names that are served:

```sh
curl --silent http://127.0.0.1:8787/v1/models --header "Authorization: Bearer $OPENAI_API_KEY"
```
"""
CHECKS = """## What to check

1. Send one message. `tidemark top --once`, with the client's key in `OPENAI_API_KEY`, then shows a request. If it shows
   none, the client still uses its old address.
2. Send a second one. The same command shows one conversation, and not two. If it shows two, see
   [Troubleshooting](troubleshooting.md#every-turn-is-a-new-conversation).
3. Hold a long conversation. From its first compaction on, the command counts its summaries, and `tidemark gain` what it
   saved.
"""
_IN_JAVASCRIPT = re.compile(r"(?:new \w+|create\w+)\(\{[^}]*\b(?:V1|BASE_URL)\b[^}]*\}\)")
_EDITOR = re.compile(r"^\*\*([\w ]+)\.\*\* ((?:.|\n)*?)(?=^\*\*|^Web apps)", re.MULTILINE)


@dataclass(frozen=True)
class Client:
    """A client that has a page."""

    title: str
    program: str = ""
    """As `tidemark wrap` calls it; empty if it does not."""
    tested: str = ""
    """As the table of docs/clients.md calls it; empty if no test runs it."""
    text: str = ""
    """What docs/clients.md says of it."""


def pages() -> dict[str, str]:
    """Each page's text, by its name without an ending."""
    return {re.sub(r"\W+", "-", client.title.lower()).strip("-"): page_of(client) for client in all_clients()}


def all_clients() -> Iterator[Client]:
    """Programs that `tidemark wrap` starts, then libraries, then editors and web apps."""
    tested = [row[0].strip("`") for row in cells(PAGE, "client")]
    names = {"claude": ("Claude Code", "claude-code"), "codex": ("Codex CLI", "codex"), "qwen": ("Qwen Code", "")}
    started = {}
    for program in AGENTS:
        title, name = names.get(program, (program, program if program in tested else ""))
        started[program] = name
        yield Client(title, program, name, _without_wrap(section_of(PAGE, title)))
    for name in dict.fromkeys(tested):
        if name not in started.values():
            yield Client(name, tested=name)
    for editor in _EDITOR.finditer(section_of(PAGE, "Editors and web apps")):
        text = f"These are the settings of its own documents; no test runs it.\n\n{editor[2].strip()}"
        yield Client(editor[1], text=text)


def page_of(client: Client) -> str:
    """One page."""
    parts = [f"# {client.title}", f"How to use {client.title} through Tidemark."]
    if client.program:
        parts += _started(client)
    elif client.tested:
        parts += _library(client)
    if client.text:
        parts += ["## Notes" if client.program else "## Settings", client.text]
    parts += [MODELS, CHECKS]
    if client.tested:
        parts += ["## Tested", *_tests(client)]
    return "\n\n".join(part.strip() for part in parts) + "\n"


def _started(client: Client) -> Iterator[str]:
    """What `tidemark wrap` does for a program, to read it or to do it by hand."""
    agent, place = AGENTS[client.program], Place(URL, "anthropic", {})
    yield f"## With one command\n\n`{agent.install}` installs it. This starts it, and a Tidemark if none runs:"
    yield _block("sh", f"tidemark wrap {client.program}")
    variables, words = agent.variables(place), [agent.program, *map(_short, agent.arguments(place))]
    yield "## By hand\n\nThis sets the same, with a `tidemark serve` that runs:"
    yield _block("sh", "\n".join([f"export {name}={shlex.quote(value)}" for name, value in variables.items()]) or "")
    if len(words) > 1:
        yield _block("sh", shlex.join(words))
    if agent.file is not None and agent.values is not None:
        path = Path("~") / agent.file.path({"HOME": "/home"}).relative_to("/home")
        yield f"For good, `tidemark wrap --install {client.program}` sets in `{path}`:"
        rows = (f"| `{key}` | `{_short(value)}` |" for key, value in agent.values(place).items())
        yield "\n".join(["| key | value |", "|---|---|", *rows])


def _library(client: Client) -> Iterator[str]:
    """The variables that a library reads, and how its test makes a client."""
    libraries = [one for one in programs.LIBRARIES if one.name == client.tested]
    formats = {one.dialect for one in libraries}
    yield "## Settings"
    if client.tested in VARIABLES:
        rows = (f"| `{name}` | `{value}` |" for name, value in VARIABLES[client.tested].items())
        yield "\n".join(["| variable | value |", "|---|---|", *rows])
    made = [code for driver in dict.fromkeys(one.driver for one in libraries) for code in made_in(driver)]
    fitting = [code for code in dict.fromkeys(made) if ("messages" if "nthropic" in code else "chat") in formats]
    yield "In the program, as the test does:"
    yield _block("javascript" if libraries[0].environment == "node" else "python", "\n".join(fitting))


def made_in(driver: str) -> list[str]:
    """What a driver writes to make a client for Tidemark's address."""
    if driver.endswith(".mjs"):
        code = (programs.HERE / "node" / driver).read_text(encoding="utf-8")
        return [_filled(call) for call in _IN_JAVASCRIPT.findall(code)]
    tree = ast.parse((programs.HERE / "python" / driver).read_text(encoding="utf-8"))
    own = {
        node.name: ast.unparse(node.bases[0])
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef) and node.bases
    }
    calls = (call for node in ast.walk(tree) if (call := _call(node)) and _names_address(call))
    made = [re.sub(r"^\w+", lambda name: own.get(name[0], name[0]), _filled(ast.unparse(call))) for call in calls]
    return [code for code in made if "self." not in code]


def _call(node: ast.AST) -> ast.Call | None:
    """A call, or the arguments of one, which litellm's driver has in a dictionary."""
    if isinstance(node, ast.Call):
        return node
    if not isinstance(node, ast.Dict):
        return None
    words = [
        ast.keyword(key.value, value)
        for key, value in zip(node.keys, node.values, strict=True)
        if isinstance(key, ast.Constant) and isinstance(key.value, str)
    ]
    return ast.Call(ast.Name("completion"), [], words)


def _names_address(call: ast.Call) -> bool:
    return any(isinstance(one.value, ast.Name) and one.value.id in ADDRESSES for one in call.keywords)


def _filled(code: str) -> str:
    """A driver's code with values in place of its names."""
    code = re.sub(r"f'(\w+)/{MODEL}'", r'"\1/gpt-4o"', code)
    model = "claude-sonnet-4-5" if "nthropic" in code else "gpt-4o"
    for name, value in (*ADDRESSES.items(), ("MODEL", model)):
        code = re.sub(rf"\b{name}\b", json.dumps(value), code)
    return re.sub(r"\b(?:self\.)?(?<!')key\b(?!')", "KEY", code).replace(
        "anthropic/gpt-4o", "anthropic/claude-sonnet-4-5"
    )


def _tests(client: Client) -> Iterator[str]:
    """The row of the table, and the files that a test gives to a coding agent."""
    for row in cells(PAGE, "client"):
        if row[0].strip("`") == client.tested:
            yield f"`make test-clients` runs version {row[1]} in these formats: {row[2]}. What is tested: {row[3]}."
    agent = next((one for one in agents.AGENTS if one.name == client.tested), None)
    if agent is not None:
        yield from _as_tested(agent)


def _as_tested(agent: agents.Agent) -> Iterator[str]:
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        command, more = agent.command(URL, "KEY", folder, goes_on=False)
        names = {str(agents.CODEX): "codex", str(agents.CLAUDE): "claude", str(agents.OPENCODE): "opencode"}
        words = [names.get(word, word) for word in command if word != "node"]
        shown = {name: value.replace(home, "~") for name, value in more.items()}
        lines = [*(f"{name}={value}" for name, value in shown.items()), shlex.join(words)]
        yield "So a test starts it:"
        yield _block("text", "\n".join(lines))
        for path in sorted(folder.glob("*.json")):
            settings = json.dumps(json.loads(path.read_text(encoding="utf-8")), indent=2)
            yield f"With this `{path.name}`:"
            yield _block("json", settings)


def _without_wrap(text: str) -> str:
    """A section without its first block, which shows what `tidemark wrap` sets."""
    return re.sub(r"```console\n.*?^```\n", "", text, count=1, flags=re.MULTILINE | re.DOTALL).strip()


def _short(word: str) -> str:
    """A word without the folder in which Tidemark is installed here."""
    return word.replace(str(ROOT / "proxy"), "...")


def _block(language: str, text: str) -> str:
    return f"```{language}\n{text}\n```" if text else ""
