"""What a tool's result is about: its call, and the file or the command that the call's arguments name.

Masks (``core/planning/masks.py``) ask which result supersedes another. A summary names the results that a model can
read again (``with_results``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from tidemark.core.conversation.exact_results import calls_by_result
from tidemark.core.conversation.messages import JsonValue, Message, ToolCall
from tidemark.core.recall.passage import handle_of

LABEL_CHARS = 48
"""The most characters of a call's argument in a label."""
LEAST_CHARS = 240
"""A shorter result needs no handle: if it matters, a summary quotes all of it."""
_PATH_NAMES = ("path", "file_path", "filepath", "filename", "file", "notebook_path", "target_file", "relative_path")


def subjects_of(call: ToolCall) -> list[tuple[str, str]]:
    """Return what a call is about: the call itself, and the file that its arguments name."""
    path = _path_in(_arguments(call))
    return [("call", f"{call.name} {call.arguments}"), *([("file", path)] if path else [])]


def label_of(call: ToolCall) -> str:
    """Return a call in a few words: its name, and its file or its first argument that is a text."""
    arguments = _arguments(call)
    texts = (value for value in arguments.values() if isinstance(value, str) and value)
    words = " ".join(f"{call.name} {_path_in(arguments) or next(texts, '')}".replace(";", ",").split())
    longest = len(call.name) + 1 + LABEL_CHARS
    return words if len(words) <= longest else f"{words[:longest]}..."


def with_results(earlier: Sequence[str], messages: Sequence[Message], most: int) -> tuple[str, ...]:
    """Return the results that can be read again, each as its handle and its call.

    The newest come last, and of results with one label it alone is named.

    :param earlier: those that the summary before names
    :param messages: those that the next summary stands for beyond that one
    :param most: how many may be named; the newest are
    """
    newest: dict[str, str] = {}
    # From the newest on, so that no more calls are read than are named.
    for place, call in reversed(list(calls_by_result(messages))):
        result = messages[place]
        if len(newest) < most and call is not None and len(result.text) >= LEAST_CHARS:
            label = label_of(call)
            newest.setdefault(label, f"{handle_of(result)} {label}")
    for entry in reversed(earlier):
        if len(newest) < most:
            newest.setdefault(entry.partition(" ")[2], entry)
    return tuple(newest.values())[::-1]


def _arguments(call: ToolCall) -> Mapping[str, JsonValue]:
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        return {}
    return arguments if isinstance(arguments, dict) else {}


def _path_in(arguments: Mapping[str, JsonValue]) -> str:
    return next((path for name in _PATH_NAMES if isinstance(path := arguments.get(name), str)), "")
