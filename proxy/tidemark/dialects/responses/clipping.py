"""Clips a tool's result. Replaces the middle of its text by a mark, and leaves all other members' bytes as they are.

The step ``fit`` calls it through the dialect. ``core/planning/clip.py`` decides which messages to clip, and where.
"""

from __future__ import annotations

import json
from typing import Any

from tidemark.core.conversation.messages import Message, printable
from tidemark.dialects.content_clipping import clip_content, clip_texts
from tidemark.dialects.raw_edits import with_member
from tidemark.dialects.responses.items import read_item
from tidemark.dialects.responses.parts import TEXTS

_STREAMS = ("stdout", "stderr")


def replace_middle(message: Message, first: int, last: int, mark: str) -> Message:
    """Replace the characters from ``first`` to ``last`` of a message's text by a mark."""
    raw = message.raw.decode()
    item = json.loads(raw)
    member = "output" if "output" in item else "content"

    def clip(content: str) -> str:
        if item.get("type") == "shell_call_output" and isinstance(item["output"], list):
            return json.dumps(_clip_streams(item["output"], first, last, mark), ensure_ascii=False)
        return clip_content(content, first, last, mark, TEXTS)

    clipped = with_member(raw, member, clip).encode()
    return read_item(clipped, json.loads(clipped), member).message


def _clip_streams(chunks: list[Any], first: int, last: int, mark: str) -> list[Any]:
    """Clip what a shell wrote; each chunk keeps its outcome."""
    places = [(chunk, name) for chunk in chunks if isinstance(chunk, dict) for name in _STREAMS]
    texts = [printable(chunk[name]) if isinstance(chunk.get(name), str) else "" for chunk, name in places]
    for (chunk, name), text in zip(places, clip_texts(texts, first, last, mark), strict=True):
        if name in chunk:
            chunk[name] = text
    return chunks
