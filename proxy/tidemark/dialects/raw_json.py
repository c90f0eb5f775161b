"""Reads JSON in the client's own bytes: the members of a body, the elements of an array, and their values.

Parsers of dialects and endpoints with a JSON body call it. Bodies may have unpaired surrogates (halves of characters:
JavaScript cuts emoji in two), and the upstream decides whether it accepts them. msgspec refuses such bodies, so the
standard library reads them, which does not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import NoReturn

import msgspec

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.json_bounds import MAX_MEMBER_VALUES, MAX_VALUES, STEP_BYTES, check_values, is_utf8
from tidemark.dialects.json_steps import LARGE_BYTES, decode_in_steps, end_of_value, slice_in_steps

VAST_BYTES = 16_777_216
"""Members of a larger body are found in steps, which takes longer, but does not block the event loop."""
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
"""An escape that may be an unpaired surrogate (RFC 8259, section 8.2)."""
_SURROGATE_BYTES = 4
_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
_raws = msgspec.json.Decoder(list[msgspec.Raw])
_decode = msgspec.json.Decoder().decode
_MARK = re.compile(rb"[ \t\n\r]*([{}\[\]:,])[ \t\n\r]*")


def read_members(
    body: bytes, *, bounded: bool = True, listed: str = "", most_members: int | None = None
) -> dict[str, bytes]:
    """Return the top-level members. If a name stands twice, the last one counts, as in every JSON parser.

    :param bounded: whether the number of values in the body has a bound
    :param listed: the member whose elements the caller decodes one by one
    :param most_members: the most members at the top; None for no bound of their own
    :raises InvalidRequest: the body is not a JSON object in UTF-8, or has too many values or members
    """
    if bounded and len(body) > MAX_VALUES:
        check_values(body, MAX_VALUES, "The body")
    if not is_utf8(body):
        raise _not_utf8(body, listed)
    # The decoder below makes all members at once, and keeps the interpreter meanwhile.
    has_many = most_members is not None and body.count(b":") > MAX_MEMBER_VALUES
    if has_many:
        check_values(body, MAX_VALUES, "The body")
    if has_many or len(body) > VAST_BYTES:
        with suppress(ValueError, RecursionError):  # the decoder below finds the same error and names it
            return _checked(_counted(_pieces(body, b"{}"), most_members), listed)
    try:
        members = _members.decode(body)
        if most_members is not None and len(members) > most_members:
            raise _too_many_members(most_members)
        return {name: bytes(raw) for name, raw in members.items()}
    except RecursionError as error:
        raise InvalidRequest("The body is nested too deeply.", code="invalid_json") from error
    except msgspec.ValidationError as error:
        raise InvalidRequest("The body must be a JSON object.", code="invalid_type") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if has_surrogates(body):
            with suppress(ValueError, RecursionError):  # the standard library may refuse it, too
                return _checked(_counted(_pieces(body, b"{}"), most_members), listed)
        raise InvalidRequest(f"The body is not valid JSON: {error}.", code="invalid_json") from error


def member_names(body: bytes) -> list[str]:
    """Return the names of the top-level members in their order; one that stands twice is there twice.

    :raises InvalidRequest: the body is not a JSON object
    """
    try:
        return [name for name, _ in _pieces(body, b"{}")]
    except (ValueError, RecursionError) as error:
        raise InvalidRequest("The body is not valid JSON.", code="invalid_json") from error


def _counted(pieces: Iterable[tuple[str, bytes]], most: int | None) -> Iterator[tuple[str, bytes]]:
    """Yield members, up to a number of them.

    :raises InvalidRequest: there are more
    """
    for number, piece in enumerate(pieces, 1):
        if most is not None and number > most:
            raise _too_many_members(most)
        yield piece


def _too_many_members(most: int) -> InvalidRequest:
    return InvalidRequest(f"The body has more than {most:,} members. Send fewer.", code="too_many_values")


def _checked(pieces: Iterable[tuple[str, bytes]], listed: str) -> dict[str, bytes]:
    """Check members that the decoder did not see; those of ``listed`` are decoded later, one by one.

    :raises ValueError: a member is not JSON
    """
    fields: dict[str, bytes] = {}
    for name, raw in pieces:
        if name != listed or name in fields:
            _decode_surrogates(fields.get(name, raw) if name == listed else raw)
        fields[name] = raw
    return fields


def _not_utf8(body: bytes, listed: str) -> InvalidRequest:
    """Return the error of a body that is not UTF-8; it names the element of ``listed`` with the invalid bytes."""
    where = None
    with suppress(msgspec.MsgspecError, UnicodeDecodeError, RecursionError, LookupError):
        raws = _raws.decode(_members.decode(body)[listed])
        where = next((f"{listed}.[{place}]" for place, raw in enumerate(raws) if not is_utf8(bytes(raw))), None)
    within = f"{where} holds bytes that are" if where else "The body is"
    return InvalidRequest(f"{within} not valid UTF-8, as JSON must be (RFC 8259).", param=where, code="invalid_json")


def decode_value(raw: bytes, param: str, *, most_values: int = MAX_MEMBER_VALUES) -> JsonValue:
    """Decode the value of a member or of an element.

    :param param: the name of the member or the element in an error
    :param most_values: the most members and elements that the value may have
    :raises InvalidRequest: the value is not JSON, or has more
    """
    if len(raw) > most_values:
        check_values(raw, most_values, param, param)
    try:
        return _decode(raw) if len(raw) < LARGE_BYTES else decode_in_steps(raw, _decode)
    except RecursionError as error:
        raise InvalidRequest(f"{param} is nested too deeply.", param=param, code="invalid_json") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        if has_surrogates(raw):
            with suppress(ValueError, RecursionError):
                return _decode_surrogates(raw)
        raise InvalidRequest(f"{param} is not valid JSON: {error}.", param=param, code="invalid_json") from error


def read_elements(raw: bytes) -> list[bytes]:
    """Return the elements of an array, each in its own bytes.

    :raises ValueError, RecursionError: the value is not an array
    """
    if len(raw) > VAST_BYTES:
        with suppress(ValueError):
            return [element for _, element in _pieces(raw, b"[]")]
    try:
        return [bytes(element) for element in _raws.decode(raw)]
    except msgspec.DecodeError:
        if not has_surrogates(raw):
            raise
    return [element for _, element in _pieces(raw, b"[]")]


def has_surrogates(raw: bytes) -> bool:
    """Return whether JSON has an escape that may be an unpaired surrogate."""
    for at in range(0, len(raw), STEP_BYTES):
        if _SURROGATE.search(raw, at, at + STEP_BYTES + _SURROGATE_BYTES - 1):
            return True
    return False


def decode_or_none(data: bytes, decode: Callable[[bytes], JsonValue] = _decode) -> JsonValue:
    """Decode what an upstream sent; None for anything that is not JSON.

    A strict decoder refuses unpaired surrogates, so the standard library tries what the decoder refused.
    """
    try:
        return decode(data)
    except RecursionError:
        return None
    except ValueError:
        return read_json(data)


def read_json(data: bytes | str) -> JsonValue:
    """Decode JSON with the standard library; None for anything that is not JSON."""
    try:
        value: JsonValue = json.loads(data)
    except (ValueError, RecursionError):
        return None
    return value


def _pieces(raw: bytes, brackets: bytes) -> Iterator[tuple[str, bytes]]:
    """Yield the members of an object or the elements of an array, without a check whether each is JSON.

    :param brackets: those of an object or of an array; the name of an element is empty
    :raises ValueError: the value is not an object, or not an array
    """
    mark, at = _mark(raw, 0, brackets[:1])
    if raw.startswith(brackets[1:], at):
        mark, at = _mark(raw, at, brackets[1:])
    while mark != brackets[1:]:
        name = ""
        if brackets == b"{}":
            end = end_of_value(raw, at)
            key = _decode_surrogates(raw[at:end])
            if not isinstance(key, str):
                raise ValueError("a name must be a string")
            name, (_, at) = key, _mark(raw, end, b":")
        end = end_of_value(raw, at)
        yield name, slice_in_steps(raw, at, end)
        mark, at = _mark(raw, end, b"," + brackets[1:])
    if at != len(raw):
        raise ValueError("more than one value")


def _mark(raw: bytes, at: int, allowed: bytes) -> tuple[bytes, int]:
    """Return the bracket, colon or comma at ``at``, and the place after it; white space on both sides is skipped.

    :raises ValueError: there is none of the allowed marks
    """
    mark = _MARK.match(raw, at)
    if mark is None or mark[1] not in allowed:
        raise ValueError(f"expected {allowed!r} at {at}")
    return mark[1], mark.end()


def _decode_surrogates(raw: bytes) -> JsonValue:
    """Decode a value that may have unpaired surrogates.

    :raises ValueError: the value is not JSON
    """
    return decode_in_steps(raw, lambda step: json.loads(step.decode(), parse_constant=_refuse))


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
