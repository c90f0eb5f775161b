"""Clips a tool result or another message: a mark replaces the middle of its text, and all other bytes stay.

The step ``fit`` calls it through the dialect. ``core/planning/clip.py`` decides which messages to clip, and where.
"""

from __future__ import annotations

from tidemark.core.conversation.messages import Message
from tidemark.dialects.content_clipping import clip_content
from tidemark.dialects.messages.message import is_message, read_message
from tidemark.dialects.messages.writing import write_message
from tidemark.dialects.raw_edits import elements_of, with_member

_TEXTS = frozenset({"text"})


def replace_middle(message: Message, first: int, last: int, mark: str) -> Message:
    """Replace the characters from ``first`` to ``last`` of a message's text by a mark."""

    def clip(content: str) -> str:
        return clip_content(content, first, last, mark, _TEXTS)

    def clip_result(blocks: str) -> str:
        _, start, end = next(elements_of(blocks))
        return blocks[:start] + with_member(blocks[start:end], "content", clip) + blocks[end:]

    raw = message.raw if is_message(message.raw) else write_message(message)
    change = clip_result if message.role == "tool" else clip
    return read_message(with_member(raw.decode(), "content", change).encode())
