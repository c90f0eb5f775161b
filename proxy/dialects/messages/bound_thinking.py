"""Finds and removes signed thinking in requests of the Messages API, and says what it is bound to.

``pipeline/bound_thinking.py`` decides by it which thinking goes out. Source: Anthropic's guides "Prefix checks on
thinking blocks", "Adaptive thinking" and "Extended thinking".
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b

from proxy.core.bounded import BoundedCache
from proxy.core.conversation.messages import JsonValue
from proxy.core.conversation.stored_format import NO_CONTENT
from proxy.core.conversation.thinking import KEY_BYTES
from proxy.core.errors import InvalidRequest
from proxy.dialects.bodies import array_of, body_of, encode_json
from proxy.dialects.messages.blocks import REASONING
from proxy.dialects.messages.message import RESULT
from proxy.dialects.raw_json import decode_value, read_elements, read_members

REMEMBERED = 20_000
"""Elements whose meaning is cached: each turn repeats those of the turn before."""
_MARK = "cache_control"
_PLACE = re.compile(rb"messages\.(\d{1,6})\.content")
_WORDS = b"bound to a different conversation"


class MessagesThinking:
    """``ThinkingFormat`` of the Messages API. Its state is a cache of digests."""

    is_native: bool = True
    head: Sequence[str] = ("system", "tools")
    beta: bytes = b"thinking-binding-controls-2026-08-01"

    def __init__(self) -> None:
        self._meanings: BoundedCache[bytes, bytes] = BoundedCache(REMEMBERED)

    def is_in(self, data: bytes) -> bool:
        """Return whether there may be thinking in these bytes."""
        return b'thinking"' in data and (b'"signature"' in data or b'"redacted_thinking"' in data)

    def members(self, body: bytes) -> Mapping[str, bytes]:
        """Return the members of a request's body."""
        return read_members(body, bounded=False)

    def elements(self, fields: Mapping[str, bytes]) -> Sequence[bytes]:
        """Return the elements of a request's messages."""
        return read_elements(fields["messages"])

    def joined(self, fields: Mapping[str, bytes], elements: Sequence[bytes]) -> bytes:
        """Write a body with other elements."""
        return body_of(fields, {"messages": array_of(elements)})

    def key_of(self, element: bytes) -> bytes:
        """Return the digest of an answer's first signature or sealed thinking; empty where it has none."""
        if not self.is_in(element):
            return b""
        for block in _blocks_of(element):
            sealed = block.get("signature") or block.get("data") if block.get("type") in REASONING else None
            if isinstance(sealed, str):
                return _digest(sealed.encode(errors="surrogatepass"))
        return b""

    def without(self, element: bytes) -> bytes:
        """Return an answer without its thinking; all other blocks keep their bytes."""
        members = read_members(element, bounded=False)
        raws = read_elements(members["content"])
        remaining = [
            raw for raw, block in zip(raws, _blocks_of(element), strict=True) if block.get("type") not in REASONING
        ]
        if not remaining:
            remaining = [encode_json({"type": "text", "text": NO_CONTENT})]
        return body_of(members, {"content": array_of(remaining)})

    def meaning(self, data: bytes) -> bytes:
        """Return a digest of a member or an element, whatever its cache marks and the writing of its JSON."""
        raw = blake2b(data, digest_size=16).digest()
        meaning = self._meanings.get(raw)
        if meaning is None:
            meaning = _digest(json.dumps(_plain(decode_value(data, "messages")), sort_keys=True).encode())
            self._meanings.put(raw, meaning)
        return meaning

    def demanded(self, fields: Mapping[str, bytes], elements: Sequence[bytes]) -> int:
        """Return the place of the tool loop's first answer, where the request ends within one and thinks manually.

        Adaptive thinking, the only kind of most models that check, does not demand it.
        """
        end = len(elements)
        if self._thinking_of(fields).get("type") != "enabled":
            return end
        at = end
        while at >= 2 and _is_result(elements[at - 1]):  # a result, and the answer with its call
            at -= 2
        return at

    def dropping(self, fields: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return members that tell the upstream to drop invalid thinking."""
        thinking = {**self._thinking_of(fields), "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
        return {**fields, "thinking": encode_json(thinking)}

    def refused_place(self, body: bytes) -> int | None:
        """Return the place that a refusal names, where it is about thinking that stands behind another prefix."""
        if _WORDS not in body or b"thinking" not in body:
            return None
        match = _PLACE.search(body)
        return int(match[1]) if match else 0

    @staticmethod
    def _thinking_of(fields: Mapping[str, bytes]) -> Mapping[str, JsonValue]:
        value = decode_value(fields.get("thinking", b"{}"), "thinking")
        return value if isinstance(value, dict) else {}


def _blocks_of(element: bytes) -> Sequence[Mapping[str, JsonValue]]:
    """Return the content blocks of an answer; none of any other element."""
    try:
        value = decode_value(element, "messages")
    except InvalidRequest:
        return ()
    content = value.get("content") if isinstance(value, dict) and value.get("role") == "assistant" else None
    blocks = content if isinstance(content, list) else ()
    return [block if isinstance(block, dict) else {} for block in blocks]


def _is_result(element: bytes) -> bool:
    """Return whether a message has results of tools."""
    if RESULT.encode() not in element:
        return False
    value = decode_value(element, "messages")
    content = value.get("content") if isinstance(value, dict) else None
    blocks = content if isinstance(content, list) else ()
    return any(isinstance(block, dict) and block.get("type") == RESULT for block in blocks)


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


def _digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=KEY_BYTES).digest()
