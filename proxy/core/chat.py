"""The chat-completions dialect: a decoded message object becomes a ``Message``.

Between the edge, which decodes JSON, and the core, which is neutral of dialects. Other dialects get a
file of their own beside this one. Source: OpenAI API reference, "Create chat completion", ``messages``.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping

from .errors import InvalidRequest
from .messages import JsonValue, Message, Role, ToolCall, digest_of

ROLES: Mapping[str, Role] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    "function": "tool",
}
TEXT_PARTS = frozenset({"text", "input_text", "output_text", "refusal"})
LEGACY_CALL = "function:"
"""Legacy ``function_call`` has no id: the function's name, so prefixed, pairs the call with its result."""


def parse_message(raw: bytes, value: JsonValue, index: int) -> Message:
    """Read one message.

    :param raw: the message's own JSON, kept as it is
    :param value: the same, decoded
    :param index: its place in ``messages``, for the error's ``param``
    :raises InvalidRequest: the message is no object, its role is unknown, or a known field has another type
    """
    where = f"messages.[{index}]"
    if not isinstance(value, dict):
        raise InvalidRequest(f"Each message must be an object; {where} is not.", param=where, code="invalid_type")
    said = value.get("role")
    role = ROLES.get(said) if isinstance(said, str) else None
    if role is None:
        raise InvalidRequest(
            f"Unknown role {said!r} at {where}.role; use one of {', '.join(ROLES)}.", param=f"{where}.role"
        )
    texts, media = _content(value.get("content"), where)
    calls = _calls(value, where)
    name = _optional_text(value, "name", where)
    answers = _answers(value, role, name, where)
    return Message(
        raw=raw,
        role=role,
        text="\n".join(texts),
        digest=_digest(role, texts, media, calls, answers=answers, name=name),
        name=name,
        calls=calls,
        answers=answers,
        media=tuple(media),
    )


def _content(content: JsonValue, where: str) -> tuple[list[str], list[Mapping[str, JsonValue]]]:
    """Texts and other parts of ``content``, which may be a string, a list of parts or null."""
    if content is None:
        return [], []
    if isinstance(content, str):
        return [content] if content else [], []
    if not isinstance(content, list):
        raise InvalidRequest(
            f"{where}.content must be a string or a list of parts.",
            param=f"{where}.content",
            code="invalid_type",
        )
    texts: list[str] = []
    media: list[Mapping[str, JsonValue]] = []
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
                texts.append(text)
        else:
            media.append({key: item for key, item in part.items() if key not in ("cache_control", "annotations")})
    return texts, media


def _calls(value: Mapping[str, JsonValue], where: str) -> tuple[ToolCall, ...]:
    """``tool_calls`` and the legacy ``function_call``; what a provider made up beyond the reference is kept in raw."""
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
    if role != "tool":
        return None
    if value.get("role") == "function":
        return LEGACY_CALL + (name or "")
    return _optional_text(value, "tool_call_id", where)


def _optional_text(value: Mapping[str, JsonValue], key: str, where: str) -> str | None:
    found = value.get(key)
    if found is not None and not isinstance(found, str):
        raise InvalidRequest(f"{where}.{key} must be a string.", param=f"{where}.{key}", code="invalid_type")
    return found


def _as_text(value: JsonValue) -> str:
    """A string as it is, nothing as the empty string, anything else (some servers send objects) as JSON."""
    if isinstance(value, str):
        return value
    return "" if value is None else json.dumps(value, sort_keys=True, ensure_ascii=False)


def _digest(
    role: Role,
    texts: Iterable[str],
    media: Iterable[Mapping[str, JsonValue]],
    calls: Iterable[ToolCall],
    *,
    answers: str | None,
    name: str | None,
) -> bytes:
    """The digest of what a message means: the same for every form in which clients echo it.

    Left out, because clients drop or add them on echo: null and empty fields, annotations, reasoning,
    ``cache_control``, the split of text into parts, and white space around an assistant's text.
    """
    text = "\n".join(texts)
    pieces = [role.encode(), (text.strip() if role == "assistant" else text).encode()]
    pieces += [json.dumps(part, sort_keys=True).encode() for part in media]
    pieces.append(b"calls")
    for call in calls:
        pieces += [call.id.encode(), call.name.encode(), call.arguments.encode()]
    pieces += [(answers or "").encode(), (name or "").encode()]
    return digest_of(*pieces)
