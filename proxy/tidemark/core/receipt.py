"""Loss receipts: how much of what a summary stands for is still in its text, by kind.

``summarizers/receipts.py`` writes a receipt for each new summary. It is stored with the summary, and every response
whose request has the summary reports it (``X-Tidemark-Kept``).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from functools import lru_cache
from typing import Literal, get_args

from tidemark.core.frozen import frozen

DetailKind = Literal[
    "rules",
    "requests",
    "facts",
    "decisions",
    "errors",
    "files",
    "commands",
    "identifiers",
    "links",
    "numbers",
    "names",
    "statements",
]
"""What a receipt counts. ``requests`` is the open request. ``facts``, ``decisions`` and ``numbers`` count no more, but
stored receipts of older versions have them. ``statements`` are counted only if a model's text was longer than its
space."""
DETAIL_KINDS: tuple[DetailKind, ...] = get_args(DetailKind)
Survival = Literal["kept", "shortened", "dropped", "unsupported"]
"""``kept``: word for word; ``shortened``: most words of it, in order; ``dropped``: anything less. ``unsupported``: a
model's text has it, and the conversation does not."""


@frozen
class Detail:
    """Something that was said, and what became of it; or something that only a model's text says."""

    kind: DetailKind
    text: str
    survival: Survival


@frozen
class KindCount:
    """How many details of one kind were said, and how many of them a summary still has."""

    kind: DetailKind
    total: int
    verbatim_count: int
    shortened_count: int = 0
    unsupported: tuple[str, ...] = ()
    """What a model's text names and nobody said, the first ones; ``total`` leaves them out."""

    @property
    def dropped_count(self) -> int:
        """Return how many are neither kept nor shortened."""
        return self.total - self.verbatim_count - self.shortened_count


MAX_UNSUPPORTED = 20
"""What is named of each kind that nobody said."""
RENDERED = 128
"""Rendered receipts that stay in memory: every turn reports the same one until the next summary."""
Receipt = tuple[KindCount, ...]
"""The kinds of which something was said, in the order of ``DETAIL_KINDS``."""


def receipt_of(details: Iterable[Detail], previous: Receipt = ()) -> Receipt:
    """Count details by kind.

    :param previous: the receipt of the summary that this one continues. What that one had dropped is no part of its
        text, so it is added here: no later receipt forgets a loss.
    """
    totals: Counter[DetailKind] = Counter({count.kind: count.dropped_count for count in previous})
    survivals: Counter[tuple[DetailKind, Survival]] = Counter()
    unsupported: dict[DetailKind, list[str]] = defaultdict(list)
    for detail in details:
        if detail.survival == "unsupported":
            unsupported[detail.kind].append(detail.text)
            continue
        totals[detail.kind] += 1
        survivals[detail.kind, detail.survival] += 1
    return tuple(
        KindCount(
            kind,
            totals[kind],
            survivals[kind, "kept"],
            survivals[kind, "shortened"],
            tuple(unsupported[kind][:MAX_UNSUPPORTED]),
        )
        for kind in DETAIL_KINDS
        if totals[kind] or unsupported[kind]
    )


def with_statements(receipt: Receipt, statements: int, left_out: int) -> Receipt:
    """Return a receipt that says how many of a model's statements had to go, if any had."""
    if not left_out:
        return receipt
    earlier = sum(count.total for count in receipt if count.kind == "statements")  # what earlier summaries left out
    own = KindCount("statements", earlier + statements, statements - left_out)
    return (*(count for count in receipt if count.kind != "statements"), own)


@lru_cache(maxsize=RENDERED)
def render_receipt(receipt: Receipt) -> str:
    """Return a receipt as one line: ``rules 7/7, identifiers 41/60, unsupported 1``.

    A shortened detail counts as kept here. The function is pure, and the cache only saves time.
    """
    present_counts = [count for count in receipt if count.total]
    parts = [f"{count.kind} {count.verbatim_count + count.shortened_count}/{count.total}" for count in present_counts]
    unsupported = sum(len(count.unsupported) for count in receipt)
    return ", ".join([*parts, f"unsupported {unsupported}"] if unsupported else parts)
