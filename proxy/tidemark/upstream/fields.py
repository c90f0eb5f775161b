"""Lists the fields of a chat request that litellm may see, and the configured ones that need litellm.

The translate lane and the choice of a lane use these tables. ``litellm.acompletion`` takes some 200 keyword arguments,
and a body that names one of them must not change the destination or the credential (CVE-2024-6587). So only listed
fields pass. Source: OpenAI API reference, "Create chat completion".
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
        # Not OpenAI's; clients send them to other providers through extra_body of its SDK.
        "thinking",
        "top_k",
    }
)
"""Fields of a request that litellm gets. ``metadata`` and ``store`` are missing on purpose: they concern OpenAI's own
archive, and litellm reads ``metadata`` as instructions to its loggers and router."""

BESIDE_OPENAIS = frozenset({"thinking", "top_k"})
"""Those of these fields that are not OpenAI's; the SDK beneath litellm takes no argument of their name."""

SERVER_FIELDS = frozenset(
    {
        "cache_prompt",
        "chat_template_kwargs",
        "ignore_eos",
        "min_p",
        "min_tokens",
        "repetition_penalty",
        "structured_outputs",
    }
)
"""Members that vLLM, SGLang and llama.cpp document for chat completions beside OpenAI's. litellm passes on any name
that it does not know; here only these count, because an unknown name in an entry may be a credential."""

WRITTEN_BY_LITELLM = frozenset({"model", "stream"})
"""Members of a request that litellm writes from arguments of its own."""

CONFIGURED_FOR_LITELLM = (CHAT_FIELDS | {"additional_drop_params", "api_version", "extra_body", "mock_response"}) - {
    "messages"
}
"""Entries of ``litellm_params`` that litellm applies. ``lane: auto`` translates if one is set, unless the upstream is a
server of OpenAI's format and the wire lane can write them."""

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
"""Entries of ``litellm_params`` that litellm does not get: its router's, and those that the route already holds."""

BESIDE_BODIES = ROUTER_FIELDS | {
    "api_key",
    "base_model",
    "custom_llm_provider",
    "drop_params",
    "extra_headers",
    "headers",
    "max_retries",
    "num_retries",
    "organization",
    "timeout",
}
"""Entries of ``litellm_params`` that are no members of a request."""
