"""Epochs: the questions from one compaction to the next, and what is recalled for each of them.

``pipeline/recall.py`` extends an epoch's recall by each new question. Nothing that was recalled is taken away or
recalled again before the next compaction, so each request is the beginning of the next one (promise 5).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tidemark.core.conversation.messages import Message
from tidemark.core.frozen import frozen
from tidemark.core.recall.quotation import FRAME_TOKENS
from tidemark.core.report import RecallOutcome

SHARE = 0.5
"""One question may use this part of what earlier ones left of the bound. So later questions find some left."""
LEAST_SHARE_TOKENS = 400
"""Each question may use so much in any case, if the bound is that large. It was asked now, and the others before.

Less has no space for an answer with its question."""
LEAST_TOKENS = FRAME_TOKENS + 32
"""A smaller quotation would have no more than its frame."""


@frozen
class RecalledText:
    """A question, and the quotation that stands before it in every request of the epoch."""

    position: int
    """Of the question among the client messages, counted from 1."""
    question: Message
    """As the client sent it."""
    text: str
    message: Message
    """The question with the text at its beginning."""
    tokens: int
    """How many more tokens the message has than the question."""
    places: tuple[int, ...]
    """Of the quoted originals, among the messages behind the summary's cut."""


@frozen
class EpochRecall:
    """All that is recalled in an epoch, up to one question."""

    texts: tuple[RecalledText, ...] = ()
    """Oldest question first."""
    outcome: RecallOutcome = "nothing"
    """What came of the newest question."""
    is_partial: bool = False
    """Whether texts of earlier questions may be missing, because the index of the originals is not ready."""

    @property
    def tokens(self) -> int:
        """Return the tokens of all texts."""
        return sum([text.tokens for text in self.texts])

    @property
    def places(self) -> list[int]:
        """Return the places of all quoted originals."""
        return [place for text in self.texts for place in text.places]

    def share(self, bound: int) -> int:
        """Return the most tokens for the next question, of a bound for one question."""
        return share_of(bound, self.tokens)

    def extended(self, outcome: RecallOutcome, text: RecalledText | None = None) -> EpochRecall:
        """Return the epoch's recall with what came of a further question."""
        return replace(self, texts=self.texts if text is None else (*self.texts, text), outcome=outcome)


def share_of(bound: int, used_tokens: int) -> int:
    """Return the most tokens for one question.

    They are half of what is left of a bound, or the question's own share if that is more.

    :param used_tokens: those that earlier questions of the epoch recalled
    """
    return max(int((bound - used_tokens) * SHARE), min(LEAST_SHARE_TOKENS, bound))


def questions(messages: Sequence[Message]) -> Iterator[tuple[int, int]]:
    """Yield each question's place, and how many client messages come after it, newest first.

    A question is a user message with a text. One right after a tool's result is a note of the client to that result, as
    agents write at every step. Of several in a row the last one is the question.
    """
    later, is_followed = 0, False
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if message.is_system:
            continue
        is_question = message.role == "user" and not message.text.isspace() and bool(message.text)
        is_question = is_question and not _follows_result(messages, place)
        if is_question and not is_followed:
            yield place, later
        is_followed = is_question
        later += 1


def question_position(messages: Sequence[Message]) -> int:
    """Return the position of the newest question among the client messages, counted from 1; 0 if there is none."""
    newest = next(questions(messages), None)
    if newest is None:
        return 0
    return sum([not message.is_system for message in messages[: newest[0] + 1]])


def _follows_result(messages: Sequence[Message], place: int) -> bool:
    before = next((messages[at] for at in range(place - 1, -1, -1) if not messages[at].is_system), None)
    return before is not None and before.role == "tool"
