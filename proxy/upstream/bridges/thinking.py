"""Carries signed thinking over the bridges, so that it comes back to its provider with the calls it belongs to.

Claude refuses the result of a tool where the thinking before its call is missing. litellm returns the signed blocks in
``thinking_blocks``, a member of its own, and takes them back there. Responses have them sealed in a reasoning item.
Source: Anthropic's guide "Extended thinking", "Preserving thinking blocks"; litellm's guide "Thinking".
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence

from proxy.core.conversation.messages import JsonValue, Message
from proxy.core.conversation.thinking import SEALED
from proxy.upstream.bridges.values import objects_of

KINDS = frozenset({"thinking", "redacted_thinking"})
Blocks = Sequence[Mapping[str, JsonValue]]


def sealed_blocks(blocks: Blocks) -> str:
    """Return blocks as the ``encrypted_content`` of a reasoning item."""
    return SEALED + base64.b64encode(json.dumps(blocks).encode()).decode()


def blocks_of(message: Message) -> Blocks:
    """Return the signed blocks in the client's bytes of an assistant's message, of either dialect."""
    if message.role != "assistant" or not (SEALED.encode() in message.raw or b"thinking" in message.raw):
        return ()
    try:
        values = json.loads(b"[" + message.raw + b"]")  # the bytes are one message, or several items
    except (ValueError, RecursionError):
        return ()
    blocks: list[Mapping[str, JsonValue]] = []
    for value in objects_of(values):
        blocks += [block for block in objects_of(value.get("content")) if _is_signed(block)]
        sealed = value.get("encrypted_content")
        if isinstance(sealed, str) and sealed.startswith(SEALED):
            blocks += _opened(sealed)
    return blocks


def joined_blocks(blocks: Blocks, pieces: Blocks) -> list[Mapping[str, JsonValue]]:
    """Return the blocks with the next pieces of a stream: texts grow, and a signature ends its block."""
    joined = list(blocks)
    for piece in pieces:
        last = joined[-1] if joined else {}
        if last.get("type") != "thinking" or last.get("signature") or piece.get("type") != "thinking":
            joined.append(piece)
            continue
        text = f"{last.get('thinking') or ''}{piece.get('thinking') or ''}"
        joined[-1] = {**last, "thinking": text, **({"signature": sign} if (sign := piece.get("signature")) else {})}
    return joined


def _opened(sealed: str) -> Blocks:
    try:
        return [block for block in objects_of(json.loads(base64.b64decode(sealed.removeprefix(SEALED)))) if block]
    except (ValueError, RecursionError):
        return ()


def _is_signed(block: Mapping[str, JsonValue]) -> bool:
    return block.get("type") in KINDS and bool(block.get("signature") or block.get("data"))
