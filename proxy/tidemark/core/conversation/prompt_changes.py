"""Prompt changes: the first part of a request that differs from what its conversation sent before.

A provider's prompt cache holds from the beginning up to the first difference, in the order tools, system, messages
(Anthropic, "Prompt caching"). Only digests are compared, and no report of a change quotes contents.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Literal

from tidemark.core.frozen import frozen

ChangedPart = Literal["tools", "system", "message"]
ToolChange = Literal["added", "removed", "changed", "order"]


@frozen
class SentPrompt:
    """What one request sent, as digests."""

    tools: tuple[tuple[bytes, bytes], ...]
    """For each tool, in order: a digest of its name and one of all of it."""
    systems: tuple[bytes, ...]
    """A digest of each leading system message."""
    messages: tuple[bytes, ...]
    """A digest of each other message."""


@frozen
class PromptChange:
    """The first part that differs."""

    part: ChangedPart
    index: int
    """The place of the tool or message within its part, from 0."""
    tool_change: ToolChange | None = None
    """Only for ``tools``."""

    @property
    def words(self) -> str:
        """Return the change in words that quote nothing: ``tools[3] added``, or ``message 6 changed``.

        Messages count from 1, system messages apart, as everywhere else.
        """
        if self.part == "message":
            return f"message {self.index + 1} changed"
        change = "moved" if self.tool_change == "order" else self.tool_change or "changed"
        return f"{self.part}[{self.index}] {change}"


def first_change(before: SentPrompt, now: SentPrompt) -> PromptChange | None:
    """Return the first part that the client changed; None if it only added or took back messages at the end."""
    if before.tools != now.tools:
        return _tool_change(before.tools, now.tools)
    if before.systems != now.systems:
        return PromptChange("system", _shared(before.systems, now.systems))
    place = _edited_place(before.messages, now.messages)
    return None if place is None else PromptChange("message", place)


def _tool_change(before: Sequence[tuple[bytes, bytes]], now: Sequence[tuple[bytes, bytes]]) -> PromptChange:
    place = _shared(before, now)
    if sorted(before) == sorted(now):
        return PromptChange("tools", place, "order")
    if place == len(before):
        return PromptChange("tools", place, "added")
    if place == len(now):
        return PromptChange("tools", place, "removed")
    earlier, later = {name for name, _ in before}, {name for name, _ in now}
    if now[place][0] not in earlier:
        return PromptChange("tools", place, "added")
    if before[place][0] not in later:
        return PromptChange("tools", place, "removed")
    return PromptChange("tools", place, "changed" if before[place][0] == now[place][0] else "order")


def _edited_place(before: Sequence[bytes], now: Sequence[bytes]) -> int | None:
    """Return the place of a message that was changed although later ones stayed.

    If no later one stayed, the person went back and asks something else: the cache is lost on purpose. One equal
    message proves nothing, since people repeat themselves ("go on"): all the rest has to stay, or two in a row.
    """
    place = _shared(before, now)
    old, new = before[place:], now[place:]
    if len(old) > 1 and old[1:] == new[1 : len(old)]:
        return place
    return place if set(pairwise(old)) & set(pairwise(new)) else None


def _shared(before: Sequence[object], now: Sequence[object]) -> int:
    """Return how many first elements are equal."""
    place = 0
    for earlier, later in zip(before, now, strict=False):
        if earlier != later:
            break
        place += 1
    return place
