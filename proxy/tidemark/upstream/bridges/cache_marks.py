"""Carries the client's cache marks to Claude behind litellm, which takes them in chat messages, too.

Without them Bedrock and Vertex would read a long conversation anew with each request. Source: Anthropic's guide "Prompt
caching"; litellm's guide "Prompt caching", ``cache_control``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from tidemark.core.conversation.messages import JsonValue
from tidemark.dialects.raw_json import read_json
from tidemark.upstream.bridges.values import Members, object_of, objects_of

NAME = "cache_control"
CACHE_MARK = b'"cache_control"'
"""In the bytes of a request that has any."""
Mark = Mapping[str, JsonValue]


def mark_of(raw: bytes) -> Mark | None:
    """Return the last cache mark in a message's own bytes; None without one."""
    if CACHE_MARK not in raw:
        return None
    return last_mark(object_of(read_json(raw)).get("content"))


def last_mark(blocks: JsonValue) -> Mark | None:
    """Return the last cache mark of some blocks; None without one."""
    marks = [block[NAME] for block in objects_of(blocks) if isinstance(block.get(NAME), dict)]
    return object_of(marks[-1]) if marks else None


def with_mark(raw: bytes, mark: Mark) -> bytes:
    """Return a chat message with a mark: on its last part, or on itself where its content is a text."""
    message: dict[str, Any] = json.loads(raw)
    content = message.get("content")
    if isinstance(content, list) and content and isinstance(content[-1], dict):
        content[-1] = {**content[-1], NAME: mark}
    else:
        message[NAME] = mark
    return json.dumps(message).encode()


def with_tool_marks(tools: JsonValue, original: JsonValue) -> JsonValue:
    """Return chat tools with the marks of the client's.

    :param tools: as chat completions has them
    :param original: as the client sent them, perhaps with tools that were left out
    """
    marks = {tool.get("name"): tool[NAME] for tool in objects_of(original) if isinstance(tool.get(NAME), dict)}
    marked: list[JsonValue] = []
    for tool in objects_of(tools):
        mark = marks.get(object_of(tool.get("function")).get("name"))
        members: Members = {**tool, NAME: mark} if mark is not None else {**tool}
        marked.append(members)
    return marked
