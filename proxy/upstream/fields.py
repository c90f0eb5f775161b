"""Which fields of a chat request litellm may see, and which configured ones need it.

Beside the translate lane; pure tables. ``litellm.acompletion`` takes some 200 keyword arguments, and a body
that names one of them must change neither where a request goes nor with whose credential (CVE-2024-6587).
So fields are let through by name. Source: OpenAI API reference, "Create chat completion".
"""

from __future__ import annotations

CHAT_FIELDS = frozenset(
    {
        "audio",
        "frequency_penalty",
        "function_call",
        "functions",
        "logit_bias",
        "logprobs",
        "max_completion_tokens",
        "max_tokens",
        "messages",
        "modalities",
        "n",
        "parallel_tool_calls",
        "prediction",
        "presence_penalty",
        "prompt_cache_key",
        "reasoning_effort",
        "response_format",
        "safety_identifier",
        "seed",
        "service_tier",
        "stop",
        "stream_options",
        "temperature",
        "tool_choice",
        "tools",
        "top_logprobs",
        "top_p",
        "user",
        "verbosity",
        "web_search_options",
        # Not OpenAI's, but sent through its SDK's extra_body to the providers that know them.
        "thinking",
        "top_k",
    }
)
"""``metadata`` and ``store`` are not among them: they concern OpenAI's own archive, and litellm takes
``metadata`` for instructions to its loggers and router."""

CONFIGURED_FOR_LITELLM = (CHAT_FIELDS | {"additional_drop_params", "api_version", "extra_body", "mock_response"}) - {
    "messages"
}
"""Entries of ``litellm_params`` that a byte relay could not put into effect: with any of them ``auto``
translates."""

ROUTER_FIELDS = frozenset(
    {
        "api_base",
        "base_url",
        "max_parallel_requests",
        "model",
        "order",
        "organization_id",
        "rpm",
        "stream_timeout",
        "tags",
        "tpm",
        "use_in_pass_through",
        "use_litellm_proxy",
        "weight",
    }
)
"""Entries of ``litellm_params`` that are LiteLLM's router's, or decided already when a route is there."""
