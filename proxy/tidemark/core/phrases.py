"""What one compaction has read of its texts: their sentences, and what each of them is.

A strategy and the loss receipt read the same messages. ``compaction/order.py`` gives each order a ``Reading``, which
the first reader fills and the compactor empties in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from tidemark.core.frozen import frozen

RuleKind = Literal["directive", "demand"]
"""A directive addresses the assistant; a demand is about a thing ("The service must ...")."""


@frozen
class Phrase:
    """A sentence, and what it is by its wording."""

    sentence: str
    plain: str
    """The sentence without its opening interjections."""
    words: tuple[str, ...]
    """The words of ``plain`` in lower case."""
    rule: RuleKind | None = None
    """The kind of rule that a person's sentence is; None if it is no rule."""
    is_fact: bool = False
    """Whether it is a person's sentence with a fact."""
    is_decision: bool = False
    is_error: bool = False


class Reading:
    """Holds the phrases of the texts that were read, so that each text is read once. Its phrases are mutable state."""

    __slots__ = ("_phrases",)

    def __init__(self) -> None:
        self._phrases: dict[tuple[str, bool], Sequence[Phrase]] = {}

    def phrases(self, text: str, *, by_user: bool) -> Sequence[Phrase] | None:
        """Return the phrases of a text; None if nobody has read it yet.

        :param by_user: whether a person wrote it; only a person states rules and facts
        """
        return self._phrases.get((text, by_user))

    def keep(self, text: str, phrases: Sequence[Phrase], *, by_user: bool) -> None:
        """Keep the phrases of a text for its next reader."""
        self._phrases[text, by_user] = phrases

    def clear(self) -> None:
        self._phrases.clear()
