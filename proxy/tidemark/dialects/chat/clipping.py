"""Clips a chat message. Replaces the middle of its text by a mark, and leaves all other members' bytes as they are.

The step ``fit`` calls it through the dialect. ``core/planning/clip.py`` decides which messages to clip, and where.
"""

from __future__ import annotations

import json

from tidemark.core.conversation.messages import Message
from tidemark.dialects.chat.message import TEXT_PARTS, parse_message
from tidemark.dialects.content_clipping import clip_content
from tidemark.dialects.raw_edits import with_member


def replace_middle(message: Message, first: int, last: int, mark: str) -> Message:
    """Replace the characters from ``first`` to ``last`` of a message's text by a mark."""
    clipped = with_member(
        message.raw.decode(), "content", lambda raw: clip_content(raw, first, last, mark, TEXT_PARTS)
    ).encode()
    return parse_message(clipped, json.loads(clipped), 0)
