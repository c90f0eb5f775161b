"""Decides which compacted requests get cache marks, if their clients set none.

``sending.py`` asks before it writes a request, and the dialect writes the marks (docs/adr/0039). Tidemark marks no
request that goes out as it came, and none whose summary its provider wrote.
"""

from __future__ import annotations

from dataclasses import replace

from tidemark.core.conversation.cache_marks import marks_for
from tidemark.core.ports import Upstream
from tidemark.pipeline.values import FittedRequest, RequestContext


def with_marks(context: RequestContext, fitted: FittedRequest, upstream: Upstream) -> RequestContext:
    """Return the context of a request that goes out with cache marks; the same one if it needs none.

    A model that is no cheaper with a cache gets none, and neither does a request that a client marked itself.
    """
    summary = fitted.summary.base if fitted.summary else None
    request, policy = context.request, context.profile.policy.cache_marks
    if summary is None or fitted.native is not None or policy == "off":
        return context
    form = upstream.mark_format(context.route, request.dialect.name, context.caller, policy)
    price = context.profile.price
    if form is None or (price is not None and not price.caches) or form.is_in(request.fields):
        return context
    count, messages = context.count, request.messages
    first = next((place for place, message in enumerate(messages) if not message.is_system), len(messages))
    head_tokens = count.other_tokens + count.first_summary_tokens + sum(count.messages[:first])
    marks = marks_for(form, head_tokens, summary.tokens)
    return context if marks is None else replace(context, request=replace(request, marks=marks))
