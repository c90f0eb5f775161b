"""Renders what is stored of a tenant as objects of JSON, one for each element of a key.

``READERS`` and ``NOT_EXPORTED`` name every kind of key that may be a tenant's; ``export.py`` goes through the keys.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping

import msgspec

from tidemark.core.conversation.kept import KeptItem
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.errors import RecordUnreadable
from tidemark.core.frozen import frozen
from tidemark.features.conversations.conversation_json import counts_by_kind, unsupported_by_kind
from tidemark.features.tenants.traces import fields_of
from tidemark.store.answers import unpack_answer
from tidemark.store.codec import MOVED, Codec
from tidemark.store.elements import Element
from tidemark.store.kept_conversations import read_kept
from tidemark.store.places import FAMILY, KeyPlace
from tidemark.store.previews import read_preview
from tidemark.store.request_facts import unpack_requests
from tidemark.store.responses import read_response

JsonObject = dict[str, JsonValue]
Read = Callable[[Codec, Element, KeyPlace], JsonObject | None]
"""Returns what an element holds; None if it holds nothing of its own."""
_UNREADABLE = (RecordUnreadable, ValueError, KeyError, TypeError, AttributeError, zlib.error)
_SEALED_TEXTS = frozenset({b"model", b"name", b"sender"})
_PERIODS = {"m": "minute", "q": "quarter", "h": "hour"}
"""What a number since 1970 counts, by the kind of key."""


@frozen
class ValueReader:
    """How the elements of a kind of key are exported."""

    type: str
    """The ``type`` of the objects."""
    read: Read
    is_whole: bool = False
    """Whether all elements of a key are one object."""


def exported(codec: Codec, reader: ValueReader, element: Element, place: KeyPlace) -> JsonObject | None:
    """Return the object of an element; one that cannot be read says so.

    :raises EncryptionKeyLost: the tenant's key cannot be had, so the export would not be complete
    """
    head = _head(reader, place)
    try:
        fields = reader.read(codec, element, place)
    except _UNREADABLE as error:
        return {**head, "unreadable": str(error)}
    return None if fields is None else {**head, **fields}


def exported_whole(codec: Codec, reader: ValueReader, elements: list[Element], place: KeyPlace) -> JsonObject:
    """Return one object of all elements of a key."""
    whole = _head(reader, place)
    for element in elements:
        try:
            whole |= reader.read(codec, element, place) or {}
        except _UNREADABLE as error:
            whole[_text(element.place)] = f"unreadable: {error}"
    return whole


def _head(reader: ValueReader, place: KeyPlace) -> JsonObject:
    head: JsonObject = {"type": reader.type}
    if place.is_conversation:
        head["conversation"] = place.family + _text(place.rest)
    elif place.area == FAMILY:
        head["family"] = place.family
    return head


def json_of(raw: bytes) -> JsonValue:
    """Return the value of JSON; its text if Python cannot read it, such as a number of 5,000 digits."""
    try:
        value: JsonValue = json.loads(raw)
    except (ValueError, RecursionError):
        return raw.decode(errors="replace")
    return value


def _message_of(raw: bytes) -> JsonValue:
    """Return a message; one of the Responses API may be several items."""
    items = json_of(b"[" + raw + b"]")
    return items[0] if isinstance(items, list) and len(items) == 1 else items


def _text(value: bytes) -> str:
    """Return bytes as text, or in base64."""
    try:
        return value.decode()
    except ValueError:
        return base64.b64encode(value).decode()


def _message(codec: Codec, element: Element, place: KeyPlace) -> JsonObject | None:
    if element.value == MOVED:
        return None
    position = int(element.place)
    record = codec.unpack_message(element.value, position, b"", place.family)
    message = _message_of(record.raw)
    return {"position": position, "created_at": record.created_at, "tokens": record.tokens, "message": message}


def _system_message(codec: Codec, element: Element, place: KeyPlace) -> JsonObject:
    raw = codec.open(element.value, *place.sealed_as(element.place))
    return {"digest": element.place.hex(), "message": _message_of(raw)}


def _turn(codec: Codec, element: Element, place: KeyPlace) -> JsonObject | None:
    if element.value.endswith(MOVED):
        return None
    turn = codec.unpack_turn(element.value, place.family)
    systems: list[JsonValue] = [{"position": position, "digest": digest.hex()} for position, digest in turn.systems]
    return {**msgspec.structs.asdict(turn), "systems": systems}


def _summary(codec: Codec, element: Element, place: KeyPlace) -> JsonObject:
    return _summary_json(codec.unpack_summary(element.value, place.family))


def _summary_json(summary: PrefixSummary) -> JsonObject:
    lines = summary.masked.lines if summary.masked else ()
    return {
        "prefix": summary.prefix.hex(),
        "summarized_messages": summary.covered,
        "created_at": summary.created_at,
        "text": summary.text,
        "stated": summary.stated,
        "tokens": summary.tokens,
        "strategy": summary.made_by,
        "recipe": summary.recipe.key,
        "cause": summary.cause,
        "edited": summary.edited,
        "written_with": summary.written_with,
        "receipt": {**counts_by_kind(summary.receipt)},
        "unsupported": {**unsupported_by_kind(summary.receipt)},
        "results": [*summary.results],
        "masked_results": [{"position": place + 1, "line": line} for place, line in lines],
        "provider_form": [json_of(raw) for raw in summary.native.raws] if summary.native else None,
    }


def _preview(codec: Codec, element: Element, place: KeyPlace) -> JsonObject:
    preview, present = read_preview(codec, element.value, place.family)
    return {"preview": _summary_json(preview), "in_place_of": _summary_json(present)}


def _answer(codec: Codec, element: Element, place: KeyPlace) -> JsonObject:
    answer = unpack_answer(codec, element.value, place.family + place.rest.decode())
    headers: JsonValue = [[_text(name), _text(value)] for name, value in answer.headers]
    return {"status": answer.status, "headers": headers, "body": _text(answer.data)}


def _response(codec: Codec, element: Element, place: KeyPlace) -> JsonObject:
    stored = read_response(codec, element.place, element.value, place.family)
    if isinstance(stored, bytes):
        return {"member": element.place[1:].hex(), "value": json_of(stored)}
    members: JsonObject = {name: json_of(raw) for name, raw in stored.head.items() if raw}
    items: list[JsonValue] = [{"type": item.type, "id": item.id} for item in stored.items]
    fields = {"model": stored.model, "created_at": stored.created_at, "messages": stored.message_count}
    return {"id": stored.id, **fields, "members": members, "items": items}


def _openai_item(codec: Codec, element: Element, place: KeyPlace) -> JsonObject | None:
    item = read_kept(codec, element.place, element.value, f"tm:cv:{place.rest.decode()}")
    key: JsonObject = {"key": place.rest.decode()}
    if isinstance(item, KeptItem):
        return {**key, "id": item.id, "item": json_of(item.raw)}
    return None if item is None else {**key, **item}


def _record_field(codec: Codec, element: Element, place: KeyPlace) -> JsonObject:
    name, text = _text(element.place), _text(element.value)
    if element.place in _SEALED_TEXTS:
        text = codec.open_text(text, "c", place.family, name)
    return {name: text}


def _field(_: Codec, element: Element, __: KeyPlace) -> JsonObject:
    return {_text(element.place): _text(element.value)}


def _figures(_: Codec, element: Element, place: KeyPlace) -> JsonObject:
    return {"period": _PERIODS[place.kind], "number": int(place.rest.partition(b":")[0])} | _field(_, element, place)


def _entry(_: Codec, element: Element, __: KeyPlace) -> JsonObject:
    return {"entry": _text(element.place), "value": _text(element.value)}


def _sealed(codec: Codec, element: Element, place: KeyPlace) -> JsonObject:
    plain = codec.open(element.value, *place.sealed_as(element.place))
    return {"entry": _text(element.place), "value": json_of(plain)}


def _flush(codec: Codec, element: Element, __: KeyPlace) -> JsonObject:
    fields = fields_of(element)
    body = zlib.decompress(codec.open(fields[b"body"], "flush", fields[b"key"]))
    flush: JsonObject = {"at": float(fields[b"at"]), "flush": json_of(body)}
    if b"reason" in fields:
        flush["reason"] = _text(codec.open(fields[b"reason"], "flush reason", fields[b"key"]))
    return flush


def _requests(codec: Codec, element: Element, __: KeyPlace) -> JsonObject:
    """Return the requests of an entry of the log."""
    fields = fields_of(element)
    owner = _text(fields[b"o"])
    facts = unpack_requests(codec, owner, fields[b"f"])
    return {"requests": [{**msgspec.structs.asdict(fact), "newest": fact.newest.hex()} for fact in facts]}


READERS: Mapping[tuple[str, str], ValueReader] = {
    (FAMILY, "c"): ValueReader("conversation", _record_field, is_whole=True),
    (FAMILY, "y"): ValueReader("system_message", _system_message),
    (FAMILY, "m"): ValueReader("message", _message),
    (FAMILY, "v"): ValueReader("changed_answer", _message),
    (FAMILY, "t"): ValueReader("turn", _turn),
    (FAMILY, "z"): ValueReader("earlier_summary", _summary),
    (FAMILY, "j"): ValueReader("preview", _preview),
    (FAMILY, "p"): ValueReader("bill", _field, is_whole=True),
    (FAMILY, "o"): ValueReader("response", _response),
    (FAMILY, "k"): ValueReader("kept_answer", _answer),
    (FAMILY, "s"): ValueReader("summary", _summary),
    (FAMILY, "w"): ValueReader("prepared_summary", _summary),
    ("", "cv"): ValueReader("openai_conversation", _openai_item),
    ("", "ci"): ValueReader("openai_conversation_id", _entry),
    ("", "accounts"): ValueReader("shared_account", _entry),
    ("", "u"): ValueReader("stored_bytes", _field, is_whole=True),
    ("", "k"): ValueReader("calibration", _sealed),
    ("", "w"): ValueReader("learned_window", _sealed),
    ("requests", "s"): ValueReader("requests", _requests),
    **dict.fromkeys((("traffic", kind) for kind in "mqh"), ValueReader("figures", _figures, is_whole=True)),
    ("limits", "t"): ValueReader("tokens_of_the_day", _field, is_whole=True),
    ("flush", "s"): ValueReader("queued_flush", _flush),
    ("flush", "d"): ValueReader("dead_flush", _flush),
    ("flush", "o"): ValueReader("flush_note", _sealed),
    ("aside", ""): ValueReader("moved_aside", _entry),
}
"""By area and kind."""
_ID, _BRIEF = "ids of conversations, which are exported", "it holds for a minute or less, and no text"
NOT_EXPORTED: Mapping[tuple[str, str], str] = {
    **dict.fromkeys([(FAMILY, "h"), (FAMILY, "r"), (FAMILY, "q")], "hashes of messages, which are exported"),
    **dict.fromkeys([(FAMILY, kind) for kind in "aebdgn"], _ID),
    **dict.fromkeys([(FAMILY, "l"), (FAMILY, "f"), (FAMILY, "x"), (FAMILY, "u")], "numbers and times of locks"),
    **dict.fromkeys([("", "i"), ("", "d"), ("", "n"), ("", "o")], _ID),
    ("", "own"): "a digest of a response's id, whose response is exported",
    **dict.fromkeys([("", "uw"), ("limits", "r"), ("limits", "c"), ("events", "r")], _BRIEF),
    ("traffic", "n"): "when its newest figures are of, which are exported",
    ("events", "s"): "ids and counts of events, for ten minutes",
}
"""What may be a tenant's and is left out, by area and kind: why."""
