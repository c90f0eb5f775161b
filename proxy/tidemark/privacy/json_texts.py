"""Redacts the texts inside of JSON, so that what is stored stays JSON of the same form.

Names of members, ids, roles and encoded data stay, since they hold a message together. In the arguments of a tool all
texts are the model's own, names of members too. Numbers keep their digits.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable

from tidemark.core.conversation.messages import JsonValue

_STRUCTURE = frozenset({"role", "type", "id", "call_id", "tool_call_id", "tool_use_id", "item_id", "name", "status"})
_STRUCTURE |= {"signature", "encrypted_content", "data", "format", "media_type", "detail"}
"""Members whose texts are no person's words."""
_ARGUMENTS = frozenset({"arguments", "input"})
_NUMBER_MARK = f"\0{secrets.token_hex(8)}:"
_NUMBER = re.compile(re.escape(json.dumps(_NUMBER_MARK)[:-1]) + r'([^"]*)"')


def redact_raw(raw: bytes, redact: Callable[[str], str]) -> bytes:
    """Return JSON with redacted texts; the same object if nothing changes.

    :param raw: a value, or several with commas between them
    :raises ValueError: it is no JSON
    """
    items = _loads(f"[{raw.decode('utf-8', 'surrogatepass')}]")
    changed = _walk(items, redact, in_arguments=False)
    if changed == items:
        return raw
    return _dumps(changed)[1:-1].encode("utf-8", "backslashreplace")


def redact_text(text: str, redact: Callable[[str], str]) -> str:
    """Return a redacted text; one that is an object or a list of JSON stays one."""
    if text.lstrip()[:1] in ("{", "["):
        try:
            value = _loads(text)
        except (ValueError, RecursionError):
            return redact(text)
        changed = _walk(value, redact, in_arguments=True)
        return text if changed == value else _dumps(changed)
    return redact(text)


def _walk(value: JsonValue, redact: Callable[[str], str], *, in_arguments: bool) -> JsonValue:
    if isinstance(value, str):
        return value if value.startswith(_NUMBER_MARK) else redact_text(value, redact)
    if isinstance(value, list):
        return [_walk(one, redact, in_arguments=in_arguments) for one in value]
    if not isinstance(value, dict):
        return value
    changed: dict[str, JsonValue] = {}
    for name, member in value.items():
        is_structure = not in_arguments and isinstance(member, str) and (name in _STRUCTURE or _is_data(member))
        inside = in_arguments or name in _ARGUMENTS
        new = member if is_structure else _walk(member, redact, in_arguments=inside)
        changed[redact(name) if in_arguments else name] = new
    return changed


def _is_data(text: str) -> bool:
    return text.startswith("data:") and ";base64," in text[:100]


def _loads(text: str) -> JsonValue:
    value: JsonValue = json.loads(text, parse_float=_marked, parse_int=_marked, parse_constant=_marked)
    return value


def _marked(number: str) -> str:
    return _NUMBER_MARK + number


def _dumps(value: JsonValue) -> str:
    return _NUMBER.sub(r"\1", json.dumps(value, ensure_ascii=False, separators=(",", ":")))
