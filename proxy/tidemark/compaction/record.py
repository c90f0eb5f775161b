"""The record of a summary, and the flush that belongs to it.

Nothing else in Tidemark builds a new ``PrefixSummary``: the compactor builds it from a draft, and
``integrations/shared.py`` from a text that another framework wrote. The store only decodes such records.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidemark.compaction.order import CompactionOrder
from tidemark.core.conversation.flush import Flush, leaving
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import PrefixChain
from tidemark.core.conversation.summary import (
    Cause,
    MaskedResults,
    PrefixSummary,
    Strategy,
    SummaryRecipe,
    SummaryText,
    render_text,
)


def summary_record(
    chain: PrefixChain,
    draft: SummaryText,
    *,
    covered: int,
    absorbed: Sequence[bytes],
    previous: PrefixSummary | None,
    recipe: SummaryRecipe,
    cause: Cause,
    created_at: float,
    count: Callable[[Message], int],
    anew: bool = False,
    results: tuple[str, ...] = (),
) -> PrefixSummary:
    """Return the record of a text that stands for the first ``covered`` messages of ``chain``.

    :param absorbed: digests of the system messages that the text takes in
    :param previous: the summary that the text continues
    :param count: counts the tokens of the summary message
    :param results: those among the messages that can be read again
    :param anew: whether the strategy could read the messages behind ``previous``
    """
    return PrefixSummary(
        prefix=chain.at(covered),
        covered=covered,
        text=draft.text,
        recipe=recipe,
        made_by=draft.made_by,
        cause=cause,
        created_at=created_at,
        previous=previous.prefix if previous else None,
        tokens=count(render_text(draft.text, covered, results)),
        absorbed=tuple(absorbed),
        stated=draft.stated,
        native=draft.native,
        chosen=_is_chosen(draft, previous, anew=anew),
        results=results,
    )


def _is_chosen(draft: SummaryText, previous: PrefixSummary | None, *, anew: bool) -> bool:
    """Return whether a text, or the ledger of ``hybrid``, has nothing but what the messages say."""
    if draft.made_by not in ("extractive", "hybrid"):
        return False
    # Lines alone go on from a summary with a model's narrative, which is in no message.
    return previous is None or (anew and (draft.made_by == "hybrid" or previous.made_by == "extractive"))


def masked_record(
    order: CompactionOrder, masked: MaskedResults, recipe: SummaryRecipe, created_at: float
) -> PrefixSummary:
    """Return the record of results that lines stand for, behind the summary in use or without one.

    :param recipe: the one that requests look for
    """
    covered, base = order.plan.covered, masked.base
    return PrefixSummary(
        prefix=order.chain.at(covered),
        covered=covered,
        text=base.text if base else "",
        recipe=recipe,
        made_by="mask",
        cause=order.cause,
        created_at=created_at,
        previous=base.prefix if base else None,
        tokens=order.plan.max_summary_tokens,
        absorbed=base.absorbed if base else (),
        masked=masked,
    )


def sealed_record(text: str, covered: int, strategy: Strategy) -> PrefixSummary:
    """Return the record of a summary that a client brought back, from which a strategy goes on.

    :param covered: the messages that it stands for
    """
    return PrefixSummary(b"", covered, text, SummaryRecipe(strategy, "", 0, ""), strategy, "manual", 0.0)


def flush_of(order: CompactionOrder, summary: PrefixSummary, *, stored: bool = True) -> Flush:
    """Return what leaves the context when ``summary`` is put into use (S0-4).

    :param stored: whether the store has the summary, so that the next request uses it too
    """
    first, messages = leaving(order.original_messages, order.original_tokens, summary, order.in_use, order.left_out)
    return Flush(
        order.tenant,
        order.conversation,
        order.profile.name,
        order.chain,
        summary,
        first,
        messages,
        stored=stored,
        owner=order.owner,
    )
