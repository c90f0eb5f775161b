"""JSON with very long strings, decoded step by step, so that in a thread nobody else waits for it.

Below ``members.py``. A decoder holds the interpreter from the beginning of a value to its end: a tenth of a second for
a text of 60 MB. So long strings are taken out, decoded a megabyte at a time, and put into the value that the rest is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from sys import getsizeof

from proxy.core.conversation.messages import JsonValue
from proxy.core.errors import InvalidRequest
from proxy.dialects.json_bounds import STEP_BYTES, end_of_string

LARGE_BYTES = 2_097_152
"""Smaller values are decoded at once."""
MAX_STRING_BYTES = 67_108_864
"""In memory: 64 million letters of ASCII, as base64 is, 16 million where an emoji is among them. OpenAI takes 10
million characters in one text."""
_SAFE = re.compile(rb'(?:[^"\\]++|\\u[0-9a-fA-F]{4}|\\[^u])*+', re.DOTALL)
_LOW = re.compile(rb"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_MARK = re.compile(rb'["{}\[\]]')
_SCALAR = re.compile(rb"[^ \t\n\r,\]}]*")
Decode = Callable[[bytes], JsonValue]


def decoded_in_steps(raw: bytes, decode: Decode) -> JsonValue:
    """What ``decode`` makes of a value, with its errors."""
    if len(raw) < LARGE_BYTES:
        return decode(raw)
    rest: list[bytes] = []
    places: list[tuple[int, int]] = []
    at = 0
    for start, end in _strings(raw):
        if end - start > STEP_BYTES:
            rest.append(raw[at : start + 1])
            places.append((start + 1, end - 1))
            at = end - 1
    rest.append(raw[at:])
    name = b"long"
    while any(name in piece for piece in rest):
        name += b"-"
    names = [b"%b%d" % (name, number) for number in range(len(places))]
    value = decode(b"".join([piece for pair in zip(rest, [*names, b""], strict=True) for piece in pair]))
    texts = [_text(raw, start, end, decode) for start, end in places]
    return _filled(value, {one.decode(): text for one, text in zip(names, texts, strict=True)})


def end_of_value(raw: bytes, at: int) -> int:
    """The place after the value that begins at ``at``; what stands in it is not looked at closer.

    :raises ValueError: it has no end
    """
    if raw[at : at + 1] not in (b'"', b"{", b"["):
        found = _SCALAR.match(raw, at)
        return found.end() if found else at
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
    """Where strings begin and end, with their quotation marks."""
    start = raw.find(b'"')
    while start >= 0:
        end = end_of_string(raw, start + 1)
        yield start, end
        start = raw.find(b'"', end)


def _text(raw: bytes, at: int, end: int, decode: Decode) -> str:
    """A string's contents, cut where no character and no pair of halves is parted."""
    pieces: list[str] = []
    while at < end:
        found = _SAFE.match(raw, at, min(at + STEP_BYTES, end))
        stop = found.end() if found else at
        while stop > at and stop < end and raw[stop] & 0xC0 == 0x80:
            stop -= 1
        low = _LOW.match(raw, stop, end)
        stop = low.end() if low else stop
        stop = end if stop == at else stop  # no such escape: the decoder says so
        pieces.append(str(decode(b'"%b"' % raw[at:stop])))
        at = stop
    _check_size(pieces)
    return "".join(pieces)


def _check_size(pieces: Sequence[str]) -> None:
    """Refuse a string that takes more memory than ``MAX_STRING_BYTES`` when it is put together."""
    characters = sum(map(len, pieces))
    width = max(map(_width, pieces), default=1)
    if characters * width > MAX_STRING_BYTES:
        most = MAX_STRING_BYTES // width
        raise InvalidRequest(
            f"A string has {characters:,} characters, and with those that are in it {most:,} are the most. "
            "Send less in one text.",
            code="string_above_max_length",
        )


def _width(piece: str) -> int:
    """Bytes that each character of a text takes: 1, 2 or 4, by the largest of them."""
    if len(piece) > 1_000:
        return getsizeof(piece) // len(piece)  # the rest is some 70 bytes
    largest = ord(max(piece, default="a"))
    return 1 if largest <= 0xFF else 2 if largest <= 0xFFFF else 4


def _filled(value: JsonValue, texts: dict[str, str]) -> JsonValue:
    """The value with the texts in the place of their names."""
    if isinstance(value, str):
        return texts.get(value, value)
    left = [value]
    while left and texts:
        one = left.pop()
        if isinstance(one, dict):
            items = [(texts.get(name, name), item) for name, item in one.items()]
            one.clear()
            one.update((name, texts.get(item, item) if isinstance(item, str) else item) for name, item in items)
            left += [item for item in one.values() if isinstance(item, dict | list)]
        elif isinstance(one, list):
            one[:] = [texts.get(item, item) if isinstance(item, str) else item for item in one]
            left += [item for item in one if isinstance(item, dict | list)]
    return value
