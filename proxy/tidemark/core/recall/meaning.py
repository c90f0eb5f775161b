"""What recall needs of texts as vectors, where ``recall.method`` is ``embedding``.

``index.py`` adds the similarity of vectors to the score of shared terms, and ``relevance.py`` asks for it where a
question shares no term. ``tidemark/vectors`` makes the vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

RecallMethod = Literal["bm25", "embedding"]
"""Shared terms alone, or shared terms and the similarity of meaning."""
LEAST_SIMILARITY = 0.3
"""Texts below it have nothing to do with each other; a question and its answer have 0.3 to 0.6."""
MOST_NEAREST = 40
"""Messages whose similarity counts for one question, most similar first."""
SIMILARITY_WORDS = 2.0
"""What a similarity of 1 is worth, in words that stand in one message alone."""


class VectorIndex(Protocol):
    """The texts of one conversation by meaning. Texts are only ever added at the end."""

    size: int
    """About how many bytes it takes."""

    def add(self, texts: Sequence[str]) -> None:
        """Add texts at the end."""
        ...

    def nearest(self, question: str, count: int, most: int) -> Sequence[tuple[int, float]]:
        """Return the places and similarities of those of the first ``count`` texts that are most like a question.

        The best comes first, and none is below ``LEAST_SIMILARITY``.
        """
        ...

    def likeness(self, question: str, texts: Sequence[str]) -> float:
        """Return the similarity of a question and the text that is most like it; 0 where there is no text."""
        ...
