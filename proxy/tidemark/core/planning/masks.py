"""Masks: which old results of tools leave a request, so that nothing that was said needs a summary.

Three quarters of what an agent sends are results, and most are of use for a few steps only. A compaction first puts a
line in the place of old ones (``core/conversation/result_lines.py``). If that brings the request to the low water, no
summary is made (docs/adr/0037).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from itertools import accumulate

from tidemark.core.conversation.messages import Message, ToolCall
from tidemark.core.conversation.result_lines import tells_trouble
from tidemark.core.frozen import frozen

LINE_TOKENS = 80
"""The bound of a masked result in a plan, with its frame: what does not exist yet counts with its bound."""
LEAST_TOKENS = 2 * LINE_TOKENS
"""Smaller results stay, since a line would free little and tell less."""
_PATH_NAMES = ("path", "file_path", "filepath", "filename", "file", "notebook_path", "target_file", "relative_path")


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
    calls = _calls_of(messages)
    newest: dict[tuple[str, str], int] = {}
    subjects: dict[int, list[tuple[str, str]]] = {}
    for position, call in calls.items():
        subjects[position] = _subjects(call)
        newest |= dict.fromkeys(subjects[position], position)

    def rank(position: int) -> tuple[int, int]:
        own = subjects.get(position, [])
        if any(newest[subject] > position for subject in own):
            return 0, position
        is_last = any(kind == "file" for kind, _ in own) or tells_trouble(messages[position].text)
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


def _calls_of(messages: Sequence[Message]) -> dict[int, ToolCall]:
    """Return the call of each result, by the result's position. Some servers use one id again."""
    latest: dict[str, ToolCall] = {}
    calls: dict[int, ToolCall] = {}
    for position, message in enumerate(messages):
        latest |= {call.id: call for call in message.calls}
        if message.answers is not None and message.answers in latest:
            calls[position] = latest[message.answers]
    return calls


def _subjects(call: ToolCall) -> list[tuple[str, str]]:
    """Return what a call is about: the call itself, and the file that its arguments name."""
    subjects = [("call", f"{call.name} {call.arguments}")]
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return subjects
    if isinstance(arguments, dict):
        paths = [arguments[name] for name in _PATH_NAMES if isinstance(arguments.get(name), str)]
        subjects += [("file", path) for path in paths[:1]]
    return subjects
