"""The cached prefix: the part of a conversation that is in the provider's prompt cache when a summary is due.

The compaction asks for it after the plan, for ``summarizer.cache_friendly``: the summarizer's call repeats the
forwarded bytes up to the last message that the summary will stand for, and appends one message of its own.
"""

from __future__ import annotations

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import CachedPrefix, ModelRequest
from tidemark.core.conversation.summary import PrefixSummary, inner_systems
from tidemark.core.planning.assemble import assemble
from tidemark.core.planning.budget import ModelProfile, budget_for
from tidemark.core.planning.situation import Compact


def cached_prefix(
    request: ModelRequest,
    planned: Compact,
    profile: ModelProfile,
    in_use: PrefixSummary | None = None,
    *,
    left_out: int = 0,
) -> CachedPrefix | None:
    """Return the forwarded beginning of a request, up to the last message that the planned summary stands for.

    None if a model could not answer that call with a summary: the request demands JSON or the call of a tool, or the
    summary must repeat system messages, which the model would take for instructions. None also if system messages
    stand among the turns: the chain leaves them out, so such a summary might reveal them to other readers.

    :param in_use: the summary in use. If results are masked behind it, they are forwarded so
    :param left_out: how many messages that the earlier summary stands for are not among those of the request
    """
    if not profile.policy.summarizer_cache_friendly:
        return None
    fields = request.dialect.cached_members(request)
    if fields is None:
        return None
    inner = any(left_out + position <= planned.covered for position in inner_systems(request.messages).values())
    if inner or any(message.is_system for message in planned.messages):
        return None
    messages = _forwarded(request, forwarded_with(planned, in_use), planned.covered, left_out)
    return CachedPrefix(
        messages=messages,
        raws=tuple(request.dialect.raws_of(messages)),
        fields=fields,
        limit=budget_for(profile, planned.max_summary_tokens).limit,
    )


def forwarded_with(planned: Compact, in_use: PrefixSummary | None) -> PrefixSummary | None:
    """Return what is forwarded before a planned summary: its predecessor, and masks behind that one if there are any.

    :param in_use: the record in use. A plan may pass over it, because it is of no use for the request
    """
    is_upon = in_use is not None and in_use.masked is not None and in_use.base == planned.previous
    return in_use if is_upon else planned.previous


def _forwarded(request: ModelRequest, in_use: PrefixSummary | None, covered: int, left_out: int) -> tuple[Message, ...]:
    """Return what is forwarded without the planned summary, up to the last message that it will stand for."""
    messages = request.messages
    rest = [place for place, message in enumerate(messages) if not message.is_system][covered - left_out]
    replace_middle = request.dialect.replace_middle
    whole = assemble(messages, in_use, left_out, replace_middle=replace_middle) if in_use else tuple(messages)
    return whole[: len(whole) - (len(messages) - rest)]
