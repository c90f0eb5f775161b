"""Digests of messages: equal for every form in which clients echo the same message.

A dialect's parser makes one for each message. Stored prefix chains consist of these digests, so the rules here never
change.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby

from tidemark.core.conversation.messages import (
    STEP_CHARS,
    JsonValue,
    Role,
    ToolCall,
    digest_of,
    digest_of_steps,
    encoded_steps,
    framed,
    hashed,
)

Part = str | Mapping[str, JsonValue]
"""A part of a message's content: a text, or any other part as the client wrote it."""
MAX_READ_CHARS = 1_000_000
"""Longer arguments are compared as text: to parse as many characters takes some 20 ms."""
EXACT = 2**53
"""Up to this, a double can represent every whole number (ECMA-262, ``Number.MAX_SAFE_INTEGER``)."""
_STARTS: Mapping[Role, bytes] = {
    role: framed(role.encode(), b"text") for role in ("system", "user", "assistant", "tool")
}
_END = framed(b"calls", b"", b"", b"")
"""What the digest of a message with one text hashes before and after the text."""
_LONG = "tidemark: a long string"
"""Replaces a long string while its part is written as JSON."""


def meaning(
    role: Role,
    parts: Sequence[Part],
    calls: Iterable[ToolCall],
    *,
    answers: str,
    name: str,
    audio: str,
) -> bytes:
    """Return the digest of a message: equal for every form in which clients echo it.

    It ignores what clients drop or add on echo: null and empty fields, annotations, reasoning, ``cache_control``, the
    split of text into parts, white space around an assistant's text, and how the JSON of a call's arguments is written.
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
    """Return the same digest as ``meaning``, in steps: for messages of megabytes."""
    pieces: list[Sequence[bytes]] = [[role.encode()]]
    for is_text, run in groupby(parts, key=lambda part: isinstance(part, str)):
        if is_text:
            text = "\n".join([part for part in run if isinstance(part, str)])
            text = text.strip() if role == "assistant" else text
            pieces += [[b"text"], encoded_steps(text)] if text else []
        else:
            for part in run:
                pieces += [[b"part"], _json_steps(part)]
    pieces.append([b"calls"])
    for call in calls:
        pieces += [encoded_steps(call.id), encoded_steps(call.name)]
        pieces.append(
            encoded_steps(call.arguments) if len(call.arguments) > MAX_READ_CHARS else [_canonical(call.arguments)]
        )
    return digest_of_steps([*pieces, *map(encoded_steps, (answers, name, audio))])


def _json_steps(part: JsonValue) -> list[bytes]:
    """Write a part as JSON with sorted members; its long strings are written in steps."""
    texts: list[str] = []

    def without_long(value: JsonValue) -> JsonValue:
        if isinstance(value, str) and len(value) > STEP_CHARS:
            texts.append(value)
            return {_LONG: len(texts) - 1}
        if isinstance(value, dict):
            return {key: without_long(value[key]) for key in sorted(value)}
        return [without_long(element) for element in value] if isinstance(value, list) else value

    text_left = _SORTED(without_long(part))
    if text_left.count(_LONG) != len(texts):
        return [_SORTED(part).encode()]  # the client wrote the placeholder itself
    steps: list[bytes] = []
    for number, text in enumerate(texts):
        before, _, text_left = text_left.partition(f'{{"{_LONG}": {number}}}')
        steps += [before.encode(), b'"']
        steps += [_SORTED(text[at : at + STEP_CHARS])[1:-1].encode() for at in range(0, len(text), STEP_CHARS)]
        steps.append(b'"')
    return [*steps, text_left.encode()]


def text_meaning(role: Role, text: str, answers: str = "") -> bytes | None:
    """Return the digest of a message that has one text and no calls; None for an empty text.

    Nearly every message is one, and ``meaning`` takes longer. None also for a text with a half character.

    :param answers: the id of the call that it answers
    """
    try:
        encoded = (text.strip() if role == "assistant" else text).encode()
        ending = framed(b"calls", answers.encode(), b"", b"") if answers else _END
    except UnicodeEncodeError:
        return None
    if not encoded:
        return None
    return hashed(b"".join((_STARTS[role], len(encoded).to_bytes(8, "little"), encoded, ending)))


def _run(role: Role, texts: Sequence[str]) -> tuple[bytes, ...]:
    """Return the pieces of the digest for consecutive texts."""
    text = "\n".join(texts)
    text = text.strip() if role == "assistant" else text
    return (b"text", _encoded(text)) if text else ()


def _canonical(arguments: str) -> bytes:
    """Return arguments as canonical JSON; their text if that is no JSON, or is too long to parse."""
    if len(arguments) <= MAX_READ_CHARS:
        try:
            return _COMPACT(_NUMBERS(arguments or "{}")).encode()
        except (ValueError, RecursionError):
            pass
    return _encoded(arguments)


def _number(literal: str) -> float:
    """Parse a number; 1.0 and 1 are equal, because JavaScript writes one for the other."""
    number = float(literal)
    return int(number) if number.is_integer() and abs(number) <= EXACT else number


# The coders are made once: with options, each call of ``json`` would make another one.
_NUMBERS = json.JSONDecoder(parse_float=_number).decode
_COMPACT = json.JSONEncoder(sort_keys=True, separators=(",", ":")).encode
_SORTED = json.JSONEncoder(sort_keys=True).encode


def _encoded(text: str) -> bytes:
    """Encode as UTF-8; a half character, which a client's cut left, stays as it is."""
    return text.encode("utf-8", "surrogatepass")
