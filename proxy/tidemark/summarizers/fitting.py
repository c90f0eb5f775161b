"""Keeps texts within their bound, by the tokenizer of the conversation's model.

All strategies use it. Candidates are weighed by an estimate, which costs nothing; the returned text is counted.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain

from tidemark.core.ports import SummaryTask, TokenCounter

ASCII_CHARS = 4.2
"""Characters of a token of common English text in o200k_base, with the space before a word."""
_OTHER_TOKENS = 0.8
"""Tokens of a character outside ASCII, a high estimate (Chinese 0.7 to 1, accents less)."""
_LEAST_SHARE_TOKENS, _MOST_SHARE = 24, 0.08
"""Least tokens for a kind of lines whose share is smaller. One short line, but at most this part of the bound."""
JOINT_TOKENS = 2
"""Tokens that a text and what stands around it may take more together than apart."""
_MOST_CHARS = 64
"""Characters of a token in no real text; only runs of blanks and the like have more."""
_LINE_LOSS = 0.3
"""A cut text goes back to its last line end when that costs at most this share of it."""


LARGE_CHARS = 40_000
"""Characters above which a text is read in a thread: so many take about 10 ms, while other streams wait."""


def is_large(task: SummaryTask) -> bool:
    """Return whether the task's messages are too large to be read on the event loop."""
    return sum(len(message.raw) for message in chain(task.earlier, task.messages)) > LARGE_CHARS


def estimated_tokens(text: str) -> float:
    """Return an estimate of the tokens of a text."""
    if text.isascii():
        return len(text) / ASCII_CHARS + 0.5
    other = len(text) - len(text.encode("ascii", "ignore"))
    return (len(text) - other) / ASCII_CHARS + other * _OTHER_TOKENS + 0.5


def room_in(counter: TokenCounter, model: str, max_tokens: int) -> Callable[[str], bool]:
    """Return a function that says whether a text has at most so many tokens.

    A very long one is not counted.
    """
    return lambda text: len(text) <= _MOST_CHARS * max_tokens and counter.count_text(text, model) <= max_tokens


def cut_to_bound(text: str, task: SummaryTask, counter: TokenCounter, max_tokens: int | None = None) -> str:
    """Return the text within the bound, cut at a line end if one is near, or else at a word."""
    bound = task.max_tokens if max_tokens is None else max_tokens
    cut = counter.cut_text(text, task.model, max(bound, 0))
    if len(cut) == len(text):
        return text
    for end in ("\n", " "):
        place = cut.rfind(end)
        if place >= len(cut) * (1 - _LINE_LOSS):
            return cut[:place].rstrip()
    return cut.rstrip()


def fitting_lines(
    lines: Sequence[tuple[str, str]],
    shares: Mapping[str, float],
    task: SummaryTask,
    counter: TokenCounter,
    max_tokens: int,
) -> list[int]:
    """Return which lines fit together.

    Each kind gets its own share first, so that the many lines of one kind do not displace another. What the kinds
    leave of their shares goes to the most important lines, whatever their kind.

    :param lines: the kind and the text of each line, most important first
    :param shares: the share of ``max_tokens`` for each kind
    :returns: the indices of the lines, in the given order; lines that are too long are skipped
    """
    # One more for the line end, which may be joined to the next word but never costs more.
    costs = [
        counter.count_text(line, task.model) + 1 if estimated_tokens(line) <= 2 * max_tokens else max_tokens + 1
        for _, line in lines
    ]
    own = {
        kind: max(share * max_tokens, min(_LEAST_SHARE_TOKENS, _MOST_SHARE * max_tokens))
        for kind, share in shares.items()
    }
    chosen: set[int] = set()
    free = max_tokens
    for index, (kind, _) in enumerate(lines):
        if costs[index] <= min(own[kind], free):
            own[kind] -= costs[index]
            chosen.add(index)
            free -= costs[index]
    for index, cost in enumerate(costs):
        if index not in chosen and cost <= free:
            chosen.add(index)
            free -= cost
    return sorted(chosen)
