"""Reads messages and streams over the rounds in which the model searches, and passes on what is the client's.

``dialect.py`` begins it. The client gets neither the calls of the search function nor the thinking that led to
them alone, and the thinking of one round at most: providers refuse an answer that comes back with thinking which the
model did not write at once. A text never waits; thinking waits until the next block shows whether it led to a search.
Source: Anthropic API reference, "Create a Message" (the response) and "Streaming messages"; its guide "Extended
thinking".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.recall.search_function import FUNCTION_NAME
from tidemark.dialects.bodies import encode_json, event_of
from tidemark.dialects.messages.blocks import REASONING
from tidemark.dialects.messages.reply import MessageFold, fold_body
from tidemark.dialects.raw_json import decode_or_none
from tidemark.dialects.searching import sum_of
from tidemark.dialects.sse import EVENTS, payload_of

_HEAD = ("id", "model")
"""The members that the client has of the first round."""
_CUT_SHORT = ("max_tokens", "model_context_window_exceeded", "pause_turn", "refusal")
"""Reasons to stop with which a call is not whole, or not the model's last word."""
Data = dict[str, JsonValue]
"""The data of an event, decoded."""


class SearchedMessageBody:
    """``SearchedReply`` that is not streamed. Its state is what the rounds before brought."""

    def __init__(self) -> None:
        self.calls: Message | None = None
        self._head: dict[str, JsonValue] = {}
        self._blocks: list[JsonValue] = []
        """The client's, of all earlier rounds."""
        self._usage: Mapping[str, JsonValue] = {}
        self._is_later = False
        """Whether a round came before the present one."""
        self._body: dict[str, JsonValue] = {}
        """The body of the newest round."""

    def read(self, data: bytes) -> bytes:
        """Return the client's message; nothing if the round only searches. A plain answer keeps its bytes."""
        body = decode_or_none(data)
        content = body.get("content") if isinstance(body, dict) else None
        if not isinstance(body, dict) or not isinstance(content, list):
            return data
        self._body = body
        message = fold_body(data).message
        if asks_to_search(message, body.get("stop_reason")):
            self.calls = message
            self._head = self._head or {name: body[name] for name in _HEAD if name in body}
            return b""
        if not self._is_later and not any(isinstance(block, dict) and is_search(block) for block in content):
            return data
        return self._write(ends=False)

    def next_round(self) -> None:
        self._blocks += self._clients(is_over=False)
        self._usage = sum_of(self._usage, _usage_of(self._body))
        self.calls, self._is_later = None, True

    def end(self) -> bytes:
        """Return the newest message without its calls, as one that has ended."""
        self.calls = None
        return self._write(ends=True)

    def _write(self, *, ends: bool) -> bytes:
        """Write the newest message for the client.

        :param ends: whether nothing is left to call, so that the model just stopped
        """
        body = {**self._body, **self._head}
        body["content"] = self._blocks + self._clients(is_over=True)
        body["usage"] = sum_of(self._usage, _usage_of(body))
        if ends:
            body["stop_reason"] = "end_turn"
        return encode_json(body)

    def _clients(self, *, is_over: bool) -> list[JsonValue]:
        """Return the client's blocks of the newest round."""
        content = self._body.get("content")
        blocks = content if isinstance(content, list) else []
        return clients_blocks(blocks, has_earlier=bool(self._blocks), is_over=is_over)


def _usage_of(body: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    usage = body.get("usage")
    return usage if isinstance(usage, dict) else {}


def is_search(block: Mapping[str, JsonValue]) -> bool:
    """Return whether a block is a call of the search function."""
    return block.get("type") == "tool_use" and block.get("name") == FUNCTION_NAME


def is_thinking(block: Mapping[str, JsonValue]) -> bool:
    """Return whether a block is what the model wrote for itself."""
    return block.get("type") in REASONING


def asks_to_search(message: Message | None, reason: JsonValue) -> bool:
    """Return whether a round that stopped for this reason waits for nothing but searches."""
    calls = message.calls if message is not None else ()
    return bool(calls) and all(call.name == FUNCTION_NAME for call in calls) and reason not in _CUT_SHORT


def clients_blocks(content: Iterable[JsonValue], *, has_earlier: bool, is_over: bool) -> list[JsonValue]:
    """Return the blocks of a round that are the client's.

    :param has_earlier: whether the client has blocks of earlier rounds
    :param is_over: whether no round follows, so that the thinking at the end is the client's too
    """
    blocks: list[JsonValue] = []
    waiting: list[JsonValue] = []
    for block in content:
        if not isinstance(block, dict):
            blocks.append(block)
        elif is_thinking(block):
            waiting += [] if has_earlier else [block]
        elif not is_search(block):
            blocks += [*waiting, block]
            waiting = []
    return blocks + waiting if is_over else blocks


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
        """Return what the client gets when a round ends: nothing if the round asks for searches."""
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
        """The events of blocks of thinking that wait for what follows them, by the upstream's index of the block."""

    def clients_events(self, data: Data, event: bytes) -> bytes:
        """Return what the client gets now when a block begins, goes on or ends."""
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
