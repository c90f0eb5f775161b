"""Clips the content of a message in any dialect.

A mark replaces the middle of its text, and all other bytes stay. The dialects call it; ``core/planning/clip.py``
decides which messages to clip, and where.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from functools import partial

from tidemark.core.conversation.messages import JsonValue, kind_of, printable
from tidemark.dialects.raw_edits import elements_of, with_member

_MARK_LINES = "\n{mark}\n"


def clip_content(raw: str, first: int, last: int, mark: str, text_parts: Collection[str]) -> str:
    """Clip a content, which is a string or a list of parts. Parts that are wholly in the middle are removed.

    :param first: the first character of the message's text that goes, and ``last`` is the first one that stays
    :param text_parts: the types of the parts that are texts
    """
    value = json.loads(raw)
    if isinstance(value, str):
        return _as_json(clip_texts([printable(value)], first, last, mark)[0], "")
    elements = list(elements_of(raw))
    texts = [_text_of(part, text_parts) for part, _, _ in elements]
    parts: list[str] = []
    for (_, start, end), text, clipped in zip(elements, texts, clip_texts(texts, first, last, mark), strict=True):
        if clipped == text:
            parts.append(raw[start:end])
        elif clipped:
            parts.append(with_member(raw[start:end], "text", partial(_as_json, clipped)))
    return "[" + ",".join(parts) + "]"


def clip_texts(texts: Sequence[str], first: int, last: int, mark: str) -> list[str]:
    """Clip texts that a message joins by line ends, empty ones left out; those wholly in the middle become empty.

    Nothing is clipped where ``first`` and ``last`` are 0: the mark stands before the text then.
    """
    lines = _MARK_LINES.format(mark=mark)
    clipped_texts: list[str] = []
    at, has_mark = 0, False
    for text in texts:
        before, after = max(first - at, 0), max(last - at, 0)
        clipped = text[after:] if has_mark else text[:before]
        if text and not has_mark and len(text) >= before:
            clipped, has_mark = text[:before] + lines[not before :] + text[after:], True
        at += len(text) + 1 if text else 0  # the line end that joins texts in ``Message.text``
        clipped_texts.append(clipped)
    return clipped_texts


def _as_json(text: str, _raw: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def _text_of(part: JsonValue, text_parts: Collection[str]) -> str:
    if not isinstance(part, dict) or kind_of(part) not in text_parts:
        return ""
    text = part.get("text")
    return printable(text) if isinstance(text, str) else ""
