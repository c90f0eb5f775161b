"""Reads a stream of events over the rounds in which the model searches, and passes on what is the client's.

``search_function.py`` begins it. A text never waits. Thinking waits for what it leads to: with a search it is not the
client's. Source: Anthropic API reference, "Streaming messages".
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.dialects.bodies import encode_json, event_of
from tidemark.dialects.messages.reply import MessageFold
from tidemark.dialects.messages.searched_blocks import asks_to_search, is_search, is_thinking
from tidemark.dialects.raw_json import decode_or_none
from tidemark.dialects.searching import sum_of
from tidemark.dialects.sse import EVENTS, payload_of

Data = dict[str, JsonValue]
"""The data of an event, decoded."""


class SearchedMessageStream:
    """``SearchedReply`` of a stream. Its state is the present round, and what those before brought."""

    def __init__(self) -> None:
        self.calls: Message | None = None
        self._round = _MessageRound(0)
        self._usage: Mapping[str, JsonValue] = {}
        """The tokens of all earlier rounds."""
        self._is_later = False
        """Whether a round came before the present one."""

    def read(self, data: bytes) -> bytes:
        """Return the client's events among whole ones; those that need no change keep their bytes."""
        return b"".join([self._read_event(event) for event in EVENTS.findall(data)])

    def next_round(self) -> None:
        """Begin the next round."""
        self._usage = sum_of(self._usage, self._round.fold.usage)
        self.calls, self._is_later = None, True
        self._round = _MessageRound(self._round.next_place)

    def end(self) -> bytes:
        """Return the events that end a stream, as of a model that just stopped."""
        self.calls = None
        ends: Data = {"type": "message_delta", "delta": {"stop_reason": "end_turn", "stop_sequence": None}}
        ends["usage"] = sum_of(self._usage, self._round.fold.usage)
        return self._round.waiting_events() + _event(ends) + _event({"type": "message_stop"})

    def _read_event(self, event: bytes) -> bytes:
        payload = payload_of(event)
        data = decode_or_none(payload) if payload else None
        if not isinstance(data, dict):
            return event if self.calls is None or not payload else b""
        self._round.fold.add(payload)
        if data.get("type") == "error" or "type" not in data:  # an upstream's error in any dialect
            self.calls = None
            return event
        return self._clients_part(data, event) if self.calls is None else b""  # else the round is over

    def _clients_part(self, data: Data, event: bytes) -> bytes:
        """Return what the client gets now of an event."""
        match data["type"]:
            case "message_start":
                return b"" if self._is_later else event
            case "content_block_start" | "content_block_delta" | "content_block_stop":
                return self._round.clients_events(data, event)
            case "message_delta":
                return self._end_round(data, event)
            case "message_stop":
                return self._round.waiting_events() + event
        return event

    def _end_round(self, data: Data, event: bytes) -> bytes:
        """Return what the client gets where a round ends: nothing where the round asks for searches."""
        delta = data.get("delta")
        reason = delta.get("stop_reason") if isinstance(delta, dict) else None
        message = self._round.fold.reply().message if reason else None
        if asks_to_search(message, reason):
            self.calls = message
            return b""
        if self._is_later and reason:
            event = _event({**data, "usage": sum_of(self._usage, self._round.fold.usage)})
        return (self._round.waiting_events() if reason else b"") + event


class _MessageRound:
    """One round of a stream: what came of it, and which of its blocks are the client's.

    :param next_place: the number of blocks that the client has already
    """

    def __init__(self, next_place: int) -> None:
        self.fold = MessageFold()
        self.next_place = next_place
        self._is_thinking_clients = next_place == 0
        self._places: dict[JsonValue, int] = {}
        """The index of each of the client's blocks, by the index that the upstream gave it."""
        self._waiting: dict[JsonValue, list[tuple[Data, bytes]]] = {}
        """The events of thinking of which it is not yet known what it leads to, by the same."""

    def clients_events(self, data: Data, event: bytes) -> bytes:
        """Return what the client gets now where a block begins, goes on or ends."""
        index = data.get("index")
        if data.get("type") == "content_block_start":
            block = data.get("content_block")
            block = block if isinstance(block, dict) else {}
            if is_thinking(block):
                if self._is_thinking_clients:
                    self._waiting[index] = [(data, event)]
                return b""
            if is_search(block):
                return b""
            return self.waiting_events() + self._placed(data, event)
        if index in self._waiting:
            self._waiting[index].append((data, event))
            return b""
        return self._placed(data, event) if index in self._places else b""

    def waiting_events(self) -> bytes:
        """Return the events of thinking that waited."""
        waiting, self._waiting = self._waiting, {}
        return b"".join([self._placed(data, event) for events in waiting.values() for data, event in events])

    def _placed(self, data: Data, event: bytes) -> bytes:
        """Return an event with the index that its block has for the client."""
        index = data.get("index")
        if index not in self._places:
            self._places[index] = self.next_place
            self.next_place += 1
        place = self._places[index]
        return event if place == index else _event({**data, "index": place})


def _event(data: Data) -> bytes:
    return event_of(str(data["type"]), encode_json(data))
