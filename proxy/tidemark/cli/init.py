"""The command ``tidemark init``: it writes a first configuration for what it finds on this machine.

``cli/main.py`` adds it to its group.

The file has an entry for each provider whose key is set, and for each model of local servers. No key stands in it, only
the name of its variable.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from tidemark.cli.local_servers import LocalServer, local_servers
from tidemark.core.frozen import frozen
from tidemark.terminal.examples import example
from tidemark.terminal.options import DEFAULT_FILE

STANDARD_OUTPUT = "-"
OWNER_ONLY = 0o600


@click.command(
    epilog=example("tidemark init", "tidemark init --output - > /etc/tidemark.yaml"),
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
def init(output: str, force: bool) -> None:
    """Write a configuration for the provider keys in the environment and the local servers that answer."""
    path = Path(output)
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
            if path.is_file():
                os.fchmod(file.fileno(), OWNER_ONLY)
            file.write(text)
    except OSError as error:
        raise click.ClickException(f"{output} cannot be written: {error.strerror}.") from error
    option = "" if output == DEFAULT_FILE else f" --config {output}"
    click.echo(f"{output} is written. Next: tidemark doctor{option}", err=True)
    click.echo(f"      and then: tidemark serve{option}", err=True)


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
#   url: redis://127.0.0.1:6379/0   # the default is a server of Tidemark's own, with nothing to install
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
