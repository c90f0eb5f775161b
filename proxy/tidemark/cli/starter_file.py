"""Writes a first configuration: an entry for each provider whose key is set, and for each model of local servers.

``tidemark init`` uses it. No key stands in the file, only the name of its variable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from tidemark.cli.local_servers import LocalServer
from tidemark.core.frozen import frozen


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
