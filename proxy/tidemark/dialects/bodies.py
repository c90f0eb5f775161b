"""Bodies written from raw members, so that every member that does not change keeps its bytes.

Each dialect writes the requests that go upstream with these functions.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.dialects.raw_json import read_json

_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Built once: an encoder takes as long to build as to write an item."""


def encode_json(value: JsonValue) -> bytes:
    """Write compact JSON in UTF-8; unpaired surrogates (halves of characters) become escapes, as UTF-8 has none."""
    try:
        return _encode(value).encode()
    except UnicodeEncodeError:
        return json.dumps(value, separators=(",", ":")).encode()


def answer_in(raw: bytes) -> dict[str, JsonValue] | None:
    """Return the members of a stored answer; None for any other message, and for what is no JSON."""
    message = read_json(raw) if b"assistant" in raw else None
    return message if isinstance(message, dict) and message.get("role") == "assistant" else None


def event_of(kind: str, body: bytes) -> bytes:
    """Write a named event of a stream.

    :param body: JSON without line ends
    """
    return b"event: " + kind.encode() + b"\ndata: " + body + b"\n\n"


def late_event(kind: str, body: bytes) -> bytes:
    """Write an event of a stream that has begun.

    It opens with an empty line of its own, so that it stands apart from an event that was cut short.
    """
    return b"\n\n" + event_of(kind, body)


def body_of(fields: Mapping[str, bytes], replaced: Mapping[str, bytes]) -> bytes:
    """Write an object of raw members; those in ``replaced`` take the place of the client's.

    Members keep the client's order; a replaced member that the client did not send comes last.
    """
    members = [json.dumps(key).encode() + b":" + replaced.get(key, raw) for key, raw in fields.items()]
    members += [json.dumps(key).encode() + b":" + raw for key, raw in replaced.items() if key not in fields]
    return b"{" + b",".join(members) + b"}"


def array_of(raws: Sequence[bytes]) -> bytes:
    """Write an array of raw elements."""
    return b"[" + b",".join(raws) + b"]"


def array_without(array: bytes, messages: Sequence[Message], places: Collection[int]) -> bytes:
    """Remove elements from a JSON array; each leaves with the comma and the white space before it.

    :param messages: the array's elements, whose ``raw`` stands in it byte for byte
    """
    ends: list[int] = [0]
    gaps: list[bytes] = []
    for message in messages:
        start = array.index(message.raw, ends[-1])
        gaps.append(array[ends[-1] : start])
        ends.append(start + len(message.raw))
    remaining = [place for place in range(len(messages)) if place not in places]
    pieces = [piece for place in remaining for piece in (gaps[place], messages[place].raw)]
    return b"".join([gaps[0], *pieces[1:], array[ends[-1] :]])


def paired(text: str) -> str:
    """Return the text; surrogates of one character that came in two pieces become a pair (RFC 8259, section 7)."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return text
