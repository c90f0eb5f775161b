"""Finds and removes signed thinking in requests of the Messages API.

``pipeline/bound_thinking.py`` decides by it which thinking goes out. Source: Anthropic's guides "Prefix checks on
thinking blocks", "Adaptive thinking" and "Extended thinking".
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from tidemark.core.conversation.messages import NO_CONTENT, JsonValue
from tidemark.dialects.bodies import array_of, body_of, encode_json
from tidemark.dialects.messages.blocks import REASONING
from tidemark.dialects.messages.message import RESULT
from tidemark.dialects.raw_json import decode_value, read_elements, read_members
from tidemark.dialects.signed_thinking import SignedThinking, digest_of_text, named_place, object_in, sealed_text

_UNSIGNED = re.compile(rb'"type"[ \t\n\r]*:[ \t\n\r]*"thinking"')
"""Thinking whose signature never came, or was left out."""


class MessagesThinking(SignedThinking):
    """``ThinkingFormat`` of the Messages API."""

    is_native: bool = True

    def __init__(self) -> None:
        super().__init__("messages", ("system", "tools"))

    def is_in(self, data: bytes) -> bool:
        if b'thinking"' not in data:
            return False
        return b'"signature"' in data or b'"redacted_thinking"' in data or _UNSIGNED.search(data) is not None

    def key_of(self, element: bytes) -> bytes:
        """Return the digest of an answer's first signature or sealed thinking; empty if it has none."""
        sealed = sealed_text(_content_of(element)) if self.is_in(element) else ""
        return digest_of_text(sealed) if sealed else b""

    def without(self, element: bytes) -> bytes:
        """Return an answer without its thinking; all other blocks keep their bytes."""
        members = read_members(element, bounded=False)
        raws = read_elements(members["content"])
        blocks = _content_of(element)
        remaining = [raw for raw, block in zip(raws, blocks, strict=True) if not _is_thinking(block)]
        if not remaining:
            remaining = [encode_json({"type": "text", "text": NO_CONTENT})]
        return body_of(members, {"content": array_of(remaining)})

    def demanded(self, fields: Mapping[str, bytes], elements: Sequence[bytes]) -> int:
        """Return the place of the tool loop's first answer, if the request ends within one and thinks manually.

        Adaptive thinking, the only kind of most models that check, does not demand it.
        """
        first, is_in_loop = len(elements), False
        if self._thinking_of(fields).get("type") != "enabled":
            return first
        for place in range(len(elements) - 1, -1, -1):
            role = object_in(elements[place]).get("role")
            if is_in_loop and role == "assistant":
                first = place
            elif _is_result(elements[place]):
                is_in_loop = True
            elif role != "system":  # the question of the turn, or an answer that the client has begun
                break
        return first

    def dropping(self, fields: Mapping[str, bytes]) -> Mapping[str, bytes]:
        """Return members that tell the upstream to drop invalid thinking."""
        thinking = {**self._thinking_of(fields), "block_binding": {"prefix_mismatch_behavior": "drop_block"}}
        return {**fields, "thinking": encode_json(thinking)}

    def refused_place(self, body: bytes) -> int | None:
        return None if super().refused_place(body) is None else named_place(body)

    @staticmethod
    def _thinking_of(fields: Mapping[str, bytes]) -> Mapping[str, JsonValue]:
        value = decode_value(fields.get("thinking", b"{}"), "thinking")
        return value if isinstance(value, dict) else {}


def _content_of(element: bytes) -> list[JsonValue]:
    """Return the content blocks of an answer; none of any other element."""
    value = object_in(element)
    content = value.get("content") if value.get("role") == "assistant" else None
    return content if isinstance(content, list) else []


def _is_thinking(block: JsonValue) -> bool:
    return isinstance(block, dict) and block.get("type") in REASONING


def _is_result(element: bytes) -> bool:
    """Return whether a message has results of tools."""
    content = object_in(element).get("content") if RESULT.encode() in element else None
    blocks = content if isinstance(content, list) else ()
    return any(isinstance(block, dict) and block.get("type") == RESULT for block in blocks)
