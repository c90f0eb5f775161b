"""Finds and removes the items that only their provider can read: encrypted reasoning and compactions.

OpenAI encrypts them for the organization and the family of the model that made them, and refuses them anywhere else.
``pipeline/refused_items.py`` decides which of them leave. Source: OpenAI's guides "Reasoning models" and "Compaction";
the words of refusals by OpenAI, by its resellers, and by Anthropic for what a bridge has sealed.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping, Sequence

from tidemark.core.conversation.messages import JsonValue, kind_of
from tidemark.core.frozen import frozen
from tidemark.dialects.bodies import array_of, body_of
from tidemark.dialects.raw_json import read_elements, read_members
from tidemark.dialects.responses.compaction import TRIGGER
from tidemark.dialects.responses.writing import NAMED
from tidemark.dialects.signed_thinking import object_in

_MEMBER = "encrypted_content"
_MARK = b'"encrypted_content"'
_KINDS = frozenset({"reasoning", "compaction", "compaction_summary", "context_compaction"})
_ABOUT_ITEMS = re.compile(
    rb"invalid_encrypted_content|thinking_signature_invalid|Invalid `?signature`? in `?thinking`? block"
    rb"|encrypted[ _]content[^{}]{0,300}(?:could not be (?:verified|decrypted)|was not issued to this caller)"
    rb"|could not decrypt the provided encrypted_content",
    re.IGNORECASE,
)
_NAME = re.compile(rb"encrypted content for item (\w{1,80})")
_ENDS = re.compile(rb"encrypted content (\S{2,8})\.\.\.(\S{2,8}) could not")
"""A refusal of an item without an id has the first and the last letters of its content."""


@frozen
class _Item:
    """An encrypted item."""

    sealed: str
    name: str
    is_reasoning: bool

    def is_named(self, refusal: bytes) -> bool:
        if name := _NAME.search(refusal):
            return self.name.encode() == name[1]
        ends, sealed = _ENDS.search(refusal), self.sealed.encode(errors="replace")
        return ends is not None and sealed.startswith(ends[1]) and sealed.endswith(ends[2])


def has_encrypted(body: bytes) -> bool:
    """Return whether there may be such items in these bytes, without a parse."""
    return _MARK in body


def refused_items(refusal: bytes, body: bytes, *, all_of_them: bool) -> Sequence[str]:
    """Return the encrypted contents of a body that a refusal is about; none if it is about something else.

    A refusal names one item. Those after it are taken for refused with it, and those before it for read: whoever
    changes the model or the key makes all later items with the new one.

    :param all_of_them: whether nothing is taken for read
    """
    if not (_ABOUT_ITEMS.search(refusal) and has_encrypted(body)):
        return ()
    items = [item for raw in _elements(read_members(body, bounded=False)) if (item := _encrypted(raw)) is not None]
    first = next((place for place, item in enumerate(items) if item.is_named(refusal) and not all_of_them), 0)
    return [item.sealed for item in items[first:]]


def without_items(body: bytes, left_out: Container[str]) -> bytes | None:
    """Return a body without some encrypted items; None if nothing would be left to answer.

    What was made behind reasoning that leaves goes out without its id: by that, a provider would look for the
    reasoning. Everything else keeps its bytes.

    :param left_out: their encrypted contents
    """
    fields = read_members(body, bounded=False)
    remaining: list[bytes] = []
    is_changed = is_orphan = has_words = False
    for raw in _elements(fields):
        item = _encrypted(raw)
        if item is not None and item.sealed in left_out:
            is_changed, is_orphan = True, is_orphan or item.is_reasoning
            continue
        if item is not None and item.is_reasoning:
            is_orphan = False
        has_words = has_words or not (TRIGGER.encode() in raw and object_in(raw).get("type") == TRIGGER)
        remaining.append(_unnamed(raw) if is_orphan else raw)
    if not is_changed:
        return body
    return body_of(fields, {"input": array_of(remaining)}) if has_words else None


def _elements(fields: Mapping[str, bytes]) -> Sequence[bytes]:
    array = fields.get("input", b"").strip()
    return read_elements(array) if array.startswith(b"[") else ()


def _encrypted(raw: bytes) -> _Item | None:
    if _MARK not in raw:
        return None
    members = object_in(raw)
    sealed, kind = members.get(_MEMBER), members.get("type")
    if not isinstance(sealed, str) or not sealed or kind not in _KINDS:
        return None
    return _Item(sealed, _text(members.get("id")), kind == "reasoning")


def _unnamed(raw: bytes) -> bytes:
    """Return an item of the assistant without its id, if it may go without."""
    if b'"id"' not in raw:
        return raw
    members = object_in(raw)
    if "id" not in members or kind_of(members) not in NAMED or members.get("role", "assistant") != "assistant":
        return raw
    return body_of({name: text for name, text in read_members(raw, bounded=False).items() if name != "id"}, {})


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""
