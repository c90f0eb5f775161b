"""What Tidemark knows of litellm's providers: who speaks OpenAI's format, whose key a call may use.

Beside ``routes.py`` and ``litellm.py``; pure tables. Checked against litellm 1.105.3,
``litellm/constants.py`` and ``litellm_core_utils/get_llm_provider_logic.py``.
"""

from __future__ import annotations

from collections.abc import Mapping

OPENAI_BASE = "https://api.openai.com/v1"
DEFAULT_BASES: Mapping[str, str] = {
    "openai": OPENAI_BASE,
    "anthropic": "https://api.anthropic.com",
    "openrouter": "https://openrouter.ai/api/v1",
}
"""Bases that are stated here and never read from ``OPENAI_BASE_URL``, ``OPENAI_API_BASE``,
``ANTHROPIC_BASE_URL`` and the like in the proxy's own environment: users point exactly those at Tidemark,
which would be a loop."""

WIRE_WITHOUT_LITELLM = frozenset({"openai", "custom_openai", "hosted_vllm", "lm_studio", "llamafile"})
"""With a known base these need nothing that litellm would have to be imported for."""
WIRE_BESIDES = frozenset({"openai", "custom_openai", "openrouter"})
"""Speak the wire format though litellm's ``openai_compatible_providers`` leaves them out."""
NOT_AS_THEY_STAND = frozenset({"azure_ai", "chatgpt", "clarifai", "fireworks_ai", "github_copilot", "ragflow"})
"""In litellm's ``openai_compatible_providers``, but it rewrites their URL, model name or credentials on the
way."""

LOGINS = frozenset({"chatgpt", "github_copilot"})
"""Resolving these starts a login dialogue on the server's terminal: never for a name that merely a client
sent."""
KEYED = frozenset(
    {"anthropic", "azure", "cohere", "cohere_chat", "gemini", "huggingface", "mistral", "openai", "replicate"}
)
"""Served with one key, the caller's or the configured one. litellm would fall back on the server's
environment, so a call without a key is refused instead."""
KEYLESS = frozenset({"ollama", "ollama_chat"})
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
"""Run by whoever uses them: where no address is configured litellm takes one of the server's own machine, or of its
environment."""
OPEN_TO_ANY_NAME = KEYED - {"azure"}
"""Translated for a client's bare ``provider/model``. All others take credentials from the server's own
surroundings (AWS, Google Cloud, tokens in files), which only an entry of ``model_list`` may lend."""

FAMILIES: Mapping[str, str] = {
    "claude-": "anthropic",
    "gemini-": "gemini",
    "gpt-": "openai",
    "chatgpt-": "openai",
}
"""Names that mean one provider to everybody. litellm drops retired models from its map, and then knows them
no more."""


def family_of(model: str) -> str | None:
    """The provider that a bare model name means, by its beginning."""
    return next((provider for prefix, provider in FAMILIES.items() if model.startswith(prefix)), None)
