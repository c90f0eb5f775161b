"""What a message means, as a digest: the same for every form in which clients echo it.

Below ``chat.py``, which reads a message. Stored chains are made of these digests, so what goes into one never changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from proxy.core.conversation.messages import (
    STEP_CHARS,
    JsonValue,
    Role,
    ToolCall,
    digest_of,
    digest_of_steps,
    encoded_steps,
)

Part = str | Mapping[str, JsonValue]
"""A part of ``content``: a text, or anything else as the client wrote it."""
MAX_READ_CHARS = 1_000_000
"""Longer arguments are compared as they are written: reading as many takes some 20 ms."""
EXACT = 2**53
"""Up to here every whole number is a double (ECMA-262, ``Number.MAX_SAFE_INTEGER``)."""
_LONG = "tidemark: a long string"
"""Stands for one while a part is written."""


def meaning(
    role: Role,
    parts: Sequence[Part],
    calls: Iterable[ToolCall],
    *,
    answers: str,
    name: str,
    audio: str,
) -> bytes:
    """The digest of what a message means: the same for every form in which clients echo it.

    Left out, because clients drop or add them on echo: null and empty fields, annotations, reasoning,
    ``cache_control``, the split of text into parts, white space around an assistant's text, and how the JSON of
    a call's arguments is written.
    """
    pieces = [role.encode()]
    texts: list[str] = []
    for part in parts:
        if isinstance(part, str):
            texts.append(part)
        else:
            pieces += (*_run(role, texts), b"part", _SORTED(part).encode())
            texts = []
    pieces += _run(role, texts)
    pieces.append(b"calls")
    for call in calls:
        pieces += [_encoded(call.id), _encoded(call.name), _canonical(call.arguments)]
    pieces += [_encoded(answers), _encoded(name), _encoded(audio)]
    return digest_of(*pieces)


def long_meaning(
    role: Role, parts: Sequence[Part], calls: Iterable[ToolCall], *, answers: str, name: str, audio: str
) -> bytes:
    """The same as ``meaning``, in steps: for messages of megabytes."""
    pieces: list[Sequence[bytes]] = [[role.encode()]]
    for kind, run in groupby(parts, key=lambda part: isinstance(part, str)):
        if kind:
            text = "\n".join([part for part in run if isinstance(part, str)])
            text = text.strip() if role == "assistant" else text
            pieces += [[b"text"], encoded_steps(text)] if text else []
        else:
            for part in run:
                pieces += [[b"part"], _written_steps(part)]
    pieces.append([b"calls"])
    for call in calls:
        pieces += [encoded_steps(call.id), encoded_steps(call.name)]
        pieces.append(
            encoded_steps(call.arguments) if len(call.arguments) > MAX_READ_CHARS else [_canonical(call.arguments)]
        )
    return digest_of_steps([*pieces, *map(encoded_steps, (answers, name, audio))])


def _written_steps(part: JsonValue) -> list[bytes]:
    """A part as sorted JSON; what stands in its long strings is written step by step."""
    texts: list[str] = []

    def short(value: JsonValue) -> JsonValue:
        if isinstance(value, str) and len(value) > STEP_CHARS:
            texts.append(value)
            return {_LONG: len(texts) - 1}
        if isinstance(value, dict):
            return {key: short(value[key]) for key in sorted(value)}
        return [short(one) for one in value] if isinstance(value, list) else value

    written = _SORTED(short(part))
    if written.count(_LONG) != len(texts):
        return [_SORTED(part).encode()]  # the client has the same words
    steps: list[bytes] = []
    for number, text in enumerate(texts):
        before, _, written = written.partition(f'{{"{_LONG}": {number}}}')
        steps += [before.encode(), b'"']
        steps += [_SORTED(text[at : at + STEP_CHARS])[1:-1].encode() for at in range(0, len(text), STEP_CHARS)]
        steps.append(b'"')
    return [*steps, written.encode()]


def _run(role: Role, texts: Sequence[str]) -> tuple[bytes, ...]:
    """The pieces that texts in a row are."""
    text = "\n".join(texts)
    text = text.strip() if role == "assistant" else text
    return (b"text", _encoded(text)) if text else ()


def _canonical(arguments: str) -> bytes:
    """A call's arguments however their JSON is written; their text where it is none, or too long to read."""
    if len(arguments) <= MAX_READ_CHARS:
        try:
            return _COMPACT(_NUMBERS(arguments or "{}")).encode()
        except (ValueError, RecursionError):
            pass
    return _encoded(arguments)


def _number(written: str) -> float:
    """JavaScript writes 1.0 as 1, so both are the same number."""
    number = float(written)
    return int(number) if number.is_integer() and abs(number) <= EXACT else number


# Made once: with options of its own, each call of ``json`` makes another one.
_NUMBERS = json.JSONDecoder(parse_float=_number).decode
_COMPACT = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_SORTED = json.JSONEncoder(sort_keys=True).encode


def _encoded(text: str) -> bytes:
    """As UTF-8; half a character, where a client cut a text inside one, is kept as what it is."""
    return text.encode("utf-8", "surrogatepass")
