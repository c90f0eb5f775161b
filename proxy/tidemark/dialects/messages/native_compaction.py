"""Asks Anthropic for a summary, and reads the block that comes back: compaction on demand.

``pipeline/native_compaction.py`` calls it. The block must go back exactly as it came, first in ``messages``. Source:
Anthropic's guides "Compaction on demand", "Compaction that keeps recent turns", "Compaction and preserved thinking".
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.native import NativeAnswer
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.bodies import array_of, body_of, encode_json
from tidemark.dialects.messages.reply import INPUTS
from tidemark.dialects.raw_json import decode_value, read_elements, read_members

KIND = "compaction"
LEAST_TOKENS = 8192
"""The least ``max_tokens`` of the call: it bounds the summary and all thinking before it."""
_LEFT_OUT = (
    "compaction",
    "context_management",
    "max_tokens",
    "stop_sequences",
    "stream",
    "tool_choice",
    "output_format",
)
"""What the API refuses beside ``compaction``, and what is written anew; a ``tool_choice`` of ``auto`` says nothing."""
_START, _END = b'{"role":"assistant","content":', b"}"


class MessagesCompaction:
    """``NativeFormat`` of the Messages API."""

    path: str = "/messages"
    beta: bytes = b"compact-2026-09-04"
    stands_first: bool = True

    def asking(self, body: bytes, most_tokens: int) -> bytes:
        """Return the body of the request: it has the conversation's own members, ``system`` and ``tools`` too."""
        fields = read_members(body, bounded=False)
        members = {name: raw for name, raw in fields.items() if name not in _LEFT_OUT}
        config = _object(fields, "output_config")
        if "format" in config:
            members["output_config"] = encode_json({name: config[name] for name in config if name != "format"})
        tokens = max(LEAST_TOKENS, _number(decode_value(fields.get("max_tokens", b"0"), "max_tokens")))
        tokens = min(tokens, most_tokens) if most_tokens else tokens
        budget = _number(_object(fields, "thinking").get("budget_tokens"))
        members["max_tokens"] = str(max(tokens, budget + LEAST_TOKENS if budget else 0)).encode()
        return body_of(members, {"compaction": b'{"type":"summarize"}'})

    def may_carry(self, fields: Mapping[str, bytes]) -> bool:
        """Return whether no budget says what remains of it; the API refuses that beside a block."""
        budget = _object(fields, "output_config").get("task_budget")
        return not (isinstance(budget, dict) and "remaining" in budget)

    def read(self, body: bytes) -> NativeAnswer:
        """Read the answer, whose content is one block."""
        try:
            members = read_members(body, bounded=False)
            value = decode_value(members.get("stop_reason", b"null"), "stop_reason")
            raws = read_elements(members["content"])
            blocks = [decode_value(raw, "content") for raw in raws]
        except (InvalidRequest, KeyError):
            return NativeAnswer(reason="its answer is no message")
        usage = _counts(_object(members, "usage"))
        block = blocks[0] if len(blocks) == 1 else None
        text = block.get("content") if isinstance(block, dict) and block.get("type") == KIND else None
        if value != KIND or not isinstance(text, str) or not text.strip():
            return NativeAnswer(reason=f"it ended with {value!r} and no summary"[:100], usage=usage)
        return NativeAnswer((_START + array_of(raws) + _END,), text, usage=usage)

    def is_refused(self, body: bytes) -> bool:
        """Return whether a refusal names the block: its signature, its content, its place, or its kind."""
        return KIND.encode() in body


def _counts(usage: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the counts with those of the compaction itself, which the API reports as an iteration of its own."""
    iterations = usage.get("iterations")
    if not isinstance(iterations, list) or not iterations:
        return usage
    counts = [iteration for iteration in iterations if isinstance(iteration, dict)]
    return {name: sum(_number(count.get(name)) for count in counts) for name in (*INPUTS, "output_tokens")}


def _object(fields: Mapping[str, bytes], name: str) -> Mapping[str, JsonValue]:
    value = decode_value(fields[name], name) if name in fields else None
    return value if isinstance(value, dict) else {}


def _number(value: JsonValue) -> int:
    return value if isinstance(value, int) else 0
