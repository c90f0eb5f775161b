"""Puts a reply's items together from the events of a stream, for upstreams whose last event does not repeat them.

``reply.py`` gives it every event but the last one. Source: OpenAI API reference, "Streaming events".
"""

from __future__ import annotations

from typing import Any

import msgspec

from tidemark.core.conversation.messages import JsonValue


class StreamEvent(msgspec.Struct):
    """The members of an event that are read."""

    type: Any = None
    response: msgspec.Raw = msgspec.Raw()
    item: Any = None
    item_id: Any = None
    output_index: Any = None
    content_index: Any = None
    delta: Any = None
    text: Any = None
    refusal: Any = None
    arguments: Any = None
    input: Any = None
    error: Any = None
    code: Any = None
    message: Any = None
    param: Any = None


_PIECES = {
    "response.output_text": "output_text",
    "response.refusal": "refusal",
    "response.function_call_arguments": "arguments",
    "response.mcp_call_arguments": "arguments",
    "response.custom_tool_call_input": "input",
}
"""What the pieces of an event are of, by the event's type without ``.delta`` or ``.done``."""


class PartialItems:
    """The items of a stream so far. A whole item replaces its pieces."""

    def __init__(self) -> None:
        self._places: dict[str, int] = {}
        """The places of items by id, for upstreams that do not number them (llama.cpp)."""
        self._done: dict[int, dict[str, JsonValue]] = {}
        self._open_items: dict[int, dict[str, JsonValue]] = {}
        self._pieces: dict[int, dict[tuple[int, str], list[str]]] = {}
        """Pieces by the item's place, and by the part's place and kind."""

    def add(self, kind: str, event: StreamEvent) -> None:
        """Take in one event; those without a part of an item say nothing that a later event does not."""
        place = self.place_of(event)
        if kind == "response.output_item.done" and isinstance(event.item, dict):
            self._done[place] = event.item
            self._pieces.pop(place, None)
        elif kind == "response.output_item.added" and isinstance(event.item, dict):
            self._open_items[place] = event.item
        else:
            self._add_piece(kind, place, event)

    def place_of(self, event: StreamEvent) -> int:
        if isinstance(event.output_index, int):
            return event.output_index
        item_id = event.item.get("id") if isinstance(event.item, dict) else event.item_id
        return self._places.setdefault(item_id, len(self._places)) if isinstance(item_id, str) else 0

    def output(self) -> list[dict[str, JsonValue]]:
        """Return the items in order; those without an end have what came of them."""
        places = sorted(self._done.keys() | self._open_items.keys() | self._pieces.keys())
        return [self._done[place] if place in self._done else self._open_item(place) for place in places]

    def _add_piece(self, kind: str, place: int, event: StreamEvent) -> None:
        name, _, phase = kind.rpartition(".")
        member = _PIECES.get(name)
        if member is None or place in self._done:
            return
        part = event.content_index if isinstance(event.content_index, int) else 0
        pieces = self._pieces.setdefault(place, {}).setdefault((part, member), [])
        if phase == "delta" and isinstance(event.delta, str):
            pieces.append(event.delta)
        elif phase == "done":
            whole = {"output_text": event.text, "refusal": event.refusal}.get(member, event.arguments or event.input)
            if isinstance(whole, str):
                pieces[:] = [whole]

    def _open_item(self, place: int) -> dict[str, JsonValue]:
        """Return an item that was not ended, with its pieces."""
        item = dict(self._open_items.get(place) or {"type": "message", "role": "assistant"})
        content: list[JsonValue] = []
        for (_, kind), pieces in sorted(self._pieces.get(place, {}).items()):
            text = "".join(pieces)
            if kind == "output_text":
                content.append({"type": "output_text", "text": text, "annotations": []})
            elif kind == "refusal":
                content.append({"type": "refusal", "refusal": text})
            else:
                item[kind] = text
        if content:
            item["content"] = content
        return item
