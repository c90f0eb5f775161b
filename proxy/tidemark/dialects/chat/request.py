"""Reads the elements of a chat completion request for the parser (``dialects/request_parser.py``): each is a message.

Source: OpenAI API reference, "Create chat completion".
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.conversation.messages import Message
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.chat.message import parse_message
from tidemark.dialects.json_bounds import MAX_PART_VALUES
from tidemark.dialects.members import token_bound
from tidemark.dialects.message_bytes import message_bytes
from tidemark.dialects.raw_json import decode_value, read_elements


class ChatElements:
    """``ElementFormat`` of chat completions: an element is a message."""

    member = "messages"
    billed: tuple[str, ...] = ("tools", "tool_choice", "functions", "function_call", "response_format")
    moving_mark = b""

    def read(self, raw: bytes, index: int) -> Message:
        return read_message(raw, index)

    def raws_of(self, array: bytes) -> list[bytes]:
        return read_elements(array)

    def messages_of(self, elements: list[Message]) -> list[Message]:
        return elements

    def continues(self, _message: Message, _element: Message) -> bool:
        """Return False: each message is whole."""
        return False

    def max_output(self, fields: dict[str, bytes]) -> int | None:
        """Read the longest reply that the client allows. ``max_completion_tokens`` wins over ``max_tokens``."""
        for name in ("max_completion_tokens", "max_tokens"):
            if name not in fields:
                continue
            if name == "max_tokens" and fields[name].strip() == b"-1":
                return None  # llama.cpp and clients of it write -1 for "no bound"
            bound = token_bound(fields, name)
            if bound is not None:
                return bound
        return None

    def size_of(self, element: Message) -> int:
        return message_bytes(element)


def read_messages(raws: Sequence[bytes]) -> tuple[Message, ...]:
    """Parse stored messages, without a cache, in any thread.

    :raises InvalidRequest: an element is not a message
    """
    return tuple([read_message(raw, index) for index, raw in enumerate(raws)])


def read_message(raw: bytes, index: int) -> Message:
    """Parse one message; ``index`` is its place in the request.

    :raises InvalidRequest: the element is not a message
    """
    where = f"messages.[{index}]"
    value = decode_value(raw, where, most_values=MAX_PART_VALUES)
    try:
        return parse_message(raw, value, index)
    except RecursionError as error:
        raise InvalidRequest(f"{where} is nested too deeply.", param=where, code="invalid_json") from error
