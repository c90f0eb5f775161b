"""States for every kind of key which type it has, and how one element of it is read.

``examination.py`` applies the rules. Each reads with the code that the adapters use, so what passes here is what
requests can use. An element is an entry of a list, a field of a hash, a member of a set, or a whole string.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from typing import Literal

from tidemark.core.conversation.messages import DIGEST_BYTES
from tidemark.core.conversation.prefix import OWN_CHARACTERS, is_id
from tidemark.core.errors import RecordUnreadable
from tidemark.core.frozen import frozen
from tidemark.store.answers import unpack_answer
from tidemark.store.bills import TEXTS
from tidemark.store.codec import MOVED, Codec, unreadable
from tidemark.store.elements import Element
from tidemark.store.kept_conversations import read_kept
from tidemark.store.places import FAMILY, KeyPlace
from tidemark.store.previews import read_preview
from tidemark.store.references import RECIPE_BYTES
from tidemark.store.responses import read_response
from tidemark.store.schema import number_of

KeyType = Literal["string", "list", "hash", "set", "zset", "stream"]
Check = Callable[[Codec, Element, KeyPlace], object]
"""Reads an element; raises one of ``UNREADABLE`` if it cannot."""
UNREADABLE = (RecordUnreadable, ValueError, KeyError, TypeError, AttributeError, zlib.error)
"""What a check raises for an element that cannot be read."""
_REFERENCE_BYTES = 4 + DIGEST_BYTES + RECIPE_BYTES
_WHOLE_NUMBERS = frozenset(
    {b"base", b"count", b"tokens", b"turns", b"summaries", b"unheard", b"stem", b"idle", b"lent"}
)
_TIMES = frozenset({b"created", b"updated", b"last_summary", b"touched", b"dies"})
_SEALED_TEXTS = frozenset({b"model", b"name", b"sender"})


@frozen
class Rule:
    """How the keys of one kind are read."""

    type: KeyType
    check: Check
    is_positional: bool = False
    """Whether an element's place in its list means something, so that the others must not move."""


def _anything(_: Codec, element: Element, __: KeyPlace) -> None:
    """Accept any element: it counts only that there is one."""


def _own_id(_: Codec, element: Element, __: KeyPlace) -> None:
    own = element.value or element.place
    if len(own) != OWN_CHARACTERS or int(own, 16) < 0:
        raise unreadable("it is no part of a conversation's id")


def _conversation_id(_: Codec, element: Element, __: KeyPlace) -> None:
    if not is_id((element.value or element.place).decode()):
        raise unreadable("it is no conversation's id")


def _listed_id(_: Codec, element: Element, __: KeyPlace) -> None:
    float(element.value)
    if not is_id(element.place.decode()):
        raise unreadable("it is no conversation's id")


def _record_field(codec: Codec, element: Element, place: KeyPlace) -> None:
    if element.place in _WHOLE_NUMBERS:
        int(element.value)
    elif element.place in _TIMES:
        float(element.value)
    elif element.place in _SEALED_TEXTS:
        codec.open_text(element.value.decode(), "c", place.family, element.place.decode())


def _hashes(_: Codec, element: Element, __: KeyPlace) -> None:
    if len(element.value) % DIGEST_BYTES:
        raise unreadable("the last chain hash is cut")


def _message(codec: Codec, element: Element, place: KeyPlace) -> None:
    if element.value != MOVED:
        codec.unpack_message(element.value, 0, b"", place.family)


def _changed_answer(codec: Codec, element: Element, place: KeyPlace) -> None:
    codec.unpack_message(element.value, int(element.place), b"", place.family)


def _turn(codec: Codec, element: Element, place: KeyPlace) -> None:
    if element.value[DIGEST_BYTES:] != MOVED:
        codec.unpack_turn(element.value, place.family)


def _sealed(codec: Codec, element: Element, place: KeyPlace) -> None:
    codec.open(element.value, *place.sealed_as(element.place))


def _summary(codec: Codec, element: Element, place: KeyPlace) -> None:
    codec.unpack_summary(element.value, place.family)


def _reference(_: Codec, element: Element, __: KeyPlace) -> None:
    if len(element.value) < _REFERENCE_BYTES or (len(element.value) - _REFERENCE_BYTES) % DIGEST_BYTES:
        raise unreadable("a reference to a summary is cut")


def _preview(codec: Codec, element: Element, place: KeyPlace) -> None:
    read_preview(codec, element.value, place.family)


def _answer(codec: Codec, element: Element, place: KeyPlace) -> None:
    unpack_answer(codec, element.value, place.family + place.rest.decode())


def _response(codec: Codec, element: Element, place: KeyPlace) -> None:
    read_response(codec, element.place, element.value, place.family)


def _kept_conversation(codec: Codec, element: Element, place: KeyPlace) -> None:
    read_kept(codec, element.place, element.value, f"tm:cv:{place.rest.decode()}")


def _json(codec: Codec, element: Element, place: KeyPlace) -> None:
    if not isinstance(codec.unpack_json(element.value, *place.sealed_as(element.place)), dict):
        raise unreadable("it is no object")


def _schema(_: Codec, element: Element, __: KeyPlace) -> None:
    number_of(element.value)


def _number(_: Codec, element: Element, __: KeyPlace) -> None:
    float(element.value)


def _bill(_: Codec, element: Element, __: KeyPlace) -> None:
    if element.place not in TEXTS:
        float(element.value)


def _queued(codec: Codec, element: Element, __: KeyPlace) -> None:
    fields = dict(zip(element.fields[::2], element.fields[1::2], strict=True))
    zlib.decompress(codec.open(fields[b"body"], "flush", fields[b"key"]))
    if b"reason" in fields:
        codec.open(fields[b"reason"], "flush reason", fields[b"key"])
    float(fields[b"at"])


_FAMILY: Mapping[str, Rule] = {
    "c": Rule("hash", _record_field),
    "h": Rule("string", _hashes),
    "m": Rule("list", _message, is_positional=True),
    "t": Rule("list", _turn, is_positional=True),
    "y": Rule("hash", _sealed),
    "r": Rule("list", _reference),
    "a": Rule("string", _own_id),
    "e": Rule("set", _own_id),
    "n": Rule("string", _own_id),
    "s": Rule("string", _summary),
    "w": Rule("string", _summary),
    "q": Rule("list", _reference),
    "u": Rule("string", _number),
    "z": Rule("list", _summary),
    "j": Rule("list", _preview),
    "p": Rule("hash", _bill),
    "k": Rule("string", _answer),
    "l": Rule("string", _anything),
    "f": Rule("string", _number),
    "b": Rule("set", _own_id),
    "d": Rule("string", _own_id),
    "o": Rule("hash", _response),
    "g": Rule("list", _own_id),
    "v": Rule("hash", _changed_answer),
    "x": Rule("string", _number),
}
_FLUSH: Mapping[str, Rule] = {
    "s": Rule("stream", _queued),
    "d": Rule("stream", _queued),
    "k": Rule("string", _anything),
    "o": Rule("hash", _sealed),
    "a": Rule("hash", _number),
    "n": Rule("hash", _number),
    "l": Rule("string", _anything),
}
_MODELS: Mapping[str, Rule] = {
    "v": Rule("string", _anything),
    "s": Rule("string", _json),
    "a": Rule("hash", _json),
    "o": Rule("hash", _json),
    "r": Rule("hash", _json),
    "t": Rule("zset", _number),
    "k": Rule("hash", _json),
}
_OTHER: Mapping[str, Rule] = {
    "i": Rule("zset", _listed_id),
    "d": Rule("zset", _listed_id),
    "n": Rule("string", _conversation_id),
    "o": Rule("string", _anything),
    "ci": Rule("set", _anything),
    "cv": Rule("hash", _kept_conversation),
    "own": Rule("string", _anything),
    "accounts": Rule("hash", _number),
    "u": Rule("hash", _anything),
    "uw": Rule("string", _anything),
    "up": Rule("string", _number),
    "k": Rule("hash", _json),
    "w": Rule("hash", _sealed),
    "schema": Rule("string", _schema),
    "probe": Rule("string", _anything),
    "rotation": Rule("string", _anything),
    "doctor": Rule("string", _anything),
    "import": Rule("string", _anything),
}
_TRAFFIC: Mapping[str, Rule] = {
    **dict.fromkeys("mqh", Rule("hash", _number)),
    "n": Rule("zset", _number),
    **dict.fromkeys("bx", Rule("string", _number)),
}
_BILL: Mapping[str, Rule] = {
    "d": Rule("hash", _number),
    "b": Rule("string", _number),
}
_EVENTS: Mapping[str, Rule] = {
    "s": Rule("stream", _anything),
    "l": Rule("string", _anything),
    "r": Rule("hash", _anything),
}
_LIMITS: Mapping[str, Rule] = {
    "r": Rule("hash", _number),
    "c": Rule("zset", _number),
    "t": Rule("hash", _number),
}
_REQUESTS: Mapping[str, Rule] = {
    "s": Rule("stream", _anything),  # each page leaves out what it cannot read
    **dict.fromkeys("nbx", Rule("string", _number)),
}
_AUDIT: Mapping[str, Rule] = {
    "s": Rule("stream", _anything),  # "tidemark audit verify" reads it; a repair would look like a misuse
    "h": Rule("string", _anything),
}
RULES: Mapping[str, Mapping[str, Rule]] = {
    FAMILY: _FAMILY,
    "flush": _FLUSH,
    "models": _MODELS,
    "traffic": _TRAFFIC,
    "bill": _BILL,
    "events": _EVENTS,
    "limits": _LIMITS,
    "requests": _REQUESTS,
    "audit": _AUDIT,
    "": _OTHER,
}
"""The rules by area and kind."""
