"""The live prefix: what of a conversation a provider has in its prompt cache when a summary is due.

Between the plan and the summarizer, for ``summarizer.cache_friendly``: the summarizer's call repeats the forwarded
bytes up to the last message that it is to stand for, and appends one message of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from proxy.core.conversation.messages import CachedPrefix, Message, ModelRequest
from proxy.core.conversation.summary import PrefixSummary, inner_systems
from proxy.core.planning.assemble import assemble
from proxy.core.planning.budget import ModelProfile, budget_for
from proxy.core.planning.situation import Compact

CACHED_FIELDS = (
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
"""Members that are cached before the messages, or that lead to the server that has the cache (OpenAI API guide,
"Prompt caching"). How to think and to sample is the summarizer's own matter."""
_FREE = (b"null", b'"auto"', b'"none"')
_JSON = b'"json'
"""``json_object`` and ``json_schema``."""


def cached_prefix(request: ModelRequest, planned: Compact, profile: ModelProfile) -> CachedPrefix | None:
    """The forwarded beginning of ``request``, up to the last message that the planned summary stands for.

    None where its call could not be answered by a summary: the request wants JSON or the call of a tool, or the summary
    must tell system messages, which the model would take for instructions. Nor where some stand among the turns: the
    chain leaves them out, so a summary by who has read them might tell them to others.
    """
    fields = request.fields
    forced = any(fields.get(name, b"null").strip() not in _FREE for name in ("tool_choice", "function_call"))
    formatted = _JSON in fields.get("response_format", b"")
    if not profile.policy.summarizer_cache_friendly or forced or formatted:
        return None
    inner = any(position <= planned.covered for position in inner_systems(request.messages).values())
    if inner or any(message.is_system for message in planned.messages):
        return None
    return CachedPrefix(
        messages=_forwarded(request.messages, planned.previous, planned.covered),
        fields={name: fields[name] for name in CACHED_FIELDS if name in fields},
        limit=budget_for(profile, planned.max_summary_tokens).limit,
    )


def _forwarded(messages: Sequence[Message], previous: PrefixSummary | None, covered: int) -> tuple[Message, ...]:
    """What is forwarded without the planned summary, up to the last message that it will stand for."""
    kept_from = [place for place, message in enumerate(messages) if not message.is_system][covered]
    whole = assemble(messages, previous) if previous else tuple(messages)
    return whole[: len(whole) - (len(messages) - kept_from)]
