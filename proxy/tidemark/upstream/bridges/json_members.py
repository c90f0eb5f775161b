"""Reads members of requests and answers, which a client or a server may have filled with anything.

The bridges use it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from tidemark.core.conversation.messages import JsonValue
from tidemark.dialects import bodies
from tidemark.dialects.raw_json import decode_value

Members = dict[str, JsonValue]


def value_of(fields: Mapping[str, bytes], name: str) -> JsonValue:
    """Return a member's value; None if it is missing."""
    return decode_value(fields[name], name) if name in fields else None


def object_of(value: JsonValue) -> Mapping[str, JsonValue]:
    """Return an object as it is, and an empty one for anything else."""
    return value if isinstance(value, dict) else {}


def objects_of(value: JsonValue) -> Sequence[Mapping[str, JsonValue]]:
    """Return the objects of a list, and none of anything else."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def encode_json(value: JsonValue) -> bytes:
    """Write compact JSON; ``bodies.encode_json`` in less time, for the events of a stream."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return bodies.encode_json(value)


def without_none(members: Members) -> Members:
    """Return the members that are not null."""
    return {name: value for name, value in members.items() if value is not None}
