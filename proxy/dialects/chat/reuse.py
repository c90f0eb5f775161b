"""Beginnings of long requests: of a body that goes on where an earlier one ended, only the end is parsed.

Beside ``body.py``, on the first step of the road of a request. A conversation grows at its end, so a turn's body begins
with the bytes of the turn before. They are compared, which costs a hundredth of parsing them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from threading import Lock

import msgspec

from proxy.core.conversation.messages import Message
from proxy.core.conversation.request import ReuseHints
from proxy.dialects.chat.message_bytes import message_bytes
from proxy.dialects.json_bounds import MAX_VALUES, check_values, is_utf8

LONG_BYTES = 16_384
"""A shorter body is parsed as quickly as it is found."""
MOST = 64
"""Beginnings that are kept, each of another conversation or fork."""

HINT_BYTES = 64
"""What steps of the road remember of a message: its tokens, and places in three tuples."""

_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_elements = msgspec.json.Decoder(list[msgspec.Raw])
_NAME = b'"messages"'
_OPENED = re.compile(rb'"messages"[ \t\n\r]*:[ \t\n\r]*\[')
_WRITTEN_OTHERWISE = (b"\\u006", b"\\u007")
"""Escapes of small letters: no encoder writes them, yet a name may be hidden in them."""
_SPACE = b" \t\n\r"
_KNOWN = b"null"
"""Stands for all known messages while the rest is parsed; no message is ``null``."""


@dataclass(frozen=True, slots=True, eq=False)
class KnownBody:
    """An earlier request, as far as a later one may begin with it."""

    text: bytes
    """Its body up to the end of its last message."""
    opened: int
    """Where its array of messages begins, after the bracket."""
    hints: ReuseHints
    held: int
    """Bytes of memory, the messages and what is found of them included."""


@dataclass(frozen=True, slots=True)
class Continued:
    """A body that goes on where a beginning ends."""

    beginning: KnownBody
    fields: dict[str, bytes]
    """All members; ``messages`` whole."""
    added: list[bytes]
    """The messages after the known ones, each in its own bytes."""
    end: int
    """Where the last message ends."""


class PrefixReuse:
    """The newest beginnings, the one that was used last first. Losing them costs time only.

    :param room_bytes: memory for all of them
    """

    def __init__(self, room_bytes: int) -> None:
        self.held = 0
        """Bytes that they take."""
        self._kept: list[KnownBody] = []
        """Never changed, but replaced, so that another thread may walk it."""
        self._changing = Lock()
        self._room = room_bytes

    def shared(self, body: bytes) -> KnownBody | None:
        """The longest beginning that a body shares; None where there is none, or the body is short."""
        if len(body) < LONG_BYTES:
            return None
        sharing = [one for one in self._kept if body.startswith(one.text)]
        return max(sharing, key=lambda one: len(one.text)) if sharing else None

    def begun(self, body: bytes, fields: dict[str, bytes], messages: tuple[Message, ...]) -> ReuseHints | None:
        """Keep a body that was parsed as a whole; its hints, where it is long."""
        if not LONG_BYTES <= len(body) <= self._room:
            return None
        array = fields["messages"]
        opened = next((found.end() for found in _OPENED.finditer(body) if body.startswith(array, found.end() - 1)), 0)
        if not opened:
            return None
        hints, end = ReuseHints(messages), _end(body, opened + len(array) - 2)
        made = KnownBody(body[:end], opened, hints, end + _held(messages))
        rest = continued(body, made)
        if rest is None or rest.added or rest.fields != fields:
            return None  # another place where the same bytes stand
        self._keep(made)
        return hints

    def grown(self, body: bytes, continued: Continued, messages: tuple[Message, ...]) -> ReuseHints:
        """Keep a body in the place of the beginning that it continued; its hints."""
        before, end = continued.beginning, continued.end
        known = len(before.hints.messages)
        hints = ReuseHints(messages, known, before.hints.facts)
        held = before.held + end - len(before.text) + _held(messages[known:])
        self._keep(KnownBody(body[:end], before.opened, hints, held), before)
        return hints

    def _keep(self, made: KnownBody, before: KnownBody | None = None) -> None:
        """Keep one, in the place of another one; two threads may each do so."""
        with self._changing:
            kept = [made, *(one for one in self._kept if one is not before)]
            self.held = sum([one.held for one in kept])
            while kept and (len(kept) > MOST or self.held > self._room):
                self.held -= kept.pop().held
            self._kept = kept


def _held(messages: Sequence[Message]) -> int:
    return sum([message_bytes(message) + HINT_BYTES for message in messages])


def unknown_bytes(body: bytes, shared: KnownBody | None) -> int:
    """How much of a body is still to be parsed when it begins with ``shared``."""
    return len(body) if shared is None else len(body) - len(shared.text) + shared.opened


def continued(body: bytes, beginning: KnownBody) -> Continued | None:
    """Parse what comes after a beginning that a body shares; None where that alone does not tell what the body says.

    :raises InvalidRequest: there is more in what is new than a body may hold
    """
    text, opened = beginning.text, beginning.opened
    if any(body.find(sign, len(text)) >= 0 for sign in (_NAME, *_WRITTEN_OTHERWISE)):
        return None  # of a name that stands twice the last one counts
    short = body[:opened] + _KNOWN + body[len(text) :]
    if not is_utf8(short):
        return None
    check_values(short, MAX_VALUES, "The body")
    try:
        fields = {name: bytes(raw) for name, raw in _members.decode(short).items()}
        array = fields.get("messages", b"")
        elements: Iterator[bytes] = map(bytes, _elements.decode(array))
        if not short.startswith(array, opened - 1) or next(elements, b"") != _KNOWN:
            return None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None  # the whole body is told what is wrong with it
    closed = opened - 1 + len(array) + len(body) - len(short)
    fields["messages"] = body[opened - 1 : closed]
    return Continued(beginning, fields, list(elements), _end(body, closed - 1))


def _end(body: bytes, end: int) -> int:
    """Where the last element before ``end`` ends."""
    while body[end - 1] in _SPACE:
        end -= 1
    return end
