"""Reads content blocks of the Messages API as parts of a core message, and writes such parts as blocks again.

``message.py`` reads the blocks of each new message with it, and ``writing.py`` writes those of other dialects. A part
has the form of chat completions if that format has one, so that equal messages of both dialects have one digest.
Source: Anthropic API reference, "Create a Message", ``messages.content``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping

from tidemark.core.conversation.digest import Part
from tidemark.core.conversation.messages import JsonValue, ToolCall, kind_of
from tidemark.core.errors import InvalidRequest

REASONING = frozenset({"thinking", "redacted_thinking"})
"""Blocks that models write for themselves. They are billed, and no part of what a message means."""
_NO_MEANING = frozenset({"cache_control", "citations"})
"""Members of a block that clients add or drop on echo."""
_DATA_URL = "data:"
_BASE64 = ";base64,"
_OWN = frozenset({"document", "image", "search_result", "tool_reference", "container_upload"})
"""Blocks of this format that a message of the user may have, besides texts."""


def content_blocks(content: JsonValue, where: str) -> list[Mapping[str, JsonValue]]:
    """Return the blocks of a content, which is a string, a list of blocks or null.

    :param where: the place of the content, for the error's ``param``
    :raises InvalidRequest: it is none of these, or a block has no type
    """
    if content is None:
        return []
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        raise InvalidRequest(f"{where} must be a string or a list of blocks.", param=where, code="invalid_type")
    for place, block in enumerate(content):
        if not isinstance(block, dict):
            raise InvalidRequest(
                f"Each content block must be an object; {where}.{place} is not.",
                param=f"{where}.{place}",
                code="invalid_type",
            )
        string_of(block, "type", f"{where}.{place}")
    return content


def part_of(block: Mapping[str, JsonValue], where: str) -> Part:
    """Return a block as a part: a text, the form of chat completions, or the client's own block.

    :raises InvalidRequest: a text block has no text
    """
    kind = block["type"]
    if kind == "text":
        return string_of(block, "text", where)
    if kind == "compaction" and isinstance(text := block.get("content"), str):
        return text  # what a provider wrote in place of earlier messages
    source = block.get("source")
    if isinstance(source, dict):
        if kind == "image" and (url := _url_of(source)):
            return {"type": "image_url", "image_url": {"url": url}}
        if kind == "document" and not (block.get("context") or block.get("citations")):
            file = _file_of(source, block.get("title"))
            if file is not None:
                return {"type": "file", "file": file}
    return significant(block)


def significant(block: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
    """Return a block without what clients add or drop on echo: nulls and cache marks."""
    return {
        name: significant(value) if isinstance(value, dict) else value
        for name, value in block.items()
        if value is not None and name not in _NO_MEANING
    }


def call_of(block: Mapping[str, JsonValue], where: str) -> ToolCall:
    """Return a ``tool_use`` block as a call; its input becomes compact JSON.

    :raises InvalidRequest: the id or the name is no string
    """
    arguments = json.dumps(block.get("input") or {}, ensure_ascii=False, separators=(",", ":"))
    return ToolCall(string_of(block, "id", where), string_of(block, "name", where), arguments)


def reasoning_part(block: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return what is counted of a thinking block: its text or its sealed data, without the signature."""
    return {name: value for name, value in block.items() if name in ("type", "thinking", "data")}


def string_of(value: Mapping[str, JsonValue], name: str, where: str) -> str:
    """Return a member that must be a string.

    :raises InvalidRequest: it is missing, or of another type
    """
    text = value.get(name)
    if not isinstance(text, str):
        code = "invalid_type" if name in value else "missing_required_parameter"
        raise InvalidRequest(f"{where}.{name} must be a string.", param=f"{where}.{name}", code=code)
    return text


def block_of(part: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Write a part of a user's message or of a result as a block.

    A text names what the format has no place for.
    """
    kind = kind_of(part)
    body = part.get("image_url") if kind == "image_url" else part.get("file")
    if kind == "image_url" and isinstance(body, dict):
        return {"type": "image", "source": _image_source(str(body.get("url", "")))}
    if kind == "file" and isinstance(body, dict):
        return _document(body)
    return part if kind in _OWN else {"type": "text", "text": f"[{kind or 'attachment'}]"}


def _url_of(source: Mapping[str, JsonValue]) -> str:
    """Return the URL of an image: its address or a data URL. It is empty for a file that Anthropic keeps."""
    if source.get("type") == "base64":
        return f"{_DATA_URL}{source.get('media_type')}{_BASE64}{source.get('data')}"
    url = source.get("url")
    return url if isinstance(url, str) else ""


def _file_of(source: Mapping[str, JsonValue], title: JsonValue) -> Mapping[str, JsonValue] | None:
    """Return a document as a file of chat completions; None for texts and addresses, which that format lacks."""
    file: dict[str, JsonValue] = {"filename": title} if isinstance(title, str) and title else {}
    if source.get("type") == "base64":
        return {**file, "file_data": _url_of(source)}
    if source.get("type") == "file":
        return {**file, "file_id": source.get("file_id")}
    return None


def _image_source(url: str) -> Mapping[str, JsonValue]:
    head, comma, data = url.partition(_BASE64)
    if comma and head.startswith(_DATA_URL):
        return {"type": "base64", "media_type": head.removeprefix(_DATA_URL), "data": data}
    return {"type": "url", "url": url}


def _document(file: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Write a file of chat completions as a document."""
    title = {"title": file["filename"]} if isinstance(file.get("filename"), str) else {}
    data, name = file.get("file_data"), file.get("file_id")
    if isinstance(name, str):
        return {"type": "document", "source": {"type": "file", "file_id": name}, **title}
    return {"type": "document", "source": _image_source(data if isinstance(data, str) else ""), **title}
