"""Parses a body into a ``ModelRequest``, for every dialect. This is the first step of the pipeline.

Every member and every message keeps its own bytes, so that unchanged parts are forwarded as they came. An element that
was parsed before is not parsed again, and large bodies are parsed in a thread. What an element means is the dialect's
to say (``ElementFormat``).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from threading import Lock
from typing import Generic, Protocol, TypeVar

from tidemark.core.bounded import SizedCache
from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import Dialect, ModelRequest, ReuseHints
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.json_bounds import LIGHT_BYTES, check_messages
from tidemark.dialects.json_steps import LARGE_BYTES
from tidemark.dialects.members import flag_of, missing, model_of, wrong_type
from tidemark.dialects.prefix_reuse import (
    ALL_STAYS,
    ChangingEnd,
    Continuation,
    EarlierBody,
    PrefixReuse,
    count_new_bytes,
)
from tidemark.dialects.raw_json import decode_value, read_members

CACHE_BYTES = 64 * 1024 * 1024
"""Memory for parsed elements, enough for some hundred long conversations."""
MOST_ELEMENTS = 32_768
"""In the cache; a request has 20,000 at most. The garbage collector visits each one while no other thread runs: a
hundred thousand take some 30 ms. Only very short messages are so many."""
MOST_CHANGING = 8
"""Newest elements that may have a mark which moves. Clients mark the last one or two messages of the user."""
REUSE_SHARE = 3
"""One part of so many is the most that earlier bodies and their messages take."""
Element = TypeVar("Element")
"""What an element of the member with the messages is parsed into, before elements become messages."""


class ElementFormat(Protocol[Element]):
    """How a dialect reads the elements of its array, and the members beside it. It has no state."""

    member: str
    """The member with the array: ``messages``."""
    billed: tuple[str, ...]
    """Members that the provider bills as input, besides the array."""
    moving_mark: bytes
    """Bytes that clients move from element to element as a conversation grows, such as a cache mark; empty for none."""

    def read(self, raw: bytes, index: int) -> Element:
        """Parse one element.

        :param index: its place in the array, for the error's ``param``
        :raises InvalidRequest: it is none of this dialect's
        """
        ...

    def raws_of(self, array: bytes) -> list[bytes]:
        """Return the elements of the member's raw value.

        :raises ValueError, RecursionError: the value is not an array
        """
        ...

    def messages_of(self, elements: list[Element]) -> list[Message]:
        """Return the messages that consecutive elements are; an element may be several, or a part of one."""
        ...

    def continues(self, message: Message, element: Element, /) -> bool:
        """Return whether an element belongs to the message before it, so that both must be read together."""
        ...

    def max_output(self, fields: dict[str, bytes]) -> int | None:
        """Read the longest reply that the client allows, in tokens.

        :raises InvalidRequest: the member has another type
        """
        ...

    def size_of(self, element: Element) -> int:
        """Return the memory that a cached element takes."""
        ...


class RequestParser(Generic[Element]):
    """Parses requests of one dialect, in any thread.

    Its state is the cache of elements, oldest first, and that of earlier bodies. A read takes no lock, because each
    step is one operation of a dict.

    :param stands_in: members with which the array may be missing or empty, because the provider has the conversation
    """

    def __init__(
        self,
        dialect: Dialect,
        elements: ElementFormat[Element],
        cache_bytes: int = CACHE_BYTES,
        stands_in: tuple[str, ...] = (),
    ) -> None:
        self._dialect = dialect
        self._stands_in = stands_in
        self._format = elements
        self._billed = frozenset(elements.billed)
        self._elements: SizedCache[bytes, Element] = SizedCache(cache_bytes, elements.size_of)
        self._reuse = PrefixReuse(elements.member, cache_bytes // REUSE_SHARE)
        self._changing = Lock()

    async def parse(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> ModelRequest:
        """Parse a body as ``parse_now`` does, in a thread if much of it is new."""
        if len(body) <= LIGHT_BYTES:
            return self._parse(body, self._reuse.find(body), anonymous=anonymous, bounded=bounded)
        earlier = self._reuse.find(body)
        if count_new_bytes(body, earlier) <= LIGHT_BYTES:
            return self._parse(body, earlier, anonymous=anonymous, bounded=bounded)
        return await asyncio.to_thread(self._parse, body, earlier, anonymous=anonymous, bounded=bounded)

    def parse_now(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> ModelRequest:
        """Parse the body of a request.

        :param anonymous: whether the model may be missing, because nothing is forwarded
        :param bounded: whether the number of messages has a bound; stored conversations have none
        :raises InvalidRequest: with ``param`` and a stable ``code``, in OpenAI's words
        """
        return self._parse(body, self._reuse.find(body), anonymous=anonymous, bounded=bounded)

    def _parse(self, body: bytes, earlier: EarlierBody | None, *, anonymous: bool, bounded: bool) -> ModelRequest:
        elements = self._format
        continuation = None if earlier is None else self._reuse.read_continuation(body, earlier)
        if continuation is None:
            fields = read_members(body, bounded=bounded, listed=elements.member)
        else:
            fields = continuation.fields
        model = "" if anonymous and "model" not in fields else model_of(fields)
        messages: tuple[Message, ...] = ()
        hints: ReuseHints | None = None
        if continuation is not None:
            new = self._read_new(continuation, bounded=bounded)
            if new is not None:
                first = continuation.earlier.hints.messages[: continuation.earlier.message_count]
                messages = (*first, *elements.messages_of(new))
                changing = self._changing_end(continuation.new_messages, new)
                hints = self._reuse.extend(body, continuation, messages, changing)
            else:
                fields = read_members(body, bounded=bounded, listed=elements.member)
        if not messages:
            raws = self._read_raws(fields, bounded=bounded)
            read = self._parse_all(raws, 0)
            messages = tuple(elements.messages_of(read))
            hints = self._reuse.add(body, fields, messages, self._changing_end(raws, read))
        if self._elements.free < self._reuse.size_bytes:
            self._drop_oldest()
        stream, max_output_tokens = flag_of(fields, "stream"), elements.max_output(fields)
        billed: dict[str, JsonValue] = {}
        if not self._billed.isdisjoint(fields):
            billed = {name: decode_value(fields[name], name) for name in elements.billed if name in fields}
        return ModelRequest(body, fields, model, messages, self._dialect, stream, max_output_tokens, billed, hints)

    def _read_new(self, continuation: Continuation, *, bounded: bool) -> list[Element] | None:
        """Return the new elements of a body that continues an earlier one.

        None if the first new element belongs to the last earlier message, or if an element cannot be read: the
        parse of the whole array knows its place.
        """
        earlier = continuation.earlier
        if bounded:
            check_messages(earlier.message_count + len(continuation.new_messages), self._format.member)
        try:
            new = self._parse_all(continuation.new_messages, earlier.message_count)
        except InvalidRequest:
            return None
        if new and self._format.continues(earlier.hints.messages[earlier.message_count - 1], new[0]):
            return None
        return new

    def _changing_end(self, raws: Sequence[bytes], elements: list[Element]) -> ChangingEnd:
        """Return the newest elements, from the first one with a mark that the client will move."""
        mark = self._format.moving_mark
        if not mark:
            return ALL_STAYS
        newest = range(max(len(raws) - MOST_CHANGING, 0), len(raws))
        first = next((place for place in newest if mark in raws[place]), len(raws))
        return ChangingEnd(tuple(raws[first:]), len(self._format.messages_of(elements[first:])))

    def _read_raws(self, fields: dict[str, bytes], *, bounded: bool) -> list[bytes]:
        """Return the elements of the member with the messages."""
        member = self._format.member
        may_be_empty = any(fields.get(name, b"null") != b"null" for name in self._stands_in)
        if member not in fields:
            if may_be_empty:
                return []
            raise missing(member)
        try:
            raws = self._format.raws_of(fields[member])
        except (ValueError, RecursionError) as error:
            raise wrong_type(member, "an array") from error
        if not raws and not may_be_empty:
            raise InvalidRequest(f"'{member}' must hold at least one message.", param=member, code="empty_array")
        if bounded:
            check_messages(len(raws), member)
        return raws

    def _parse_all(self, raws: Sequence[bytes], first: int) -> list[Element]:
        """Parse elements; ``first`` is the place of the first one in the request."""
        get_cached, mark_newest = self._elements.get, self._elements.move_to_end
        elements: list[Element] = []
        for index, raw in enumerate(raws, first):
            element = get_cached(raw) if len(raw) < LARGE_BYTES else None
            if element is None:
                element = self._parse_new(raw, index)
            else:
                try:
                    mark_newest(raw)
                except KeyError:  # another thread has removed it
                    element = self._parse_new(raw, index)
            elements.append(element)
        return elements

    def _parse_new(self, raw: bytes, index: int) -> Element:
        element = self._format.read(raw, index)
        if len(raw) >= LARGE_BYTES:
            return element  # a lookup in the cache would take as long as the parse
        with self._changing:
            if raw not in self._elements:
                self._elements.add(raw, element)
        if self._elements.free < self._reuse.size_bytes or len(self._elements) > MOST_ELEMENTS:
            self._drop_oldest()
        return element

    def _drop_oldest(self) -> None:
        """Remove the oldest elements until both caches keep within their bounds."""
        while self._elements and (self._elements.free < self._reuse.size_bytes or len(self._elements) > MOST_ELEMENTS):
            with self._changing:  # taken for each element, because another thread may wait
                self._elements.drop_oldest()
