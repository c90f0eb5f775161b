"""What is stored of a request: all of it, hashes and summaries without any text, or nothing.

The operator decides it (``store.keep``), and a client may ask for less (``X-Tidemark-Keep``), never for more.
"""

from __future__ import annotations

import json
from dataclasses import replace
from typing import get_args

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.records import Keep, TurnRecord

KEEPS: tuple[Keep, ...] = get_args(Keep)
"""From the strictest on."""
NOT_STORED = "[not stored]"
"""Stands in a stored message for its text, whatever its dialect."""


def strictest(*keeps: Keep) -> Keep:
    """Return the one by which least is stored."""
    return "none" if "none" in keeps else "summaries" if "summaries" in keeps else "all"  # each request asks


def without_texts(turn: TurnRecord) -> TurnRecord:
    """Return what is stored of a turn if only hashes and summaries are: no text, no response, no system message."""
    counted = zip(turn.messages, turn.tokens, strict=True)
    others = [(message, count) for message, count in counted if not message.is_system]
    return replace(
        turn,
        messages=tuple(_blank(message) for message, _ in others),
        tokens=tuple(count for _, count in others),
        scheme="",
        response=None,
        prompt_record=b"",
    )


def is_without_text(raw: bytes) -> bool:
    """Return whether a stored message is one whose text was left out."""
    return raw.endswith(_MARK)


def _blank(message: Message) -> Message:
    raw = json.dumps({"role": message.role, "content": NOT_STORED}, separators=(",", ":")).encode()
    return Message(raw, message.role, NOT_STORED, message.digest)


_MARK = f'"content":"{NOT_STORED}"}}'.encode()
