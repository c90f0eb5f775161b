"""Reads the elements of a Messages request for the parser (``dialects/request_parser.py``), and members beside them.

Source: Anthropic API reference, "Create a Message".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

from tidemark.core.conversation.messages import Message
from tidemark.dialects.members import token_bound
from tidemark.dialects.message_bytes import message_bytes
from tidemark.dialects.messages.message import read_element
from tidemark.dialects.raw_json import decode_value, read_elements

COMPACTION = "compact_"
"""Begins the type of an edit with which Anthropic summarizes a conversation itself ("Compaction")."""
Pieces = tuple[Message, ...]
"""The messages that one element is: tool results, and what stands beside them."""


class MessagesElements:
    """``ElementFormat`` of the Messages API: an element is one message or several."""

    member = "messages"
    billed: tuple[str, ...] = ("system", "tools", "tool_choice", "output_config", "output_format", "mcp_servers")
    moving_mark = b'"cache_control"'

    def read(self, raw: bytes, index: int) -> Pieces:
        return read_element(raw, index)

    def raws_of(self, array: bytes) -> list[bytes]:
        return read_elements(array)

    def messages_of(self, elements: list[Pieces]) -> list[Message]:
        return list(chain.from_iterable(elements))

    def continues(self, _message: Message, _element: Pieces) -> bool:
        """Return False: each element is whole."""
        return False

    def max_output(self, fields: dict[str, bytes]) -> int | None:
        """Read ``max_tokens``. The provider requires it; a request to count has none."""
        return token_bound(fields, "max_tokens")

    def size_of(self, element: Pieces) -> int:
        return sum(map(message_bytes, element))


def left_to_upstream(fields: Mapping[str, bytes], messages: Sequence[Message]) -> str:
    """Return why the provider is to compact the request itself; empty if it is not.

    Other edits of ``context_management`` only remove old thinking or tool results; Claude Code always sends one. A
    client that asks for summaries on demand sends ``compaction``, and each later request begins with the block.
    """
    if "compaction" in fields and fields["compaction"] != b"null":
        return "the request asks for a compaction"
    if messages and _is_compaction(messages[0]):
        return "the messages begin with the client's own compaction"
    raw = fields.get("context_management", b"")
    if COMPACTION.encode() not in raw:
        return ""
    value = decode_value(raw, "context_management")
    edits = value.get("edits") if isinstance(value, dict) else None
    for edit in edits if isinstance(edits, list) else ():
        kind = edit.get("type") if isinstance(edit, dict) else None
        if isinstance(kind, str) and kind.startswith(COMPACTION):
            return f"context_management has {kind}"
    return ""


def _is_compaction(message: Message) -> bool:
    """Return whether a message is what the provider wrote in place of earlier ones; it is never a user's."""
    if message.role != "assistant" or b"compaction" not in message.raw:
        return False
    value = decode_value(message.raw, "messages.0")
    blocks = value.get("content") if isinstance(value, dict) else None
    first = blocks[0] if isinstance(blocks, list) and blocks else None
    return isinstance(first, dict) and first.get("type") == "compaction"
