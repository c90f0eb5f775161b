"""Compaction orders, made from a request's context and its plan.

The step ``fit`` and compaction by hand give orders to the compactor, which knows no ``RequestContext``.
"""

from __future__ import annotations

from tidemark.compaction.order import CompactionOrder
from tidemark.core.conversation.prefix import owner_of
from tidemark.core.planning.situation import Compact, SwapSummary
from tidemark.pipeline.values import RequestContext


def order_of(context: RequestContext, planned: Compact) -> CompactionOrder:
    """Return the order for the summary that a plan asks for."""
    original = context.unclipped or context
    in_use = [summary for summary in (context.stored.summary, context.put_in_use) if summary is not None]
    return CompactionOrder(
        plan=planned,
        tenant=context.tenant,
        conversation=context.conversation,
        chain=context.chain,
        profile=context.profile,
        route=context.route,
        caller=context.caller,
        owner=context.owner or owner_of(context.caller.fingerprint),
        cause="manual" if context.controls.mode == "force" else "automatic",
        degraded=context.stored.degraded,
        keep=context.keep,
        request=context.request,
        original_messages=original.request.messages,
        original_tokens=original.count.messages,
        left_out=original.count.left_out.count,
        by_hand=context.controls.by_hand,
        in_use=max(in_use, key=lambda summary: summary.covered, default=None),
    )


def swap_plan_of(planned: SwapSummary) -> Compact:
    """Return the plan that a prepared summary is the result of."""
    summary = planned.summary
    return Compact(
        covered=summary.covered,
        messages=(),
        previous=None,
        max_summary_tokens=summary.tokens,
        absorbed=summary.absorbed,
        replaced_tokens=planned.replaced_tokens,
        rest_tokens=0,
        fallback=None,
    )


def mask_plan_of(covered: int, absorbed: tuple[bytes, ...], *, before: int, after: int, rest: int) -> Compact:
    """Return the plan that masked results are the outcome of.

    :param covered: up to which client message results were looked at
    :param absorbed: what the summary in use absorbed
    :param before: tokens of all that goes out up to that message, without the new lines
    :param after: the same with them
    :param rest: tokens of all else
    """
    return Compact(
        covered=covered,
        messages=(),
        previous=None,
        max_summary_tokens=after,
        absorbed=absorbed,
        replaced_tokens=before,
        rest_tokens=rest,
        fallback=None,
        is_mask=True,
    )
