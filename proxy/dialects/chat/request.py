"""Parses a chat completion request: a body's bytes become a ``ModelRequest``.

This is the first step of the pipeline. Every member and every message keeps its own bytes, so that unchanged parts are
forwarded as they came. A message that was parsed before is not parsed again, and large bodies are parsed in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from threading import Lock

from proxy.core.bounded import SizedCache
from proxy.core.conversation.messages import JsonValue, Message
from proxy.core.conversation.request import Dialect, ModelRequest
from proxy.core.errors import InvalidRequest
from proxy.dialects.chat.message import parse_message
from proxy.dialects.json_bounds import LIGHT_BYTES, MAX_PART_VALUES, check_messages
from proxy.dialects.json_steps import LARGE_BYTES
from proxy.dialects.members import flag_of, model_of
from proxy.dialects.message_bytes import message_bytes
from proxy.dialects.prefix_reuse import EarlierBody, PrefixReuse, count_new_bytes
from proxy.dialects.raw_json import decode_value, read_elements, read_members

COUNTED = ("tools", "tool_choice", "functions", "function_call", "response_format")
"""Members that the provider bills as input, besides the messages."""
_COUNTED = frozenset(COUNTED)
CACHE_BYTES = 64 * 1024 * 1024
"""Memory for parsed messages, enough for some hundred long conversations."""
REUSE_SHARE = 3
"""One part of so many is the most that earlier bodies and their messages take."""
MAX_OUTPUT_TOKENS = 100_000_000
"""A client that sends a larger reply length made a mistake."""


class RequestParser:
    """Parses chat requests, in any thread.

    Its state is the cache of messages, oldest first, and that of earlier bodies. A read takes no lock, because each
    step is one operation of a dict.
    """

    def __init__(self, dialect: Dialect, cache_bytes: int = CACHE_BYTES) -> None:
        self._dialect = dialect
        self._messages: SizedCache[bytes, Message] = SizedCache(cache_bytes, message_bytes)
        self._reuse = PrefixReuse("messages", cache_bytes // REUSE_SHARE)
        self._changing = Lock()

    async def parse(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> ModelRequest:
        """Parse a body as ``parse_now`` does, in a thread where much of it is new."""
        if len(body) <= LIGHT_BYTES:
            return self._parse(body, self._reuse.find(body), anonymous=anonymous, bounded=bounded)
        earlier = self._reuse.find(body)
        if count_new_bytes(body, earlier) <= LIGHT_BYTES:
            return self._parse(body, earlier, anonymous=anonymous, bounded=bounded)
        return await asyncio.to_thread(self._parse, body, earlier, anonymous=anonymous, bounded=bounded)

    def parse_now(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> ModelRequest:
        """Parse the body of ``POST /v1/chat/completions``.

        :param anonymous: whether the model may be missing, because nothing is forwarded
        :param bounded: whether the number of messages has a bound; stored conversations have none
        :raises InvalidRequest: with ``param`` and a stable ``code``, in OpenAI's words
        """
        return self._parse(body, self._reuse.find(body), anonymous=anonymous, bounded=bounded)

    def _parse(self, body: bytes, earlier: EarlierBody | None, *, anonymous: bool, bounded: bool) -> ModelRequest:
        continuation = None if earlier is None else self._reuse.read_continuation(body, earlier)
        fields = read_members(body, bounded=bounded, listed="messages") if continuation is None else continuation.fields
        model = "" if anonymous and "model" not in fields else model_of(fields)
        if continuation is None:
            messages = self._read_messages(fields, bounded=bounded)
            hints = self._reuse.add(body, fields, messages)
        else:
            earlier_messages = continuation.earlier.hints.messages
            if bounded:
                check_messages(len(earlier_messages) + len(continuation.new_messages), "messages")
            messages = (*earlier_messages, *self._parse_all(continuation.new_messages, len(earlier_messages)))
            hints = self._reuse.extend(body, continuation, messages)
        if self._messages.free < self._reuse.size_bytes:
            self._drop_oldest()
        stream, max_output_tokens = flag_of(fields, "stream"), _max_output(fields)
        counted: dict[str, JsonValue] = {}
        if not _COUNTED.isdisjoint(fields):
            counted = {name: decode_value(fields[name], name) for name in COUNTED if name in fields}
        return ModelRequest(body, fields, model, messages, self._dialect, stream, max_output_tokens, counted, hints)

    def _read_messages(self, fields: dict[str, bytes], *, bounded: bool) -> tuple[Message, ...]:
        """Read the member ``messages`` as a whole."""
        if "messages" not in fields:
            raise InvalidRequest(
                "Missing required parameter: 'messages'.", param="messages", code="missing_required_parameter"
            )
        try:
            raws = read_elements(fields["messages"])
        except (ValueError, RecursionError) as error:
            raise InvalidRequest("'messages' must be an array.", param="messages", code="invalid_type") from error
        if not raws:
            raise InvalidRequest("'messages' must hold at least one message.", param="messages", code="empty_array")
        if bounded:
            check_messages(len(raws), "messages")
        return tuple(self._parse_all(raws, 0))

    def _parse_all(self, raws: Sequence[bytes], first: int) -> list[Message]:
        """Parse messages; ``first`` is the place of the first one in the request."""
        get_cached, mark_newest = self._messages.get, self._messages.move_to_end
        messages: list[Message] = []
        for index, raw in enumerate(raws, first):
            message = get_cached(raw) if len(raw) < LARGE_BYTES else None
            if message is None:
                message = self._parse_new(raw, index)
            else:
                try:
                    mark_newest(raw)
                except KeyError:  # another thread has removed it
                    message = self._parse_new(raw, index)
            messages.append(message)
        return messages

    def _parse_new(self, raw: bytes, index: int) -> Message:
        """Parse a message and cache it."""
        message = _read(raw, index)
        if len(raw) >= LARGE_BYTES:
            return message  # a lookup in the cache would take as long as the parse
        with self._changing:
            if raw not in self._messages:
                self._messages.add(raw, message)
        if self._messages.free < self._reuse.size_bytes:
            self._drop_oldest()
        return message

    def _drop_oldest(self) -> None:
        """Remove the oldest messages until both caches keep within their memory."""
        while self._messages.free < self._reuse.size_bytes and self._messages:
            with self._changing:  # taken for each message, because another thread may wait
                self._messages.drop_oldest()


def read_messages(raws: Sequence[bytes]) -> tuple[Message, ...]:
    """Parse stored messages, without a cache, in any thread.

    :raises InvalidRequest: an element is not a message
    """
    return tuple([_read(raw, index) for index, raw in enumerate(raws)])


def _read(raw: bytes, index: int) -> Message:
    where = f"messages.[{index}]"
    value = decode_value(raw, where, most_values=MAX_PART_VALUES)
    try:
        return parse_message(raw, value, index)
    except RecursionError as error:
        raise InvalidRequest(f"{where} is nested too deeply.", param=where, code="invalid_json") from error


def _max_output(fields: dict[str, bytes]) -> int | None:
    """Read the longest reply that the client allows. ``max_completion_tokens`` wins over the older ``max_tokens``."""
    for name in ("max_completion_tokens", "max_tokens"):
        if name not in fields:
            continue
        value = decode_value(fields[name], name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidRequest(f"'{name}' must be a whole number.", param=name, code="invalid_type")
        if name == "max_tokens" and value == -1:
            return None  # llama.cpp and clients of it write -1 for "no bound"
        if not 0 <= value <= MAX_OUTPUT_TOKENS:
            raise InvalidRequest(f"'{name}' must be between 0 and the model's maximum, not {value}.", param=name)
        return value
    return None
