"""Decodes JSON with very long strings in steps, so that the event loop can run between them.

Dialects call it through ``raw_json.py``, in a thread. A decoder keeps the interpreter (the GIL) from the start of a
value to its end: a tenth of a second for a text of 60 MB. Therefore long strings are replaced by short names before the
rest is decoded. They are decoded in pieces, and take the places of their names in the decoded value.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from io import BytesIO
from sys import getsizeof

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.json_bounds import STEP_BYTES, end_of_string

LARGE_BYTES = 2_097_152
"""Smaller values are decoded at once."""
MAX_STRING_BYTES = 67_108_864
"""The memory that one string may take. 64 million ASCII characters, or 16 million if one of them is an emoji. OpenAI
accepts 10 million characters in one text; images as base64 are ASCII."""
JOINED_PIECES = 128
"""Pieces of a text that are joined in one call. They have 16 MB at most, which take 20 milliseconds; 60 MB take 40.
With few pieces in each call, the growing text would be copied many times."""
_SAFE = re.compile(rb'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+', re.DOTALL)
"""Contents of a string that end at no unfinished escape."""
_LOW_SURROGATE = re.compile(rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_MARK = re.compile(rb'["{}\[\]]')
_SCALAR = re.compile(rb"[^ \t\n\r,\]}]*")
Decode = Callable[[bytes], JsonValue]


def decode_in_steps(raw: bytes, decode: Decode) -> JsonValue:
    """Return what ``decode`` returns for a value, with the same errors.

    :raises InvalidRequest: a string takes more memory than ``MAX_STRING_BYTES``
    """
    if len(raw) < LARGE_BYTES:
        return decode(raw)
    rest: list[bytes] = []
    places: list[tuple[int, int]] = []
    at = 0
    for start, end in _strings(raw):
        if end - start > STEP_BYTES:
            rest.append(slice_in_steps(raw, at, start + 1))
            places.append((start + 1, end - 1))
            at = end - 1
    rest.append(slice_in_steps(raw, at, len(raw)))
    name = b"long"
    while any(name in piece for piece in rest):
        name += b"-"
    names = [b"%b%d" % (name, number) for number in range(len(places))]
    value = decode(b"".join([piece for pair in zip(rest, [*names, b""], strict=True) for piece in pair]))
    texts = [_decode_text(raw, start, end, decode) for start, end in places]
    return _with_texts(value, {name.decode(): text for name, text in zip(names, texts, strict=True)})


def slice_in_steps(raw: bytes, start: int, end: int) -> bytes:
    """Return ``raw[start:end]``. One copy of 60 MB would keep the interpreter for 40 milliseconds."""
    if end - start < LARGE_BYTES:
        return raw[start:end]
    copy = BytesIO()  # its value is not copied once more
    with memoryview(raw) as view:
        for at in range(start, end, STEP_BYTES):
            copy.write(view[at : min(at + STEP_BYTES, end)])
    return copy.getvalue()


def end_of_value(raw: bytes, at: int) -> int:
    """Return the place after the value that begins at ``at``, without a check whether the value is JSON.

    :raises ValueError: the value has no end
    """
    if raw[at : at + 1] not in (b'"', b"{", b"["):
        scalar = _SCALAR.match(raw, at)
        return scalar.end() if scalar else at
    depth = 0
    while at < len(raw):
        mark = _MARK.search(raw, at, at + STEP_BYTES)
        if mark is None:
            at += STEP_BYTES
            continue
        at = mark.end()
        if mark[0] == b'"':
            at = end_of_string(raw, at)
        else:
            depth += 1 if mark[0] in b"{[" else -1
        if depth <= 0:
            return at
    raise ValueError("a value has no end")


def _strings(raw: bytes) -> Iterator[tuple[int, int]]:
    """Yield where each string begins and ends, quotation marks included."""
    start = raw.find(b'"')
    while start >= 0:
        end = end_of_string(raw, start + 1)
        yield start, end
        start = raw.find(b'"', end)


def _decode_text(raw: bytes, at: int, end: int, decode: Decode) -> str:
    """Decode a string's contents in pieces. No piece ends inside a character, an escape or a surrogate pair.

    :raises InvalidRequest: the pieces take more memory together than ``MAX_STRING_BYTES``
    """
    pieces: list[str] = []
    characters, width = 0, 1
    while at < end:
        safe = _SAFE.match(raw, at, min(at + STEP_BYTES, end))
        stop = safe.end() if safe else at
        while stop > at and stop < end and raw[stop] & 0xC0 == 0x80:
            stop -= 1
        low = _LOW_SURROGATE.match(raw, stop, end)
        stop = low.end() if low else stop
        stop = end if stop == at else stop  # an invalid escape: the decoder raises the error
        piece = str(decode(b'"%b"' % raw[at:stop]))
        pieces.append(piece)
        characters, width = characters + len(piece), max(width, _width(piece))
        if characters * width > MAX_STRING_BYTES:
            raise _too_long(MAX_STRING_BYTES // width)
        at = stop
    text = ""
    for first in range(0, len(pieces), JOINED_PIECES):
        text += "".join(pieces[first : first + JOINED_PIECES])  # CPython lets the text grow in place
    return text


def _too_long(most: int) -> InvalidRequest:
    return InvalidRequest(
        f"A string is too long: of characters such as these, {most:,} are the most. Send less in one text.",
        code="string_above_max_length",
    )


def _width(piece: str) -> int:
    """Return the bytes that each character of a text takes in memory. They are 1, 2 or 4, by its largest character."""
    if len(piece) > 1_000:
        return getsizeof(piece) // len(piece)  # the object itself takes some 70 bytes, which the division drops
    largest = ord(max(piece, default="a"))
    return 1 if largest <= 0xFF else 2 if largest <= 0xFFFF else 4


def _with_texts(value: JsonValue, texts: dict[str, str]) -> JsonValue:
    """Return the value with each text in the place of its name; objects and lists are changed in place."""
    if isinstance(value, str):
        return texts.get(value, value)
    containers = [value]
    while containers and texts:
        container = containers.pop()
        if isinstance(container, dict):
            items = [(texts.get(name, name), item) for name, item in container.items()]
            container.clear()
            container.update((name, texts.get(item, item) if isinstance(item, str) else item) for name, item in items)
            containers += [item for item in container.values() if isinstance(item, dict | list)]
        elif isinstance(container, list):
            container[:] = [texts.get(item, item) if isinstance(item, str) else item for item in container]
            containers += [item for item in container if isinstance(item, dict | list)]
    return value
