"""Parses only the end of a long body that continues an earlier one, for every dialect.

Each dialect's parser calls it at the beginning of the pipeline. A conversation grows at its end, so the body of a turn
begins with the bytes of the turn before. To compare them takes a hundredth of the time of a parse (ADR 0011).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from threading import Lock

import msgspec

from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.request import ReuseHints
from tidemark.core.frozen import frozen
from tidemark.dialects.json_bounds import MAX_VALUES, check_values, is_utf8
from tidemark.dialects.message_bytes import message_bytes

LONG_BYTES = 16_384
"""A shorter body is parsed as quickly as an earlier one is looked up."""
MAX_BODIES = 64
"""Cached bodies, each of another conversation or fork."""
HINT_BYTES = 64
"""The memory of a message's hints: its tokens, and places in three tuples."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_ESCAPED_LETTERS = (b"\\u006", b"\\u007")
"""Escapes of small letters. No encoder writes them, but they could hide a second member of the same name."""
_SPACE = b" \t\n\r"
_PLACEHOLDER = b"null"
"""Stands for all earlier messages while the rest is parsed; no message is ``null``."""


@frozen(eq=False)
class EarlierBody:
    """An earlier body, up to the place where a later one may continue it."""

    prefix: bytes
    """The body up to the end of its last message."""
    array_start: int
    """The place after the bracket that opens the array of messages."""
    hints: ReuseHints
    message_count: int
    """How many messages of the hints the prefix has; the others may come back in other bytes."""
    size_bytes: int
    """The memory of the prefix, and of all messages of the hints."""
    changing_bytes: int = 0
    """The part of it that belongs to messages after the prefix."""


@frozen
class ChangingEnd:
    """The newest elements of a body whose bytes the client changes from turn to turn: it moves its cache marks."""

    raws: tuple[bytes, ...] = ()
    message_count: int = 0


ALL_STAYS = ChangingEnd()


@frozen
class Continuation:
    """A body that continues an earlier one."""

    earlier: EarlierBody
    fields: dict[str, bytes]
    """All members; that of the messages is whole."""
    new_messages: list[bytes]
    """The messages after the earlier ones, each in its own bytes."""
    end: int
    """The place after the last message."""


class PrefixReuse:
    """Caches the newest long bodies, the one that was used last first. To lose one costs time only.

    :param member: the member that has the messages, in ASCII letters
    :param max_bytes: memory for all cached bodies
    """

    def __init__(self, member: str, max_bytes: int) -> None:
        self.size_bytes = 0
        """The memory that the cached bodies take."""
        self._member = member
        self._name = b'"' + member.encode() + b'"'
        self._array = re.compile(self._name + rb"[ \t\n\r]*:[ \t\n\r]*\[")
        self._bodies: list[EarlierBody] = []
        """Replaced, never changed, so that another thread may walk over it."""
        self._changing = Lock()
        self._max_bytes = max_bytes

    def find(self, body: bytes) -> EarlierBody | None:
        """Return the earlier body with the longest prefix of this one; None for a short body."""
        if len(body) < LONG_BYTES:
            return None
        candidates = [earlier for earlier in self._bodies if body.startswith(earlier.prefix)]
        return max(candidates, key=lambda earlier: len(earlier.prefix)) if candidates else None

    def add(
        self, body: bytes, fields: dict[str, bytes], messages: tuple[Message, ...], changing: ChangingEnd = ALL_STAYS
    ) -> ReuseHints | None:
        """Cache a body that was parsed as a whole, and return its hints; None if it is not cached."""
        if not LONG_BYTES <= len(body) <= self._max_bytes or not messages:
            return None
        array = fields[self._member]
        matches = self._array.finditer(body)
        array_start = next((match.end() for match in matches if body.startswith(array, match.end() - 1)), 0)
        if not array_start:
            return None
        end = _end_before(body, array_start + len(array) - 2)
        end, count = _end_without(body, end, changing.raws), len(messages) - changing.message_count
        if end <= array_start:
            return None  # nothing of it will come back
        hints = ReuseHints(messages)
        changing_bytes = _size_of(messages[count:])
        size_bytes = end + _size_of(messages[:count]) + changing_bytes
        earlier = EarlierBody(body[:end], array_start, hints, count, size_bytes, changing_bytes)
        rest = self.read_continuation(body, earlier)
        if rest is None or rest.new_messages != list(changing.raws) or rest.fields != fields:
            return None  # the same bytes stand in another place of the body, too
        self._store(earlier)
        return hints

    def extend(
        self,
        body: bytes,
        continuation: Continuation,
        messages: tuple[Message, ...],
        changing: ChangingEnd = ALL_STAYS,
    ) -> ReuseHints:
        """Cache a body in the place of the one that it continues, and return its hints."""
        earlier, shared_count = continuation.earlier, continuation.earlier.message_count
        facts = earlier.hints.facts
        if shared_count < len(earlier.hints.messages):
            facts = facts.of_first(shared_count)
        hints, count = ReuseHints(messages, shared_count, facts), len(messages) - changing.message_count
        end = _end_without(body, continuation.end, changing.raws)
        changing_bytes = _size_of(messages[count:])
        size_bytes = earlier.size_bytes - earlier.changing_bytes + end - len(earlier.prefix)
        size_bytes += _size_of(messages[shared_count:count]) + changing_bytes
        newest = EarlierBody(body[:end], earlier.array_start, hints, count, size_bytes, changing_bytes)
        self._store(newest, earlier)
        return hints

    def read_continuation(self, body: bytes, earlier: EarlierBody) -> Continuation | None:
        """Parse what follows an earlier body's prefix; None if the whole body must be parsed.

        :raises InvalidRequest: the new part has more values than a body may have
        """
        prefix, array_start = earlier.prefix, earlier.array_start
        if any(body.find(sign, len(prefix)) >= 0 for sign in _ESCAPED_LETTERS):
            return None
        short = body[:array_start] + _PLACEHOLDER + body[len(prefix) :]
        if not is_utf8(short):
            return None
        check_values(short, MAX_VALUES, "The body")
        try:
            fields = {name: bytes(raw) for name, raw in _members.decode(short).items()}
            array = fields.get(self._member, b"")
            elements: Iterator[bytes] = map(bytes, _elements.decode(array))
            if not short.startswith(array, array_start - 1) or next(elements, b"") != _PLACEHOLDER:
                return None
            if body.find(self._name, len(prefix)) >= 0:
                rest = short[array_start - 1 + len(array) :]
                without = _members.decode(short[: array_start - 1] + _PLACEHOLDER + rest)
                if bytes(without[self._member]) != _PLACEHOLDER:
                    return None  # the body has the member twice: the last one counts, not the one at this place
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return None  # the parse of the whole body raises the right error
        array_end = array_start - 1 + len(array) + len(body) - len(short)
        fields[self._member] = body[array_start - 1 : array_end]
        return Continuation(earlier, fields, list(elements), _end_before(body, array_end - 1))

    def _store(self, newest: EarlierBody, replaced: EarlierBody | None = None) -> None:
        """Cache a body as the newest, in the place of another one. Threads may do so at the same time."""
        with self._changing:
            bodies = [newest, *(earlier for earlier in self._bodies if earlier is not replaced)]
            self.size_bytes = sum([earlier.size_bytes for earlier in bodies])
            while bodies and (len(bodies) > MAX_BODIES or self.size_bytes > self._max_bytes):
                self.size_bytes -= bodies.pop().size_bytes
            self._bodies = bodies


def count_new_bytes(body: bytes, earlier: EarlierBody | None) -> int:
    """Return how many bytes of a body are still to be parsed, given the earlier body that it continues."""
    return len(body) if earlier is None else len(body) - len(earlier.prefix) + earlier.array_start


def _size_of(messages: Sequence[Message]) -> int:
    return sum([message_bytes(message) + HINT_BYTES for message in messages])


def _end_before(body: bytes, end: int) -> int:
    """Return ``end`` without the white space before it: where the last element of an array ends."""
    while body[end - 1] in _SPACE:
        end -= 1
    return end


def _end_without(body: bytes, end: int, raws: Sequence[bytes]) -> int:
    """Return where the element before the last elements ends.

    :param end: where the last one ends
    :param raws: the last elements
    """
    for raw in reversed(raws):
        end = _end_before(body, end - len(raw))
        end = _end_before(body, end - 1) if body[end - 1 : end] == b"," else end
    return end
