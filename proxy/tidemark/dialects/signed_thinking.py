"""What the dialects share of signed thinking: the prefix that it is bound to, and the words of refusals.

``ThinkingFormat`` of each dialect builds on it. Source: Anthropic's guide "Prefix checks on thinking blocks".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence

from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import JsonValue, sized_digest
from tidemark.core.conversation.thinking import BINDING, KEY_BYTES
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.bodies import array_of, body_of
from tidemark.dialects.raw_json import decode_value, read_elements, read_members

REMEMBERED = 20_000
"""Elements whose meaning is cached: each turn repeats those of the turn before."""
_MARK = "cache_control"
_PLACE = re.compile(rb"messages\.(\d{1,6})\.content")
_ABOUT_THINKING = re.compile(
    rb"bound to a different conversation|Invalid `?signature`? in `?thinking`? block"
    rb"|Invalid `?data`? in `?redacted_thinking`? block|thinking\.signature: Field required"
    rb"|`?redacted_thinking`? blocks in the latest assistant message cannot be modified"
)


class SignedThinking:
    """``ThinkingFormat`` of a dialect that has signed thinking from a bridge. Its state is a cache of digests.

    :param member: the request's array of messages
    :param head: the members beside it that thinking is bound to
    """

    is_native: bool = False
    beta: bytes = b"thinking-binding-controls-2026-08-01"

    def __init__(self, member: str, head: Sequence[str]) -> None:
        self.head = head
        self._member = member
        self._meanings: BoundedCache[bytes, bytes] = BoundedCache(REMEMBERED)

    def members(self, body: bytes) -> Mapping[str, bytes]:
        return read_members(body, bounded=False)

    def elements(self, fields: Mapping[str, bytes]) -> Sequence[bytes]:
        """Return the elements of a request's messages; none of a text in their place."""
        array = fields.get(self._member, b"").strip()
        return read_elements(array) if array.startswith(b"[") else []

    def joined(self, fields: Mapping[str, bytes], elements: Sequence[bytes]) -> bytes:
        """Write a body with other elements; empty ones are left out."""
        return body_of(fields, {self._member: array_of([element for element in elements if element])})

    def meaning(self, data: bytes) -> bytes:
        """Return a digest of a member or an element, whatever its cache marks and the writing of its JSON."""
        if not data:
            return b""
        raw = sized_digest(data, 16)
        meaning = self._meanings.get(raw)
        if meaning is None:
            meaning = digest_of_text(json.dumps(_plain(decode_value(data, self._member)), sort_keys=True))
            self._meanings.put(raw, meaning)
        return meaning

    def demanded(self, fields: Mapping[str, bytes], elements: Sequence[bytes]) -> int:
        """Return the end: the bridge asks for no thinking after calls that have lost theirs."""
        del fields
        return len(elements)

    def dropping(self, fields: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return the members as they are."""
        return fields

    def refused_place(self, body: bytes) -> int | None:
        """Return 0 for a refusal of thinking: the provider's places are not the dialect's."""
        return 0 if _ABOUT_THINKING.search(body) and b"thinking" in body else None

    def is_binding(self, body: bytes) -> bool:
        return BINDING in body


def named_place(body: bytes) -> int:
    """Return the place of the message that a refusal names."""
    match = _PLACE.search(body)
    return int(match[1]) if match else 0


def sealed_text(blocks: JsonValue) -> str:
    """Return the first signature or sealed thinking among blocks; empty if there is none.

    For thinking without any, as a stream leaves it that was stopped, its text.
    """
    unsigned = ""
    for block in blocks if isinstance(blocks, list) else ():
        if isinstance(block, dict) and block.get("type") in ("thinking", "redacted_thinking"):
            sealed = block.get("signature") or block.get("data")
            if isinstance(sealed, str):
                return sealed
            unsigned = unsigned or f"unsigned {block.get('thinking')}"
    return unsigned


def object_in(element: bytes) -> Mapping[str, JsonValue]:
    """Return an element as an object; an empty one if it is none."""
    try:
        value = decode_value(element, "messages")
    except InvalidRequest:
        return {}
    return value if isinstance(value, dict) else {}


def digest_of_text(text: str) -> bytes:
    """Return a digest of ``KEY_BYTES``."""
    return sized_digest(text.encode(errors="surrogatepass"), KEY_BYTES)


def _plain(value: JsonValue) -> JsonValue:
    """Return a value without cache marks, and with a block in place of a content that is a string."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    plain = {name: _plain(each) for name, each in value.items() if name != _MARK}
    if "role" in plain and isinstance(plain.get("content"), str):
        plain["content"] = [{"type": "text", "text": plain["content"]}]
    return plain
