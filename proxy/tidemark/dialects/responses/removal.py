"""Removes messages from the array ``input``, where each message is one item or several.

The step that takes commands out of a request calls it through the dialect.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tidemark.core.conversation.messages import Message
from tidemark.dialects.bodies import array_of
from tidemark.dialects.raw_json import read_elements


def array_without(array: bytes, messages: Sequence[Message], places: Collection[int]) -> bytes:
    """Remove the items of the messages at these places; each leaves with the comma and the white space before it.

    :param array: the member's value; a string becomes an array of what remains
    :param messages: the array's messages, whose ``raw`` is their items with commas between them
    """
    if not array.lstrip().startswith(b"["):
        return array_of([message.raw for place, message in enumerate(messages) if place not in places])
    raws, gaps, end = read_elements(array), [], 0
    for raw in raws:
        start = array.index(raw, end)
        gaps.append(array[end:start])
        end = start + len(raw)
    pieces: list[bytes] = []
    first = 0
    for place, message in enumerate(messages):
        count = _count_items(raws, first, message)
        if place not in places:
            for item in range(first, first + count):
                pieces += (gaps[item], raws[item])
        first += count
    return b"".join([gaps[0], *pieces[1:], array[end:]])


def _count_items(raws: Sequence[bytes], first: int, message: Message) -> int:
    """Return how many items a message has, the first one of which is ``first``."""
    count, length = 1, len(raws[first])
    while length < len(message.raw):
        length += 1 + len(raws[first + count])
        count += 1
    return count
