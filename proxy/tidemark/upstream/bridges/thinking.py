"""Carries thinking over the bridges, so that it comes back to its provider with the calls it belongs to.

Claude refuses the result of a tool if the thinking before its call is missing. litellm returns the signed blocks in
``thinking_blocks``, a member of its own, and takes them back there. Responses have them sealed in a reasoning item.
DeepSeek and Moonshot sign nothing, and want the text of their reasoning back in ``reasoning_content``, which others
refuse; so it goes back only after a refusal has demanded it. Gemini demands the signature of each step's first call,
for which other dialects have no place, and takes a word in its stead. Source: Anthropic's guide "Extended thinking",
"Preserving thinking blocks"; litellm's guide "Thinking"; DeepSeek's guide "Thinking Mode", "Tool Calls"; Google's guide
"Thought signatures", "FAQs".
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping, Sequence
from typing import Literal

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.thinking import SEALED
from tidemark.dialects.raw_json import read_json
from tidemark.upstream.bridges.json_members import objects_of

KINDS = frozenset({"thinking", "redacted_thinking"})
Blocks = Sequence[Mapping[str, JsonValue]]
Demand = Literal["reasoning", "signatures"]
_DEMANDS: Mapping[Demand, re.Pattern[bytes]] = {
    "reasoning": re.compile(rb"reasoning_content\W.{0,200}(?:passed back|is missing)", re.DOTALL),
    "signatures": re.compile(rb"missing a \W{0,2}thought_signature"),
}
"""What a refusal says: DeepSeek's, then Moonshot's; Google's."""
DEMANDS = tuple(_DEMANDS)


def demand_of(refusal: bytes) -> Demand | None:
    """Return what an upstream misses in the answers of a request that it refuses; None if it is something else."""
    return next((demand for demand, words in _DEMANDS.items() if words.search(refusal)), None)


def sealed_blocks(blocks: Blocks) -> str:
    """Return blocks as the ``encrypted_content`` of a reasoning item."""
    return SEALED + base64.b64encode(json.dumps(blocks).encode()).decode()


def blocks_of(message: Message) -> Blocks:
    """Return the signed blocks in the client's bytes of an assistant's message, of either dialect."""
    if message.role != "assistant" or not (SEALED.encode() in message.raw or b"thinking" in message.raw):
        return ()
    values = read_json(b"[" + message.raw + b"]")  # the bytes are one message, or several items
    blocks: list[Mapping[str, JsonValue]] = []
    for value in objects_of(values):
        blocks += [block for block in objects_of(value.get("content")) if _is_signed(block)]
        sealed = value.get("encrypted_content")
        if isinstance(sealed, str) and sealed.startswith(SEALED):
            blocks += _opened(sealed)
    return blocks


def reasoning_of(message: Message) -> str:
    """Return the text of the unsigned thinking in the client's bytes of an assistant's message, of either dialect."""
    if not (b'"thinking"' in message.raw or b'"reasoning_text"' in message.raw):
        return ""
    values = read_json(b"[" + message.raw + b"]")
    texts: list[JsonValue] = []
    for value in objects_of(values):
        for part in objects_of(value.get("content")):
            if part.get("type") == "thinking" and not part.get("signature"):
                texts.append(part.get("thinking"))
            elif part.get("type") == "reasoning_text" and not value.get("encrypted_content"):
                texts.append(part.get("text"))
    return "".join([text for text in texts if isinstance(text, str)])


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
