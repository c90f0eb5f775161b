"""Reads one message object of chat completions, after its JSON was decoded, as a ``Message``.

``request.py`` calls it for each new message of a request, and ``reply.py`` for each reply. Source: OpenAI API
reference, "Create chat completion", ``messages``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

import msgspec

from tidemark.core.conversation.digest import Part, long_meaning, meaning, text_meaning
from tidemark.core.conversation.messages import (
    STEP_CHARS,
    JsonValue,
    Message,
    Role,
    ToolCall,
    printable,
)
from tidemark.core.errors import InvalidRequest
from tidemark.dialects.members import role_of
from tidemark.dialects.raw_json import has_surrogates

ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})
_PLAIN_ROLES: Mapping[str, Role] = {name: role for name, role in ROLES.items() if name != "function"}
"""Roles whose messages are nearly always one text. The digest of a function's message needs its name, too."""
_OTHER_MEMBERS = ("name", "refusal", "tool_calls", "function_call", "audio")
"""Members with a meaning, besides ``role`` and ``content``."""
LEGACY_CALL = "function:"
"""Begins the id of a legacy ``function_call``, which has none of its own; the function's name follows."""


class _WithRole(msgspec.Struct):
    """A message, of which only the role is decoded."""

    role: str


_ROLE = msgspec.json.Decoder(_WithRole)


def parse_message(raw: bytes, value: JsonValue, index: int) -> Message:
    """Read one message.

    :param raw: the message's own JSON, which stays as it is
    :param value: the same, decoded
    :param index: its place in ``messages``, for the error's ``param``
    :raises InvalidRequest: the message is not an object, its role is unknown, or a known field has another type
    """
    message = _read_plain(raw, value) if isinstance(value, dict) and len(raw) <= STEP_CHARS else None
    return message or _read(raw, value, f"messages.[{index}]")


def _read_plain(raw: bytes, value: Mapping[str, JsonValue]) -> Message | None:
    """Read a message that is one text, as nearly every message is; None for any other message.

    The result is that of ``_read``, in a fifth of the time.
    """
    role_name, text = value.get("role"), value.get("content")
    if not isinstance(role_name, str) or not isinstance(text, str) or role_name not in _PLAIN_ROLES:
        return None
    if len(value) > 2:
        for name in _OTHER_MEMBERS:
            if value.get(name) is not None:
                return None
    role = _PLAIN_ROLES[role_name]
    if role != "tool":
        digest = text_meaning(role, text)
        return Message(raw, role, text, digest) if digest else None
    answers = value.get("tool_call_id")
    if not isinstance(answers, str):
        return None
    digest = text_meaning(role, text, answers)
    return Message(raw, role, text, digest, answers=answers) if digest else None


def _read(raw: bytes, value: JsonValue, where: str) -> Message:
    """Read any message; ``where`` is its place, for the error's ``param``."""
    if not isinstance(value, dict):
        raise InvalidRequest(f"Each message must be an object; {where} is not.", param=where, code="invalid_type")
    role = role_of(value, ROLES, where)
    parts = _content(value.get("content"), where)
    refusal = value.get("refusal")
    if isinstance(refusal, str) and refusal:
        parts.append(refusal)
    media = [part for part in parts if not isinstance(part, str)]
    calls = _calls(value, where)
    name = _optional_text(value, "name", where)
    answers = _answers(value, role, name, where)
    return Message(
        raw=raw,
        role=role,
        text=printable("\n".join([part for part in parts if isinstance(part, str)])),
        digest=(meaning if len(raw) <= STEP_CHARS else long_meaning)(
            role, parts, calls, answers=answers or "", name=name or "", audio=_audio(value)
        ),
        name=name and printable(name),
        calls=tuple([ToolCall(printable(call.id), printable(call.name), printable(call.arguments)) for call in calls]),
        answers=answers and printable(answers),
        media=tuple(map(_printable_part, media) if media and has_surrogates(raw) else media),
    )


def _content(content: JsonValue, where: str) -> list[Part]:
    """Return the texts and other parts of ``content``, which may be a string, a list of parts or null."""
    if content is None:
        return []
    if isinstance(content, str):
        return [content] if content else []
    if not isinstance(content, list):
        raise InvalidRequest(
            f"{where}.content must be a string or a list of parts.",
            param=f"{where}.content",
            code="invalid_type",
        )
    parts: list[Part] = []
    for position, part in enumerate(content):
        if not isinstance(part, dict):
            raise InvalidRequest(
                f"Each content part must be an object; {where}.content.[{position}] is not.",
                param=f"{where}.content.[{position}]",
                code="invalid_type",
            )
        kind = part.get("type")
        text = part.get("refusal") if kind == "refusal" else part.get("text")
        if isinstance(kind, str) and kind in TEXT_PARTS and isinstance(text, str):
            if text:
                parts.append(text)
        else:
            parts.append({key: item for key, item in part.items() if key not in ("cache_control", "annotations")})
    return parts


def _calls(value: Mapping[str, JsonValue], where: str) -> tuple[ToolCall, ...]:
    """Return ``tool_calls`` and the legacy ``function_call``; a provider's own members stay in ``raw`` only."""
    entries = value.get("tool_calls")
    if entries is not None and not isinstance(entries, list):
        raise InvalidRequest(f"{where}.tool_calls must be a list.", param=f"{where}.tool_calls", code="invalid_type")
    calls = [_call(entry, f"{where}.tool_calls.[{place}]") for place, entry in enumerate(entries or ())]
    legacy = value.get("function_call")
    if isinstance(legacy, dict):
        name = _as_text(legacy.get("name"))
        calls.append(ToolCall(LEGACY_CALL + name, name, _as_text(legacy.get("arguments"))))
    return tuple(calls)


def _call(entry: JsonValue, where: str) -> ToolCall:
    if not isinstance(entry, dict):
        raise InvalidRequest(f"{where} must be an object.", param=where, code="invalid_type")
    body = entry.get("function") or entry.get("custom") or {}
    if not isinstance(body, dict):
        raise InvalidRequest(f"{where}.function must be an object.", param=f"{where}.function", code="invalid_type")
    arguments = body.get("arguments", body.get("input"))
    return ToolCall(_as_text(entry.get("id")), _as_text(body.get("name")), _as_text(arguments))


def _answers(value: Mapping[str, JsonValue], role: Role, name: str | None, where: str) -> str | None:
    """Return the id of the call whose result the message is; None for other roles than tools."""
    if role != "tool":
        return None
    if value.get("role") == "function":
        return LEGACY_CALL + (name or "")
    return _optional_text(value, "tool_call_id", where)


def _optional_text(value: Mapping[str, JsonValue], key: str, where: str) -> str | None:
    text = value.get(key)
    if text is not None and not isinstance(text, str):
        raise InvalidRequest(f"{where}.{key} must be a string.", param=f"{where}.{key}", code="invalid_type")
    return text


def _as_text(value: JsonValue) -> str:
    """Return a string as it is, null as the empty string, and any other value as JSON. Some servers send objects."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _audio(value: Mapping[str, JsonValue]) -> str:
    """Return the id of an assistant's audio, all that clients send back of it ("Audio", ``messages[].audio.id``)."""
    audio = value.get("audio")
    return _as_text(audio.get("id")) if isinstance(audio, dict) else ""


def _printable_part(part: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the part with U+FFFD for each unpaired surrogate."""
    printed: dict[str, JsonValue] = json.loads(printable(json.dumps(part, ensure_ascii=False)))
    return printed


def is_message(raw: bytes) -> bool:
    """Return whether stored bytes are a message: an object with a known role."""
    try:
        text = raw.decode()
        try:
            return _ROLE.decode(text).role in ROLES
        except msgspec.MsgspecError:  # json accepts unpaired surrogates: clients cut emoji in two
            content = json.loads(text)
            return isinstance(content, dict) and content.get("role") in ROLES
    except (ValueError, TypeError, RecursionError):
        return False
