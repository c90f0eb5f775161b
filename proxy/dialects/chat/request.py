"""The first step on the road of a request: a body's bytes become a ``ModelRequest``.

Every member and every message keeps its own bytes, so that what is not changed is forwarded as it came. A message that
was seen before is not parsed again, and what takes long is parsed in a thread.
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
from proxy.dialects.chat.message_bytes import message_bytes
from proxy.dialects.chat.reuse import KnownBody, PrefixReuse, continued, unknown_bytes
from proxy.dialects.json_bounds import LIGHT_BYTES, MAX_PART_VALUES, check_messages
from proxy.dialects.json_steps import LARGE_BYTES
from proxy.dialects.members import flag_of, model_of
from proxy.dialects.raw_json import decode_value, read_elements, read_members

COUNTED = ("tools", "tool_choice", "functions", "function_call", "response_format")
"""Members beside the messages that the provider bills as input."""
_COUNTED = frozenset(COUNTED)
CACHE_BYTES = 64 * 1024 * 1024
"""Memory for messages that were parsed, all of it counted; some hundred long conversations."""
BEGINNINGS_SHARE = 3
"""At most one part of so many is for beginnings of long requests, and the messages that they hold."""
MAX_OUTPUT_TOKENS = 100_000_000
"""Above this a reply length is a slip, not a wish."""


class RequestParser:
    """Parses chat requests, in any thread.

    The mutable state is the cache of messages, oldest first, and that of beginnings. Reading takes no lock, since each
    step is one operation of a dict.
    """

    def __init__(self, dialect: Dialect, cache_bytes: int = CACHE_BYTES) -> None:
        self._dialect = dialect
        self._messages: SizedCache[bytes, Message] = SizedCache(cache_bytes, message_bytes)
        self._beginnings = PrefixReuse(cache_bytes // BEGINNINGS_SHARE)
        self._changing = Lock()

    async def parse(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> ModelRequest:
        """The same as ``parse_now``, in a thread where much of the body is new."""
        if len(body) <= LIGHT_BYTES:
            return self._parse(body, self._beginnings.shared(body), anonymous=anonymous, bounded=bounded)
        shared = self._beginnings.shared(body)
        if unknown_bytes(body, shared) <= LIGHT_BYTES:
            return self._parse(body, shared, anonymous=anonymous, bounded=bounded)
        return await asyncio.to_thread(self._parse, body, shared, anonymous=anonymous, bounded=bounded)

    def parse_now(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> ModelRequest:
        """Parse the body of ``POST /v1/chat/completions``.

        :param anonymous: whether ``model`` may be left out, where nothing is forwarded
        :param bounded: whether there is a bound on messages; none on those that the store has
        :raises InvalidRequest: with ``param`` and a stable ``code``, as OpenAI words it
        """
        return self._parse(body, self._beginnings.shared(body), anonymous=anonymous, bounded=bounded)

    def _parse(self, body: bytes, shared: KnownBody | None, *, anonymous: bool, bounded: bool) -> ModelRequest:
        going_on = None if shared is None else continued(body, shared)
        fields = read_members(body, bounded=bounded, listed="messages") if going_on is None else going_on.fields
        model = "" if anonymous and "model" not in fields else model_of(fields)
        if going_on is None:
            messages = self._all_messages(fields, bounded=bounded)
            parsed = self._beginnings.begun(body, fields, messages)
        else:
            known = going_on.beginning.hints.messages
            if bounded:
                check_messages(len(known) + len(going_on.added), "messages")
            messages = (*known, *self._parsed(going_on.added, len(known)))
            parsed = self._beginnings.grown(body, going_on, messages)
        if self._messages.free < self._beginnings.held:
            self._make_room()
        stream, max_output_tokens = flag_of(fields, "stream"), _max_output(fields)
        counted: dict[str, JsonValue] = {}
        if not _COUNTED.isdisjoint(fields):
            counted = {name: decode_value(fields[name], name) for name in COUNTED if name in fields}
        return ModelRequest(body, fields, model, messages, self._dialect, stream, max_output_tokens, counted, parsed)

    def _all_messages(self, fields: dict[str, bytes], *, bounded: bool) -> tuple[Message, ...]:
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
        return tuple(self._parsed(raws, 0))

    def _parsed(self, raws: Sequence[bytes], first: int) -> list[Message]:
        """Messages from their bytes; ``first`` is the place of the first one in the request."""
        known, used = self._messages.get, self._messages.move_to_end
        messages: list[Message] = []
        for index, raw in enumerate(raws, first):
            message = known(raw) if len(raw) < LARGE_BYTES else None
            if message is None:
                message = self._message(raw, index)
            else:
                try:
                    used(raw)
                except KeyError:  # another thread has made room by it
                    message = self._message(raw, index)
            messages.append(message)
        return messages

    def _message(self, raw: bytes, index: int) -> Message:
        message = _read(raw, index)
        if len(raw) >= LARGE_BYTES:
            return message  # to look it up would take as long as to read it
        with self._changing:
            if raw not in self._messages:
                self._messages.add(raw, message)
        if self._messages.free < self._beginnings.held:
            self._make_room()
        return message

    def _make_room(self) -> None:
        while self._messages.free < self._beginnings.held and self._messages:
            with self._changing:  # for each by itself: another thread may wait
                self._messages.drop_oldest()


def read_messages(raws: Sequence[bytes]) -> tuple[Message, ...]:
    """Messages from their bytes, without a cache: for what is read of the store, in any thread.

    :raises InvalidRequest: one is no message
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
    """The reply length that is asked for: ``max_completion_tokens`` goes before the older ``max_tokens``."""
    for name in ("max_completion_tokens", "max_tokens"):
        if name not in fields:
            continue
        value = decode_value(fields[name], name)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int):
            raise InvalidRequest(f"'{name}' must be a whole number.", param=name, code="invalid_type")
        if name == "max_tokens" and value == -1:
            return None  # llama.cpp and its kin write -1 for "no bound"
        if not 0 <= value <= MAX_OUTPUT_TOKENS:
            raise InvalidRequest(f"'{name}' must be between 0 and the model's maximum, not {value}.", param=name)
        return value
    return None
