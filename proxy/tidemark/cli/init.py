"""The command ``tidemark init``: it writes a first configuration for what it finds on this machine.

``cli/main.py`` adds it to its group.

The file has an entry for each provider whose key is set, and for each model of local servers. No key stands in it, only
the name of its variable.

Model servers that answer on this machine are found too: Ollama, llama.cpp, vLLM and LM Studio, on their usual ports. A
server is known by what it answers; the port only says where to ask.

In a terminal it asks which client is used, and leads it to Tidemark as ``tidemark wrap --install`` does.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException
from pathlib import Path
from typing import Any

import click

from tidemark.cli.agents import AGENTS
from tidemark.core.errors import TidemarkError
from tidemark.core.frozen import frozen
from tidemark.terminal.options import DEFAULT_FILE, example, has_terminal

STANDARD_OUTPUT = "-"
OWNER_ONLY = 0o600
NO_CLIENT = "none"
HOST = "127.0.0.1"
USUAL_PORTS: tuple[int, ...] = (11434, 8080, 8000, 1234)
"""Of Ollama, llama.cpp, vLLM and LM Studio."""
PROBE_SECONDS = 2.0
"""The longest probe of all ports together, however slowly a server answers."""
MOST_MODELS = 50
"""Models of one server that are taken over."""
_MAX_BYTES = 4_194_304
_NAMES = {"llamacpp": "llama.cpp", "vllm": "vLLM", "library": "Ollama", "organization_owner": "LM Studio"}
"""Servers by the owner that they name for their models."""
_OLLAMA = "Ollama"
_SOME_SERVER = "a local server"


@click.command(
    epilog=example("tidemark init --client claude", "tidemark init --output - > /etc/tidemark.yaml"),
    short_help="Write a configuration for what this machine has.",
)
@click.option(
    "--output",
    type=click.Path(dir_okay=False, allow_dash=True),
    default=DEFAULT_FILE,
    show_default=True,
    help="The file to write; - is standard output.",
)
@click.option("--force", is_flag=True, help="Overwrite a file that exists.")
@click.option(
    "--client",
    type=click.Choice([*sorted(AGENTS), NO_CLIENT]),
    help="Also lead this client to Tidemark, in its own settings; a terminal is asked.",
)
def init(output: str, force: bool, client: str | None) -> None:
    """Write a configuration for the provider keys in the environment and the local servers that answer."""
    path = Path(output)
    if output == STANDARD_OUTPUT and client not in (None, NO_CLIENT):
        raise click.UsageError("--client leads to the server of a file, so name one by --output.")
    if output != STANDARD_OUTPUT and path.exists() and not force:
        message = f"{output} exists and was left as it is. Name another file by --output, or overwrite it by --force."
        raise click.ClickException(message)
    providers, servers = providers_with_keys(os.environ), local_servers()
    text = starter_file(providers, servers)
    if not providers and not servers:
        click.echo("found no provider's key and no local server, so the file has an example only", err=True)
    for line in (
        *(f"{provider.name}: the key in {provider.variable}" for provider in providers),
        *(f"{server.name} at {server.base_url}: {_counted(len(server.models))}" for server in servers),
    ):
        click.echo(f"found {line}", err=True)
    if output == STANDARD_OUTPUT:
        click.echo(text, nl=False)
        return
    try:
        with open(path, "w" if force else "x", encoding="utf-8", opener=_for_owner) as file:
            if path.is_file() and hasattr(os, "fchmod"):
                os.fchmod(file.fileno(), OWNER_ONLY)
            file.write(text)
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror}.") from error
    lead_client(client or _asked_client(), path)
    option = "" if output == DEFAULT_FILE else f" --config {output}"
    click.echo(f"{output} is written. Next: tidemark doctor{option}", err=True)
    click.echo(f"      and then: tidemark serve{option}", err=True)


def _asked_client() -> str:
    """Ask which of the clients on this machine is used. Only a terminal can answer."""
    installed = [name for name, agent in AGENTS.items() if agent.file and shutil.which(name)]
    if not installed or not has_terminal():
        return NO_CLIENT
    choice: str = click.prompt(
        "Which client shall use Tidemark, by its own settings?",
        type=click.Choice([*installed, NO_CLIENT]),
        default=NO_CLIENT,
        err=True,
    )
    return choice


def lead_client(name: str, config: Path) -> None:
    """Lead a client to the server that a configuration describes; say how to take it back."""
    from tidemark.cli.agents.agent import Place
    from tidemark.cli.unwrap import install
    from tidemark.cli.wrap import spoken_behind
    from tidemark.config import load
    from tidemark.terminal.http_client import configured_url

    if name == NO_CLIENT:
        return
    try:
        settings = load(config, os.environ)
        changed = install(
            AGENTS[name], Place(configured_url(config), spoken_behind(settings), os.environ), settings.data_dir
        )
    except TidemarkError as error:
        raise click.ClickException(f"{config} is written, but {name} does not use it yet: {error}") from error
    click.echo(f"{changed} leads {name} to Tidemark; take it back with: tidemark unwrap {name}", err=True)


def _for_owner(path: str, flags: int) -> int:
    """Open a file that only its owner may read: a key is easily written into it later."""
    return os.open(path, flags, OWNER_ONLY)


def _counted(models: int) -> str:
    return f"{models} model{'' if models == 1 else 's'}"


@frozen
class Provider:
    """A provider, as the file names it."""

    name: str
    variable: str
    """The environment's variable of its key."""
    patterns: Mapping[str, str]
    """litellm's models by the names that clients use."""


_OPENAI_NAMES = ("gpt-*", "o1*", "o3*", "o4*", "openai/*")
PROVIDERS = (
    Provider("OpenAI", "OPENAI_API_KEY", {name: f"openai/{name.removeprefix('openai/')}" for name in _OPENAI_NAMES}),
    Provider("Anthropic", "ANTHROPIC_API_KEY", {"claude-*": "anthropic/claude-*", "anthropic/*": "anthropic/*"}),
    Provider("Google Gemini", "GEMINI_API_KEY", {"gemini-*": "gemini/gemini-*", "gemini/*": "gemini/*"}),
    Provider("Mistral", "MISTRAL_API_KEY", {"mistral-*": "mistral/mistral-*", "mistral/*": "mistral/*"}),
    Provider("DeepSeek", "DEEPSEEK_API_KEY", {"deepseek-*": "deepseek/deepseek-*", "deepseek/*": "deepseek/*"}),
    Provider("xAI", "XAI_API_KEY", {"grok-*": "xai/grok-*", "xai/*": "xai/*"}),
    Provider("Groq", "GROQ_API_KEY", {"groq/*": "groq/*"}),
    Provider("OpenRouter", "OPENROUTER_API_KEY", {"openrouter/*": "openrouter/*"}),
    Provider("Together AI", "TOGETHERAI_API_KEY", {"together_ai/*": "together_ai/*"}),
    Provider("Fireworks AI", "FIREWORKS_AI_API_KEY", {"fireworks_ai/*": "fireworks_ai/*"}),
    Provider("Cohere", "COHERE_API_KEY", {"cohere_chat/*": "cohere_chat/*"}),
)
_HEAD = """\
# Tidemark's configuration, begun by `tidemark init`.
# docs/configuration.md explains every key. `tidemark check` validates this file, and `tidemark doctor` tries it.
"""
_EXAMPLE = """\
# No provider's key was in the environment, and no local server answered. For example:
# model_list:
#   - model_name: gpt-4o                       # the name that clients use
#     litellm_params:
#       model: openai/gpt-4o                   # provider/model, as litellm writes it
#       api_key: os.environ/OPENAI_API_KEY     # without it the client's own key is passed on
"""
_REST = """
compaction:
  defaults:
    # threshold: 0.95          # compact above this share of a model's window, or above a number of tokens
    # retention_ratio: 0.25    # share of the window that stays as newest messages, word for word
    strategy: {strategy}       # extractive (no model), llm, or hybrid (rules and identifiers beside a model's words)
    recall: {{max_tokens: auto}}   # earlier messages that bear on a question come back beside it; 0: none

# store:
#   url: redis://127.0.0.1:6379/0   # the default is a server of Tidemark's own (extra embedded)
#   ttl_days: 30                    # how long a conversation is kept after its last use

# server:
#   host: 127.0.0.1
#   port: 8787
"""


def providers_with_keys(environ: Mapping[str, str]) -> list[Provider]:
    """Return the providers whose key is set."""
    return [provider for provider in PROVIDERS if environ.get(provider.variable)]


def starter_file(providers: Sequence[Provider], servers: Sequence[LocalServer]) -> str:
    """Return the file's text. It always can be used as it stands."""
    entries = [*_local_entries(servers), *_provider_entries(providers)]
    models = "model_list:\n" + "\n".join(entries) + "\n" if entries else _EXAMPLE
    return f"{_HEAD}\n{models}{_REST.format(strategy='hybrid')}"


def _provider_entries(providers: Sequence[Provider]) -> Iterator[str]:
    for provider in providers:
        yield f"  # {provider.name}: the key is read from {provider.variable} when Tidemark starts."
        for name, model in provider.patterns.items():
            yield f"  - model_name: {_quoted(name)}"
            yield f"    litellm_params: {{model: {_quoted(model)}, api_key: os.environ/{provider.variable}}}"


def _local_entries(servers: Sequence[LocalServer]) -> Iterator[str]:
    """Yield an entry for each model; the first server that has a name serves it."""
    names: set[str] = set()
    for server in servers:
        yield f"  # {server.name} at {server.base_url}; it listed its models without a key."
        for model in server.models:
            if model not in names:
                names.add(model)
                yield f"  - model_name: {_quoted(model)}"
                place = _quoted(server.base_url)
                yield f"    litellm_params: {{model: {_quoted(f'openai/{model}')}, api_base: {place}, api_key: none}}"


def _quoted(text: str) -> str:
    """Return a text as a double-quoted scalar (YAML 1.2, section 7.3.1), whatever characters it has."""
    plain = {'"': '\\"', "\\": "\\\\"}
    inside = [plain.get(char, char) if " " <= char <= "~" else f"\\U{ord(char):08x}" for char in text]
    return f'"{"".join(inside)}"'


@frozen
class LocalServer:
    """A server that lists models as OpenAI does."""

    name: str
    base_url: str
    models: tuple[str, ...]


def local_servers(ports: Sequence[int] = USUAL_PORTS, seconds: float = PROBE_SECONDS) -> list[LocalServer]:
    """Return the servers that answer, in the order of the ports.

    :param seconds: the longest time for all of them
    """
    until = time.monotonic() + seconds
    probes = [_Probe(port, seconds) for port in ports]
    for probe in probes:
        probe.thread.join(max(0.0, until - time.monotonic()))
    for probe in probes:
        probe.give_up()
    return [probe.server for probe in probes if probe.server is not None]


class _Probe:
    """Asks one port in a thread of its own. Mutable: the server that it has found."""

    def __init__(self, port: int, seconds: float) -> None:
        self.server: LocalServer | None = None
        self._base_url = f"http://{HOST}:{port}"
        # It ignores the environment's proxies. Its time is that of one read, so a server may drip for longer.
        self._connection = HTTPConnection(HOST, port, timeout=seconds)
        self.thread = threading.Thread(target=self._ask, daemon=True)
        self.thread.start()

    def give_up(self) -> None:
        """End the conversation with a server that has not answered whole."""
        with contextlib.suppress(OSError, AttributeError):  # there is no socket, or none any more
            self._connection.sock.shutdown(socket.SHUT_RDWR)

    def _ask(self) -> None:
        try:
            self.server = self._find()
        except (OSError, HTTPException, ValueError, KeyError, TypeError, AttributeError):
            self.server = None  # nobody answers there, or something else does
        finally:
            self._connection.close()

    def _find(self) -> LocalServer | None:
        listed = self._json("/v1/models")
        if listed["object"] != "list":
            return None
        models = [model for model in listed["data"] if model["object"] == "model"]
        names = dict.fromkeys(name for model in models if isinstance(name := model["id"], str) and name.strip())
        if not names:
            return None
        owners = {str(model.get("owned_by", "")) for model in models}
        product = next((product for owner, product in _NAMES.items() if owner in owners), "") or self._product()
        return LocalServer(product, f"{self._base_url}/v1", tuple(names)[:MOST_MODELS])

    def _product(self) -> str:
        """Name a server whose models have owners of their own: an Ollama tells its version."""
        with contextlib.suppress(OSError, HTTPException, ValueError, KeyError, TypeError):
            if isinstance(self._json("/api/version")["version"], str):
                return _OLLAMA
        return _SOME_SERVER

    def _json(self, path: str) -> Any:
        """Return what the server answers; raises ``ValueError`` and others if that is no success, or no JSON."""
        self._connection.request("GET", path)
        response = self._connection.getresponse()
        body = response.read(_MAX_BYTES)
        if response.status != HTTPStatus.OK:
            raise ValueError(response.status)
        return json.loads(body)
