"""Tables about litellm's providers: which of them speak OpenAI's format, and whose key a call may use.

``routes.py``, ``upstream.py`` and the translate lane read them. They were checked against litellm 1.105.3,
``litellm/constants.py`` and ``litellm_core_utils/get_llm_provider_logic.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

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
"""Providers that can be resolved without importing litellm, where their base URL is known."""
WIRE_UNLISTED = frozenset({"openai", "custom_openai", "openrouter"})
"""Providers that speak OpenAI's format but are missing in litellm's ``openai_compatible_providers``."""
REWRITTEN_BY_LITELLM = frozenset({"azure_ai", "chatgpt", "clarifai", "fireworks_ai", "github_copilot", "ragflow"})
"""Providers in litellm's ``openai_compatible_providers`` whose URL, model name or credentials litellm rewrites."""

LOGINS = frozenset({"chatgpt", "github_copilot"})
"""Providers whose resolving starts a login dialogue on the server's terminal; a client's name must never do that."""
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
"""Providers that users run themselves. Where no address is configured, litellm takes one on the server's own machine
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


def family_of(model: str) -> str | None:
    """Return the provider that a bare model name belongs to, by its beginning."""
    return next((provider for prefix, provider in FAMILIES.items() if model.startswith(prefix)), None)
