"""Splits a transcript into the pieces that a summarizer's model reads, and measures its words.

``llm`` uses it. A piece is as long as the model's window allows beside the prompt, the earlier summary and the answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from tidemark.core.conversation.messages import Message
from tidemark.core.frozen import frozen
from tidemark.core.ports import TokenCounter
from tidemark.summarizers.deadline import UNBOUNDED, Deadline
from tidemark.summarizers.transcript import CALLED, utterances

_MARK, MARK_TOKENS = " […]", 4
_RESULT_SHARE = 0.25
"""Share of a piece for one tool result; a message of another speaker may fill a piece."""
_SAMPLE_CHARS = 8_000
"""Characters of the newest prose by which its words are measured."""
_TOKENS_PER_WORD = 1.4
"""English prose, for a talk that has none of its own."""
_LEAST_WORDS = 20
_UNSPACED = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff\uf900-\ufaff]")
_UNSPACED_CHARS = 1.6
"""Characters of a word in a script without spaces, such as Chinese or Thai."""


@frozen
class Portion:
    """A piece of the material for one call."""

    text: str
    tokens: int
    """Tokens with one for each line end, which is an upper estimate."""
    is_parts: bool = False
    """Whether it is made of the summaries of parts."""


def portions_of(
    messages: Sequence[Message], counter: TokenCounter, model: str, size: int, reading: Deadline = UNBOUNDED
) -> list[Portion]:
    """Return the transcript of messages in pieces.

    :param size: the most tokens of a piece
    :raises SummaryOverdue: the deadline has passed
    """
    return _portions(_lines(messages, counter, model, size), counter, model, size, reading)


def portions_of_parts(texts: Sequence[str], counter: TokenCounter, model: str, size: int) -> list[Portion]:
    """Return the summaries of parts, in order, as pieces for another summary."""
    numbered = (f"Part {number} of {len(texts)}:\n{text}\n" for number, text in enumerate(texts, 1))
    portions = _portions(numbered, counter, model, size, UNBOUNDED)
    return [Portion(portion.text, portion.tokens, is_parts=True) for portion in portions]


def _portions(lines: Iterable[str], counter: TokenCounter, model: str, size: int, reading: Deadline) -> list[Portion]:
    portions: list[Portion] = []
    piece: list[str] = []
    free = size
    for line in lines:
        reading.check()
        cost = counter.count_text(line, model) + 1
        if cost > free and piece:
            portions.append(Portion("\n".join(piece), size - free))
            piece, free = [], size
        piece.append(line)
        free -= cost
    return [*portions, Portion("\n".join(piece), size - free)] if piece else portions


def _lines(messages: Sequence[Message], counter: TokenCounter, model: str, size: int) -> Iterator[str]:
    """Yield each utterance; one that is too long loses its end, and a mark says so."""
    for utterance in utterances(messages):
        line = utterance.line
        limit = int(size * _RESULT_SHARE) if utterance.speaker.startswith("Tool") else size - MARK_TOKENS
        cut = counter.cut_text(line, model, limit)
        yield line if cut == line else f"{cut}{_MARK}"


def tokens_per_word(messages: Sequence[Message], counter: TokenCounter, model: str) -> float:
    """Return the tokens of each word of what people and the assistant said; English has 1.4, Arabic 2 to 4."""
    sample, free = [], _SAMPLE_CHARS
    for message in reversed(messages):
        if free <= 0:
            break
        if message.role in ("user", "assistant") and not message.text.startswith(CALLED):
            sample.append(message.text[-free:])
            free -= len(sample[-1])
    text = "\n".join(sample)
    words = _words(text)
    return max(counter.count_text(text, model) / words, 1.0) if words >= _LEAST_WORDS else _TOKENS_PER_WORD


def _words(text: str) -> float:
    unspaced = len(_UNSPACED.findall(text))
    return len(_UNSPACED.sub(" ", text).split()) + unspaced / _UNSPACED_CHARS
