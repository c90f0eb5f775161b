"""Reads the content of an item as texts and other parts.

The other parts have the form of chat completions if there is one. ``items.py`` calls it for each new item of a
request. Each medium has one form, so that a conversation has the same digest in two dialects. Source: OpenAI API
reference, "Create a model response", ``input``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tidemark.core.conversation.digest import Part
from tidemark.core.conversation.messages import JsonValue, printable
from tidemark.core.errors import InvalidRequest

TEXTS: Mapping[str, str] = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
    "refusal": "refusal",
}
"""The member with the text, by the type of a part."""
_IGNORED = ("annotations", "cache_control", "logprobs", "prompt_cache_breakpoint")
"""Members of a part that clients drop or add on echo."""
_FILE_MEMBERS = ("file_data", "file_id", "filename")
"""All members of a file in chat completions; a file with others has no form there."""


def content_parts(content: JsonValue, where: str) -> list[Part]:
    """Return the texts and other parts of a content, which may be a string, a list of parts or null.

    :param where: the content's place, for the error's ``param``
    :raises InvalidRequest: the content has another type
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [content] if content else []
    if not isinstance(content, list):
        raise InvalidRequest(f"{where} must be a string or a list of parts.", param=where, code="invalid_type")
    parts: list[Part] = []
    for place, part in enumerate(content):
        if not isinstance(part, dict):
            raise InvalidRequest(
                f"Each content part must be an object; {where}[{place}] is not.",
                param=f"{where}[{place}]",
                code="invalid_type",
            )
        read = _part(part)
        if read != "":
            parts.append(read)
    return parts


def _part(part: Mapping[str, JsonValue]) -> Part:
    """Return a part as a text, or in the form of chat completions, if it has one there."""
    kind = part.get("type")
    text = part.get(TEXTS[kind]) if isinstance(kind, str) and kind in TEXTS else None
    if isinstance(text, str):
        return text
    if kind in ("input_image", "computer_screenshot"):
        return _image(part)
    if kind == "input_file":
        return _file(part)
    return {name: value for name, value in part.items() if name not in _IGNORED}


def _image(part: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return an image. ``auto`` is the default of ``detail``, which clients of chat completions leave out."""
    url, detail = part.get("image_url"), part.get("detail")
    if not isinstance(url, str):
        return {name: value for name, value in part.items() if value is not None and name not in _IGNORED}
    image: dict[str, JsonValue] = {"url": url}
    if detail not in (None, "auto"):
        image["detail"] = detail
    return {"type": "image_url", "image_url": image}


def _file(part: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    members = {name: value for name, value in part.items() if name not in ("type", *_IGNORED) and value is not None}
    if members and members.keys() <= set(_FILE_MEMBERS):
        return {"type": "file", "file": members}
    return {"type": "input_file", **members}


def item_part(part: Mapping[str, JsonValue]) -> JsonValue:
    """Return a medium of any dialect as a part of an item, if it has a form there."""
    body = part.get("image_url") if part.get("type") == "image_url" else part.get("file")
    if part.get("type") == "image_url" and isinstance(body, dict) and isinstance(body.get("url"), str):
        return {"type": "input_image", "image_url": body["url"], "detail": body.get("detail", "auto")}
    if part.get("type") == "file" and isinstance(body, dict):
        return {"type": "input_file", **body}
    return part


def printable_parts(parts: list[Mapping[str, JsonValue]]) -> list[Mapping[str, JsonValue]]:
    """Return the parts with U+FFFD for each unpaired surrogate."""
    return [json.loads(printable(json.dumps(part, ensure_ascii=False))) for part in parts]


def without_nulls(value: JsonValue) -> JsonValue:
    """Return a value without the members that are null, at any depth."""
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {name: without_nulls(item) for name, item in value.items() if item is not None}
