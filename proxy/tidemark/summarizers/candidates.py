"""Holds the value that ``extractive`` weighs and chooses: a sentence that a summary may keep."""

from __future__ import annotations

from tidemark.core.frozen import frozen
from tidemark.summarizers.fitting import ASCII_CHARS


@frozen
class Candidate:
    """A sentence that a summary may keep, with its weight."""

    speaker: str
    text: str
    line: int
    """Sentences of one line have one speaker and one place in the conversation."""
    place: int
    tier: int
    """The class of the sentence, kept in this order.

    -1 for the open request, 0 for the user's rules, 1 for other sentences, 2 for the bulk of long results and words.
    """
    density: float
    """Weight of each token."""
    tokens: float
    """An estimate."""
    earlier: bool
    """Whether the previous summary has it."""
    label: str = ""
    """The label of a statement, which stands once for all statements that have it."""
    mark: str = ""
    """What the summary says beside the text, in square brackets: how often it stood, or the size of a result."""
    listed: bool = False
    """Whether it is a rule among many of one text."""
    rides: bool = False
    """Whether it may only stand beside another sentence of its line."""
    subject: str = ""
    """What a value belongs to. It stands in square brackets before it, once in a line."""
    day: str = ""
    """The day on which it was said, in words of the talk; empty if the talk states none."""

    def with_text(self, text: str, tokens: float, density: float) -> Candidate:
        """Return it with another text, in a third of the time that ``replace`` takes."""
        return Candidate(
            self.speaker,
            text,
            self.line,
            self.place,
            self.tier,
            density,
            tokens,
            self.earlier,
            self.label,
            self.mark,
            self.listed,
            self.rides,
            self.subject,
            self.day,
        )

    @property
    def label_tokens(self) -> float:
        """An estimate of the tokens of the label."""
        return len(self.label) / ASCII_CHARS
