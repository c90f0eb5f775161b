"""Reads responses and streams over the rounds in which the model searches, and passes on what is the client's.

``dialect.py`` begins it. The client gets neither the calls of the search function, nor the reasoning that led
to them alone, nor the function among the tools that a response repeats. A text never waits; reasoning waits until the
next item shows whether it led to a search. Items and events are numbered through all rounds. Source: OpenAI API
reference, "The response object" and "Streaming events".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.recall.search_function import FUNCTION_NAME
from tidemark.dialects.bodies import encode_json, event_of
from tidemark.dialects.raw_json import decode_or_none
from tidemark.dialects.responses.partial_items import PartialItems, StreamEvent
from tidemark.dialects.responses.reply import FINAL_KINDS, EventFold, fold_body, read_struct
from tidemark.dialects.searching import sum_of
from tidemark.dialects.sse import EVENTS, payload_of

_NAME = FUNCTION_NAME.encode()
Response = Mapping[str, JsonValue]
"""A response object, decoded."""
_HEAD = ("id", "created_at", "model", "tools", "tool_choice")
"""The members that the client has of the first round."""
Data = dict[str, JsonValue]
"""The data of an event, decoded."""
_PRELUDE = frozenset({"response.created", "response.queued", "response.in_progress"})
_OF_AN_ITEM = ("output_index", "item_id", "item")
"""Members of an event that belongs to an item; an upstream may leave out some."""


class SearchedResponseBody:
    """``SearchedReply`` that is not streamed. Its state is what the rounds before brought."""

    def __init__(self) -> None:
        self.calls: Message | None = None
        self._before = ResponseRounds()
        self._response: dict[str, JsonValue] = {}
        """Of the newest round."""

    def read(self, data: bytes) -> bytes:
        """Return the client's response; nothing if the round only searches. Bytes without the name stay."""
        response = decode_object(data)
        if response is None or not isinstance(response.get("output"), list):
            return data
        self._before.note_head(response)
        self._response = response
        message = fold_body(data).message
        if asks_to_search(message, response.get("status")):
            self.calls = message
            return b""
        if not self._before.is_later and _NAME not in data:
            return data
        return self._write()

    def next_round(self) -> None:
        usage = self._response.get("usage")
        self._before.add(self._items(), usage if isinstance(usage, dict) else {})
        self.calls = None

    def end(self) -> bytes:
        """Return the newest response without its calls."""
        self.calls = None
        return self._write()

    def _write(self) -> bytes:
        return encode_json(self._before.joined(self._response, self._items()))

    def _items(self) -> list[JsonValue]:
        output = self._response.get("output")
        return output if isinstance(output, list) else []


class ResponseRounds:
    """The rounds of one response: the head of the first, and what those before the present one brought."""

    def __init__(self) -> None:
        self.output: list[JsonValue] = []
        """The client's items of all earlier rounds."""
        self.is_later = False
        """Whether a round came before the present one."""
        self._head: dict[str, JsonValue] = {}
        self._usage: Mapping[str, JsonValue] = {}

    def note_head(self, response: Response) -> None:
        """Keep the head of the first response object."""
        self._head = self._head or {name: response[name] for name in _HEAD if name in response}

    def add(self, items: Iterable[JsonValue], usage: Mapping[str, JsonValue]) -> None:
        """Count a round among those before.

        :param items: of its output
        """
        self.output += clients_items(items, is_over=False)
        self._usage = sum_of(self._usage, usage)
        self.is_later = True

    def joined(self, response: Response, items: Iterable[JsonValue]) -> dict[str, JsonValue]:
        """Return the client's response of all rounds.

        :param response: of the newest round
        :param items: of its output
        """
        members = without_function({**response, **self._head})
        members["output"] = self.output + clients_items(items, is_over=True)
        usage = response.get("usage")
        if isinstance(usage, dict):
            members["usage"] = sum_of(self._usage, usage)
        return members


def is_search(item: Mapping[str, JsonValue]) -> bool:
    """Return whether an item is a call of the search function."""
    return item.get("type") == "function_call" and item.get("name") == FUNCTION_NAME


def is_reasoning(item: Mapping[str, JsonValue]) -> bool:
    """Return whether an item is what the model wrote for itself."""
    return item.get("type") == "reasoning"


def asks_to_search(message: Message | None, status: JsonValue) -> bool:
    """Return whether a round that ended in this state waits for nothing but searches."""
    calls = message.calls if message is not None else ()
    return bool(calls) and all(call.name == FUNCTION_NAME for call in calls) and status in (None, "completed")


def clients_items(items: Iterable[JsonValue], *, is_over: bool) -> list[JsonValue]:
    """Return the items of a round that are the client's; reasoning is, if an item of the client's follows.

    :param is_over: whether no round follows, so that the reasoning at the end is the client's too
    """
    remaining: list[JsonValue] = []
    waiting: list[JsonValue] = []
    for item in items:
        if isinstance(item, dict) and is_reasoning(item):
            waiting.append(item)
        elif not (isinstance(item, dict) and is_search(item)):
            remaining += [*waiting, item]
            waiting = []
    return remaining + waiting if is_over else remaining


def without_function(response: Response) -> dict[str, JsonValue]:
    """Return a response that does not repeat the search function among its tools."""
    members, tools = dict(response), response.get("tools")
    if isinstance(tools, list):
        members["tools"] = [
            tool for tool in tools if not (isinstance(tool, dict) and tool.get("name") == FUNCTION_NAME)
        ]
    return members


class SearchedResponseStream:
    """``SearchedReply`` of a stream. Its state is the present round, what those before brought, and the numbers."""

    def __init__(self) -> None:
        self.calls: Message | None = None
        self._before = ResponseRounds()
        self._round = _ResponseRound(0)
        self._next_number: int | None = None
        """What the next event's ``sequence_number`` has to be; None before the first."""

    def read(self, data: bytes) -> bytes:
        """Return the client's events among whole ones; those that need no change keep their bytes."""
        return b"".join([self._read_event(event) for event in EVENTS.findall(data)])

    def next_round(self) -> None:
        self._before.add(self._round.output(), self._round.fold.reply().usage)
        self.calls = None
        self._round = _ResponseRound(self._round.next_place)

    def end(self) -> bytes:
        """Return the event that ends a stream, with the response as it is without its last calls."""
        self.calls = None
        response = self._before.joined(self._round.response, self._round.output())
        return self._numbered(
            [*self._round.waiting_events(), ({"type": "response.completed", "response": response}, b"")]
        )

    def _read_event(self, event: bytes) -> bytes:
        payload = payload_of(event)
        data = decode_object(payload) if payload else None
        kind = data.get("type") if data is not None else None
        if data is None or not isinstance(kind, str):
            return event if self.calls is None or not payload else b""
        if kind == "error":
            self.calls = None
        if self.calls is not None:
            return b""  # the round is over
        self._round.add(payload, kind)
        if kind in FINAL_KINDS:
            return self._end_round(data, event, kind)
        if kind in _PRELUDE:
            return b"" if self._before.is_later else self._numbered([self._opening(data, event)])
        return self._numbered(self._round.clients_events(data, event))

    def _opening(self, data: Data, event: bytes) -> tuple[Data, bytes]:
        """Return an event that opens the first round, without the function among the tools."""
        response = data.get("response")
        if not isinstance(response, dict):
            return data, event
        self._before.note_head(response)
        own = without_function(response)
        return ({**data, "response": own}, b"") if own != response else (data, event)

    def _end_round(self, data: Data, event: bytes, kind: str) -> bytes:
        """Return what the client gets when a round ends: nothing if the round asks for searches."""
        response = data.get("response")
        self._round.response = response = response if isinstance(response, dict) else {}
        message = self._round.fold.reply().message
        if asks_to_search(message, kind.removeprefix("response.")):
            self.calls = message
            return b""
        if response.get("output") or self._before.is_later:
            joined = self._before.joined(response, self._round.output())
        else:  # nothing came, or the upstream does not repeat it
            joined = without_function(response)
        ends = (data, event) if joined == response else ({**data, "response": joined}, b"")
        return self._numbered([*self._round.waiting_events(), ends])

    def _numbered(self, events: list[tuple[Data, bytes]]) -> bytes:
        """Return events with the numbers that follow; those that have theirs already keep their bytes.

        :param events: the data of each, with its bytes if these have not changed
        """
        return b"".join([self._with_number(data, event) for data, event in events])

    def _with_number(self, data: Data, event: bytes) -> bytes:
        """Return one event with the number that follows; an upstream may number none."""
        number = data.get("sequence_number", self._next_number)
        members = data
        if isinstance(number, int):
            following = number if self._next_number is None else self._next_number
            self._next_number = following + 1
            members = {**data, "sequence_number": following}
        if event and members == data:
            return event
        return event_of(str(data["type"]), encode_json(members))


class _ResponseRound:
    """One round of a stream: what came of it, and which of its items are the client's.

    :param next_place: the number of items that the client has already
    """

    def __init__(self, next_place: int) -> None:
        self.fold = EventFold()
        self.next_place = next_place
        self.response: Data = {}
        """The response object of its last event."""
        self._items = PartialItems()
        self._event: StreamEvent | None = None
        """The newest event."""
        self._places: dict[int, int] = {}
        """The place that each of the client's items has for the client, by its place in the round."""
        self._searches: set[int] = set()
        self._waiting: dict[int, list[tuple[Data, bytes]]] = {}
        """The events of each item of reasoning that waits for what follows it, by its place in the round."""

    def add(self, payload: bytes, kind: str) -> None:
        self.fold.add(payload)
        self._event = read_struct(payload, StreamEvent)
        if self._event is not None and kind not in FINAL_KINDS:
            self._items.add(kind, self._event)

    def output(self) -> list[JsonValue]:
        output = self.response.get("output")
        return output if isinstance(output, list) and output else list(self._items.output())

    def clients_events(self, data: Data, event: bytes) -> list[tuple[Data, bytes]]:
        """Return what the client gets now of an event; one of no item is the client's."""
        if self._event is None or all(data.get(name) is None for name in _OF_AN_ITEM):
            return [(data, event)]
        own, item = self._items.place_of(self._event), data.get("item")
        if isinstance(item, dict) and is_search(item):
            self._searches.add(own)
        if own in self._searches:
            return []
        if own in self._waiting or (isinstance(item, dict) and is_reasoning(item) and own not in self._places):
            self._waiting.setdefault(own, []).append((data, event))
            return []
        return [*self.waiting_events(), self._placed(own, data, event)]

    def waiting_events(self) -> list[tuple[Data, bytes]]:
        """Return the events of reasoning that waited."""
        waiting, self._waiting = self._waiting, {}
        return [self._placed(own, data, event) for own, events in waiting.items() for data, event in events]

    def _placed(self, own: int, data: Data, event: bytes) -> tuple[Data, bytes]:
        """Return an event with the place that its item has for the client."""
        if own not in self._places:
            self._places[own] = self.next_place
            self.next_place += 1
        place = self._places[own]
        return (data, event) if data.get("output_index", place) == place else ({**data, "output_index": place}, b"")


def decode_object(data: bytes) -> Data | None:
    """Decode a JSON object; None for anything else."""
    value = decode_or_none(data)
    return value if isinstance(value, dict) else None
