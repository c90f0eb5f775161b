"""Writes exported objects as one page to read: no script, nothing from elsewhere, all text escaped."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from html import escape

from tidemark.core.conversation.messages import JsonValue

HEAD = b"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>All that is kept</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<style>body{font:16px/1.5 sans-serif;max-width:50rem;margin:2rem auto;padding:0 1rem}
pre{white-space:pre-wrap;overflow-wrap:anywhere}h2{border-top:2px solid;padding-top:1rem}
article{border-left:3px solid #888;padding-left:1rem;margin:1rem 0}</style></head><body><h1>All that is kept</h1>
"""
TAIL = b"<p>This is the end of the export; it is complete.</p></body></html>\n"
_TALK = frozenset({"message", "system_message", "changed_answer"})
_SUMMARIES = frozenset({"summary", "prepared_summary", "earlier_summary"})


def fragment(fields: Mapping[str, JsonValue]) -> str:
    """Return an object as HTML."""
    kind = str(fields.get("type"))
    words = kind.replace("_", " ")
    if kind in ("export", "end"):
        return f"<p>{escape(_facts(fields))}</p>\n"
    if kind == "conversation":
        name = str(fields.get("name") or fields.get("conversation"))
        return f"<h2>Conversation {escape(name)}</h2>\n<p>{escape(_facts(fields))}</p>\n"
    if "unreadable" not in fields and kind in _TALK:
        message = fields.get("message")
        role = message.get("role") or message.get("type") if isinstance(message, dict) else ""
        return _article(f"{role or words} {_time(fields)}", _readable(message))
    if "unreadable" not in fields and kind in _SUMMARIES:
        return _article(f"{words} of {fields['summarized_messages']} messages {_time(fields)}", str(fields["text"]))
    return f"<details><summary>{escape(words)}</summary><pre>{escape(_indented(dict(fields)))}</pre></details>\n"


def _article(title: str, text: str) -> str:
    return f"<article><h3>{escape(title)}</h3><pre>{escape(text)}</pre></article>\n"


def _facts(fields: Mapping[str, JsonValue]) -> str:
    return ", ".join(f"{name.replace('_', ' ')}: {value}" for name, value in fields.items() if name != "type")


def _time(fields: Mapping[str, JsonValue]) -> str:
    at = fields.get("created_at")
    try:
        return f"({datetime.fromtimestamp(at, UTC):%Y-%m-%d %H:%M} UTC)" if isinstance(at, float) and at else ""
    except (ValueError, OverflowError, OSError):
        return ""


def _readable(value: JsonValue) -> str:
    """Return the text of a message, and all else of it as JSON."""
    if not isinstance(value, dict):
        return _indented(value)
    content = value.get("content")
    parts = content if isinstance(content, list) else [content]
    shown = [str(part["text"]) if _is_text(part) else part for part in parts if part is not None]
    others = {name: other for name, other in value.items() if name not in ("role", "content")}
    return "\n".join(
        part if isinstance(part, str) else _indented(part) for part in [*shown, *([others] if others else [])]
    )


def _is_text(part: JsonValue) -> bool:
    return isinstance(part, dict) and isinstance(part.get("text"), str)


def _indented(value: JsonValue) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
