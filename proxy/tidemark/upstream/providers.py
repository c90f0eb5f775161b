"""Tables about litellm's providers: which of them speak OpenAI's format, whose key a call may use, and at what address.

``routes.py``, ``upstream.py`` and the translate lane read them. They were checked against litellm 1.105.3,
``litellm/constants.py`` and ``litellm_core_utils/get_llm_provider_logic.py``. A client must not reach services on the
server's own machine or network by choosing a name: some of litellm's providers default to such addresses
(``llamafile/x`` to ``http://127.0.0.1:8080``), and some read an address out of the name. The configuration may name all
of them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from tidemark.core.ports import Lane

OPENAI_BASE = "https://api.openai.com/v1"
OPENAI_KEYS = ("sk-proj-", "sk-svcacct-")
"""Prefixes of keys that only OpenAI issues. A key of another form is never sent to OpenAI to try it."""
ANTHROPIC_BASE = "https://api.anthropic.com"
COUNTING_BASES = frozenset({OPENAI_BASE, ANTHROPIC_BASE, f"{ANTHROPIC_BASE}/v1"})
"""Addresses where a provider counts the tokens of a request itself. Source: OpenAI API reference, "Get input token
counts"; Anthropic API reference, "Count tokens in a Message"."""
DEFAULT_BASES: Mapping[str, str] = {
    "openai": OPENAI_BASE,
    "anthropic": ANTHROPIC_BASE,
    "openrouter": "https://openrouter.ai/api/v1",
}
"""Base URLs that are never read from the proxy's own environment (``OPENAI_BASE_URL``, ``OPENAI_API_BASE``,
``ANTHROPIC_BASE_URL`` and the like). Users point exactly those variables at Tidemark, which would be a loop."""

WIRE_WITHOUT_LITELLM = frozenset({"openai", "custom_openai", "hosted_vllm", "lm_studio", "llamafile"})
"""Providers that can be resolved without importing litellm, if their base URL is known."""
WIRE_UNLISTED = frozenset({"openai", "custom_openai", "openrouter"})
"""Providers that speak OpenAI's format but are missing in litellm's ``openai_compatible_providers``."""
REWRITTEN_BY_LITELLM = frozenset({"azure_ai", "chatgpt", "clarifai", "fireworks_ai", "github_copilot", "ragflow"})
"""Providers in litellm's ``openai_compatible_providers`` whose URL, model name or credentials litellm rewrites."""

LOGINS = frozenset({"chatgpt", "github_copilot"})
"""Providers whose resolving starts a login dialogue on the server's terminal; a client's name must never do that."""
CLAUDES_CLOUDS = frozenset({"bedrock", "bedrock_converse", "vertex_ai"})
"""Providers whose models with Claude's names are Claude, and take its cache marks."""
KEYED = frozenset(
    {"anthropic", "azure", "cohere", "cohere_chat", "gemini", "huggingface", "mistral", "openai", "replicate"}
)
"""Providers that take one key, the caller's or the configured one. A call without a key is refused, because litellm
would take one from the server's environment."""
KEYLESS = frozenset({"ollama", "ollama_chat"})
"""Providers that take no key."""
LOCAL = KEYLESS | {
    "a2a",
    "custom",
    "docker_model_runner",
    "hosted_vllm",
    "infinity",
    "langflow",
    "langgraph",
    "lemonade",
    "litellm_proxy",
    "llamafile",
    "lm_studio",
    "oobabooga",
    "openai_like",
    "petals",
    "ragflow",
    "triton",
    "vllm",
    "xinference",
}
"""Providers that users run themselves. If no address is configured, litellm takes one on the server's own machine
or from its environment."""
OPEN_TO_ANY_NAME = KEYED - {"azure"}
"""Providers that a client reaches by ``provider/model`` alone. All others take credentials from the server's own
environment (AWS, Google Cloud, tokens in files), which only an entry of ``model_list`` may allow."""

FAMILIES: Mapping[str, str] = {
    "claude-": "anthropic",
    "gemini-": "gemini",
    "gpt-": "openai",
    "chatgpt-": "openai",
}
"""Beginnings of names that belong to one provider. litellm removes retired models from its map and then cannot
resolve them."""
MAX_CACHED_BASES = 256
LOCAL_ENDS = (".internal", ".intranet", ".lan", ".local", ".localhost", ".home.arpa")
"""Ends of host names in private networks: RFC 6761, 6762 and 8375, ICANN's ``.internal``, and routers' names."""


def family_of(model: str) -> str | None:
    """Return the provider that a bare model name belongs to, by its beginning."""
    return next((provider for prefix, provider in FAMILIES.items() if model.startswith(prefix)), None)


def why_closed(name: str, provider: str, lane: Lane, base_url: str | None) -> str | None:
    """Return the reason why a client's name may not lead to a provider; None if it may.

    :param name: the whole name, as the client wrote it
    :param base_url: where requests would go; None if litellm chooses it
    """
    if provider in LOGINS:
        return f"{provider} logs in on the server and needs an entry in model_list"
    if is_local(base_url) if base_url else provider in LOCAL:
        return f"{provider} needs an entry in model_list: a name alone leads to no address of the server's own network"
    if lane == "translate" and "://" in name:
        return "a model's name may not hold an address"
    return None


@lru_cache(maxsize=MAX_CACHED_BASES)
def is_openai(base_url: str) -> bool:
    """Tell whether a base URL is OpenAI's own."""
    return urlsplit(base_url).hostname == "api.openai.com"


def is_local(base_url: str) -> bool:
    """Tell whether a URL leads to this machine or a private network.

    The host is judged as it is written; no name is looked up.
    """
    try:
        host = (urlsplit(base_url).hostname or "").rstrip(".")
    except ValueError:
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        # A name without a dot belongs to the own network; a last label of digits is a short address (127.1).
        return "." not in host or host.endswith(LOCAL_ENDS) or host.rpartition(".")[2].isdigit()
    mapped = getattr(address, "ipv4_mapped", None)
    return not (mapped or address).is_global


def trimmed(base_url: str) -> str:
    """Return a base URL without the slashes that end its path, and without a fragment, which is never sent."""
    path, mark, query = base_url.partition("#")[0].partition("?")
    return path.rstrip("/") + mark + query


def endpoint(base_url: str, path: str, *, without: str = "") -> str:
    """Return the URL of an endpoint: the base's path, then ``path``, then the base's query.

    A gateway's base URL may end with a query that every request needs (``https://host/v1?sig=...``).

    :param path: begins with a slash, and may have a query of its own
    :param without: an end of the base's path, such as ``/v1``, that is removed first
    """
    base_path, mark, query = trimmed(base_url).partition("?")
    if mark and "?" in path:
        mark = "&"
    return base_path.removesuffix(without) + path + mark + query
