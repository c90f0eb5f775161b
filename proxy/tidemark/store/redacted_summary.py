"""Redacts summaries before they are stored, whoever wrote them: a model, a person, another framework."""

from __future__ import annotations

from dataclasses import replace

from tidemark.core.conversation.summary import MaskedResults, PrefixSummary
from tidemark.core.ports import Redactor


async def redacted_summary(summary: PrefixSummary, redactor: Redactor | None) -> PrefixSummary:
    """Return what may be stored of a summary; the same one if nothing changes.

    A provider's own form is sealed or signed, so it cannot be changed. It is left out if there is a text beside it.

    :raises RedactionFailed: nothing of it may be stored
    """
    if redactor is None:
        return summary
    masked = summary.masked
    lines = masked.lines if masked else ()
    unsupported = [word for count in summary.receipt for word in count.unsupported]
    texts = [summary.text, summary.stated, *summary.results, *(line for _, line in lines), *unsupported]
    redacted = iter(await redactor.texts(texts))
    text, stated = next(redacted), next(redacted)
    results = tuple(next(redacted) for _ in summary.results)
    if masked is not None:
        base = None if masked.base is None else await redacted_summary(masked.base, redactor)
        masked = MaskedResults(base, tuple((place, next(redacted)) for place, _ in lines))
    receipt = tuple(
        replace(count, unsupported=tuple(next(redacted) for _ in count.unsupported)) for count in summary.receipt
    )
    changed = replace(
        summary,
        text=text,
        stated=stated,
        results=results,
        masked=masked,
        receipt=receipt,
        native=None if summary.text else summary.native,
    )
    return summary if changed == summary else changed
