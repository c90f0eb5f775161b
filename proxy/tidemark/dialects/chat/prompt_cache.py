"""The members of a chat request that a provider caches together with the messages.

A summarizer with ``cache_friendly`` repeats them, so that its call reads from the provider's prompt cache. Source:
OpenAI API guide, "Prompt caching".
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.conversation.request import ModelRequest

CACHED_MEMBERS = (
    "tools",
    "functions",
    "tool_choice",
    "function_call",
    "parallel_tool_calls",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "user",
)
"""Members that are cached before the messages, or that select the server with the cache. Members of sampling and
reasoning are the summarizer's own."""
_FREE_CHOICES = (b"null", b'"auto"', b'"none"')
_JSON = b'"json'
"""``json_object`` and ``json_schema``."""


def cached_members(request: ModelRequest) -> Mapping[str, bytes] | None:
    """Return the cached members; None where the request demands JSON or the call of a tool."""
    fields = request.fields
    forced = any(fields.get(name, b"null").strip() not in _FREE_CHOICES for name in ("tool_choice", "function_call"))
    if forced or _JSON in fields.get("response_format", b""):
        return None
    return {name: fields[name] for name in CACHED_MEMBERS if name in fields}
