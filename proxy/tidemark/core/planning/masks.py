"""Masks: which old results of tools leave a request, so that nothing that was said needs a summary.

Three quarters of what an agent sends are results, and most are of use for a few steps only. A compaction first puts a
line in the place of old ones (``core/recall/result_lines.py``). If that brings the request to the low water, no
summary is made (docs/adr/0037).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import accumulate

from tidemark.core.conversation.exact_results import calls_by_result, is_error
from tidemark.core.conversation.messages import Message
from tidemark.core.frozen import frozen
from tidemark.core.recall.tool_subjects import subjects_of

LINE_TOKENS = 80
"""The bound of a masked result in a plan, with its frame. What does not exist yet counts with its bound."""
LEAST_TOKENS = 2 * LINE_TOKENS
"""Smaller results stay, since a line would free little and tell less."""


@frozen
class Results:
    """The results that may be masked, the first to go first."""

    positions: tuple[int, ...]
    """Among the client messages, from 0."""
    freed: tuple[int, ...]
    """The tokens that go with each of them and all before it, at least."""

    def enough_for(self, excess: int) -> tuple[int, ...] | None:
        """Return the fewest results that free so many tokens, in order of the conversation; None if all are too few."""
        count = next((count for count, freed in enumerate(self.freed, 1) if freed >= excess), None)
        return None if count is None else tuple(sorted(self.positions[:count]))


def maskable(
    messages: Sequence[Message], tokens: Sequence[int], places: range, masked: Collection[int] = ()
) -> Results:
    """Return the results among ``places`` that may be masked.

    Results that a later one repeats or supersedes go first: the same call, or the same file. Errors and the newest
    result of each file go last, the oldest first within each group.

    :param messages: the client messages
    :param tokens: of each of them
    :param masked: the places of those that are masked already
    """
    calls = {place: call for place, call in calls_by_result(messages) if call is not None}
    newest: dict[tuple[str, str], int] = {}
    subjects: dict[int, list[tuple[str, str]]] = {}
    for position, call in calls.items():
        subjects[position] = subjects_of(call)
        newest |= dict.fromkeys(subjects[position], position)

    def rank(position: int) -> tuple[int, int]:
        own = subjects.get(position, [])
        if any(newest[subject] > position for subject in own):
            return 0, position
        is_last = any(kind == "file" for kind, _ in own) or is_error(messages[position])
        return 2 if is_last else 1, position

    positions = sorted(
        (
            position
            for position in places
            if messages[position].role == "tool"
            and position not in masked
            and not messages[position].media
            and tokens[position] >= LEAST_TOKENS
        ),
        key=rank,
    )
    return Results(tuple(positions), tuple(accumulate(tokens[position] - LINE_TOKENS for position in positions)))
