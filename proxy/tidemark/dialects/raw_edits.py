"""Edits JSON text in place: single values and elements change, a member goes, or a text is clipped.

Dialects clip messages with it: a mark replaces the middle of a text. ``core/planning/clip.py`` decides which messages
to clip, and where. The text must be JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial

from tidemark.core.conversation.messages import JsonValue, kind_of, printable

_SPACE = re.compile(r"[ \t\n\r]*")
_READ = json.JSONDecoder().raw_decode
_MARK_LINES = "\n{mark}\n"


def with_member(raw: str, name: str, change: Callable[[str], str]) -> str:
    """Return an object with one member's value changed; all other text stays."""
    pieces: list[str] = []
    done = 0
    for member, start, end in _members(raw):
        if member == name:
            pieces += [raw[done:start], change(raw[start:end])]
            done = end
    return "".join([*pieces, raw[done:]])


def without_member(raw: str, name: str) -> str:
    """Return an object without a member and its comma; all other text stays."""
    before = raw.index("{") + 1
    is_first = True
    for member, _, end in _members(raw):
        if member == name:
            after = _skip_space(raw, end)
            return raw[:before] + raw[_skip_space(raw, after + 1) if is_first and raw[after] == "," else end :]
        before, is_first = end, False
    return raw


def _members(raw: str) -> Iterator[tuple[str, int, int]]:
    """Yield the name of each member of an object, and where its value begins and ends. The text must be JSON."""
    at = _skip_space(raw, raw.index("{") + 1)
    while raw[at] != "}":
        name, at = _READ(raw, at)
        start = _skip_space(raw, raw.index(":", at) + 1)
        _, end = _READ(raw, start)
        yield name, start, end
        at = _skip_space(raw, end)
        at = _skip_space(raw, at + 1) if raw[at] == "," else at


def elements_of(raw: str) -> Iterator[tuple[JsonValue, int, int]]:
    """Yield each element of a list, and where it begins and ends."""
    at = _skip_space(raw, raw.index("[") + 1)
    while raw[at] != "]":
        value, end = _READ(raw, at)
        yield value, at, end
        at = _skip_space(raw, end)
        at = _skip_space(raw, at + 1) if raw[at] == "," else at


def _skip_space(raw: str, at: int) -> int:
    """Return the place after any white space."""
    space = _SPACE.match(raw, at)
    return space.end() if space else at


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

    Nothing is clipped if ``first`` and ``last`` are 0: the mark stands before the text then. In place of the whole text
    it stands without a line end.
    """
    whole = sum(len(text) + 1 for text in texts if text) - 1
    lines = f"\n{mark}" if not first and 0 < whole <= last else _MARK_LINES.format(mark=mark)
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
