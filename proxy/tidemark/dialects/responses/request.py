"""Reads the items of a Responses request and the members beside them, for ``dialects/request_parser.py``.

Source: OpenAI API reference, "Create a model response".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.json_bounds import MAX_PART_VALUES
from tidemark.dialects.members import token_bound, wrong_type
from tidemark.dialects.message_bytes import ENTRY_BYTES, message_bytes
from tidemark.dialects.raw_json import decode_value, read_elements
from tidemark.dialects.responses.items import InputItem, as_piece, join_turn, messages_of, read_item

_OF_TURN = ("assistant", "tool")
"""Roles of the items that one reply may have."""
STANDS_IN = ("previous_response_id", "conversation", "prompt")
"""Members with which the provider has the conversation, so that ``input`` may be missing."""
COMPACTED_BY_PROVIDER = "the request asks the provider to compact (`{member}`)"
"""Why Tidemark leaves the context to the upstream."""


class InputItems:
    """``ElementFormat`` of Responses: an element is an item, and an assistant's turn is several."""

    member = "input"
    billed: tuple[str, ...] = ("instructions", "tools", "tool_choice", "text")
    moving_mark = b""

    def read(self, raw: bytes, index: int) -> InputItem:
        where = f"input[{index}]"
        value = decode_value(raw, where, most_values=MAX_PART_VALUES)
        try:
            return read_item(raw, value, where)
        except RecursionError as error:
            raise InvalidRequest(f"{where} is nested too deeply.", param=where, code="invalid_json") from error

    def raws_of(self, array: bytes) -> list[bytes]:
        """Return the items' bytes; a string is one message of the user."""
        if array.startswith(b'"'):
            return [b'{"role":"user","content":' + array + b"}"]
        return [] if array == b"null" else read_elements(array)

    def messages_of(self, elements: list[InputItem]) -> list[Message]:
        """Join the items of each turn."""
        return messages_of(elements)

    def continues(self, message: Message, element: InputItem) -> bool:
        """Return whether both are of the assistant, and so one message."""
        return message.role == "assistant" and element.pieces is not None

    def max_output(self, fields: Mapping[str, bytes]) -> int | None:
        return token_bound(fields, "max_output_tokens")

    def size_of(self, element: InputItem) -> int:
        """Return the memory that an item takes; its pieces share their texts with its message."""
        return message_bytes(element.message) + (ENTRY_BYTES if element.pieces else 0)


def earlier_response(fields: Mapping[str, bytes]) -> str | None:
    """Return the id of the response whose conversation the request goes on with (``previous_response_id``).

    :raises InvalidRequest: the member has another type
    """
    if "previous_response_id" not in fields:
        return None
    value = decode_value(fields["previous_response_id"], "previous_response_id")
    if value is not None and not isinstance(value, str):
        raise wrong_type("previous_response_id", "a string")
    return value or None


def left_to_upstream(fields: Mapping[str, bytes]) -> str:
    """Return why the provider is to compact the request itself; empty if Tidemark does it.

    Of ``context_management`` only an entry that compacts counts: clients send other edits with every request.
    """
    for name in ("truncation", "context_management"):
        if name in fields and _asks_to_compact(decode_value(fields[name], name)):
            return COMPACTED_BY_PROVIDER.format(member=name)
    return ""


def _asks_to_compact(value: JsonValue) -> bool:
    if isinstance(value, list):
        kinds = [entry.get("type") for entry in value if isinstance(entry, dict)]
        return any(isinstance(kind, str) and kind.startswith("compact") for kind in kinds)
    return value == "auto"


def read_stored(raws: Sequence[bytes]) -> tuple[Message, ...]:
    """Parse stored messages, each of which is the items of one turn, in any thread.

    :raises InvalidRequest: the bytes are not the items of one message
    """
    return tuple([_read_stored(raw, place) for place, raw in enumerate(raws)])


def _read_stored(raw: bytes, place: int) -> Message:
    try:
        elements = read_elements(b"[" + raw + b"]")
    except (ValueError, RecursionError) as error:
        raise InvalidRequest(f"input[{place}] is not JSON.", param=f"input[{place}]", code="invalid_json") from error
    reader = InputItems()
    items = [reader.read(element, place) for element in elements]
    messages = messages_of(items)
    if len(messages) > 1 and items[0].pieces is not None and all(item.message.role in _OF_TURN for item in items):
        return join_turn([item if item.pieces is not None else as_piece(item) for item in items])
    if len(messages) != 1:
        raise InvalidRequest(f"input[{place}] is not one message.", param=f"input[{place}]", code="invalid_type")
    return messages[0]
