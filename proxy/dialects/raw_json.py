"""JSON in bytes: the members of a body and the elements of an array, each in its own bytes, and what they say.

Below ``body.py``. A body with half a character in it (JavaScript cuts emoji in two) is for the upstream to judge:
msgspec refuses it, so it is read by the standard library, which does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import NoReturn

import msgspec

from proxy.core.conversation.messages import JsonValue
from proxy.core.errors import InvalidRequest
from proxy.dialects.json_bounds import MAX_MEMBER_VALUES, MAX_VALUES, check_values, is_utf8
from proxy.dialects.json_steps import LARGE_BYTES, decoded_in_steps, end_of_value

VAST_BYTES = 16_777_216
"""A larger body is taken apart step by step, which takes longer, but holds nobody."""
HALF = re.compile(rb"\\u[dD][89a-fA-F]")
"""Where JSON may write half a character (RFC 8259, section 8.2)."""
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_decode = msgspec.json.Decoder().decode
_MARK = re.compile(rb"[ \t\n\r]*([{}\[\]:,])[ \t\n\r]*")


def members(body: bytes, *, bounded: bool = True, listed: str = "") -> dict[str, bytes]:
    """Return the top-level members; of a name that stands twice the last one counts, as in every JSON parser.

    :param listed: the member whose elements the caller decodes one by one
    :raises InvalidRequest: the body is no JSON object in UTF-8, or has too many values
    """
    if bounded and len(body) > MAX_VALUES:
        check_values(body, MAX_VALUES, "The body")
    if not is_utf8(body):
        raise _no_utf8(body, listed)
    if len(body) > VAST_BYTES:
        with suppress(ValueError, RecursionError):  # the decoder says what is wrong
            return _checked(_pieces(body, b"{}"), listed)
    try:
        return {name: bytes(raw) for name, raw in _members.decode(body).items()}
    except RecursionError as error:
        raise InvalidRequest("The body is nested too deeply.", code="invalid_json") from error
    except msgspec.ValidationError as error:
        raise InvalidRequest("The body must be a JSON object.", code="invalid_type") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if HALF.search(body):
            with suppress(ValueError, RecursionError):  # it may be no JSON to that reader either
                return _checked(_pieces(body, b"{}"), listed)
        raise InvalidRequest(f"The body is not valid JSON: {error}.", code="invalid_json") from error


def _checked(pieces: Iterable[tuple[str, bytes]], listed: str) -> dict[str, bytes]:
    """Check members that the decoder did not see; those of ``listed`` are decoded later, one by one.

    :raises ValueError: one is no JSON
    """
    fields: dict[str, bytes] = {}
    for name, raw in pieces:
        if name != listed or name in fields:
            _half(fields.get(name, raw) if name == listed else raw)
        fields[name] = raw
    return fields


def _no_utf8(body: bytes, listed: str) -> InvalidRequest:
    """Return the error of a body that is not UTF-8; it names the element of ``listed``, where it is in one."""
    where = None
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError):
        raws = _raws.decode(_members.decode(body)[listed])
        where = next((f"{listed}.[{place}]" for place, raw in enumerate(raws) if not is_utf8(bytes(raw))), None)
    within = f"{where} holds bytes that are" if where else "The body is"
    return InvalidRequest(f"{within} not valid UTF-8, as JSON must be (RFC 8259).", param=where, code="invalid_json")


def decoded(raw: bytes, param: str, *, most_values: int = MAX_MEMBER_VALUES) -> JsonValue:
    """Decode a member's value.

    :param param: what the member is called in an error
    :param most_values: the most members and elements that the value may have
    :raises InvalidRequest: the value is no JSON, or has more
    """
    if len(raw) > most_values:
        check_values(raw, most_values, param, param)
    try:
        return _decode(raw) if len(raw) < LARGE_BYTES else decoded_in_steps(raw, _decode)
    except RecursionError as error:
        raise InvalidRequest(f"{param} is nested too deeply.", param=param, code="invalid_json") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if HALF.search(raw):
            with suppress(ValueError, RecursionError):
                return _half(raw)
        raise InvalidRequest(f"{param} is not valid JSON: {error}.", param=param, code="invalid_json") from error


def elements(raw: bytes) -> list[bytes]:
    """The elements of an array, each in its own bytes."""
    if len(raw) > VAST_BYTES:
        with suppress(ValueError):
            return [element for _, element in _pieces(raw, b"[]")]
    try:
        return [bytes(element) for element in _raws.decode(raw)]
    except msgspec.DecodeError:
        if not HALF.search(raw):
            raise
    return [element for _, element in _pieces(raw, b"[]")]


def _pieces(raw: bytes, brackets: bytes) -> Iterator[tuple[str, bytes]]:
    """The members of an object or the elements of an array; whether each is JSON is not looked at.

    :raises ValueError: it is not that
    """
    mark, at = _mark(raw, 0, brackets[:1])
    if raw.startswith(brackets[1:], at):
        mark, at = _mark(raw, at, brackets[1:])
    while mark != brackets[1:]:
        name = ""
        if brackets == b"{}":
            end = end_of_value(raw, at)
            read = _half(raw[at:end])
            if not isinstance(read, str):
                raise ValueError("a name must be a string")
            name, (_, at) = read, _mark(raw, end, b":")
        end = end_of_value(raw, at)
        yield name, raw[at:end]
        mark, at = _mark(raw, end, b"," + brackets[1:])
    if at != len(raw):
        raise ValueError("more than one value")


def _mark(raw: bytes, at: int, allowed: bytes) -> tuple[bytes, int]:
    """The mark that stands there, and the place after it and the white space around it."""
    found = _MARK.match(raw, at)
    if found is None or found[1] not in allowed:
        raise ValueError(f"expected {allowed!r} at {at}")
    return found[1], found.end()


def _half(raw: bytes) -> JsonValue:
    """A value with half a character in it.

    :raises ValueError: it is no JSON
    """
    return decoded_in_steps(raw, lambda step: json.loads(step.decode(), parse_constant=_refuse))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no JSON")
