"""Reads a stream of events over the rounds in which the model searches, and passes on what is the client's.

``search_function.py`` begins it. A text never waits. Reasoning waits for what it leads to: with a search it is not the
client's. Items and events are numbered through all rounds. Source: OpenAI API reference, "Streaming events".
"""

from __future__ import annotations

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.dialects.bodies import encode_json, event_of
from tidemark.dialects.raw_json import decode_or_none
from tidemark.dialects.responses.partial_items import PartialItems
from tidemark.dialects.responses.reply import FINAL_KINDS, EventFold, StreamEvent, read_struct
from tidemark.dialects.responses.searched_rounds import (
    ResponseRounds,
    asks_to_search,
    is_reasoning,
    is_search,
    without_function,
)
from tidemark.dialects.sse import EVENTS, payload_of

Data = dict[str, JsonValue]
"""The data of an event, decoded."""
_PRELUDE = frozenset({"response.created", "response.queued", "response.in_progress"})
_OF_AN_ITEM = ("output_index", "item_id", "item")
"""Members of an event that belongs to an item; an upstream may leave out some."""


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
        """Begin the next round."""
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
        """Return what the client gets where a round ends: nothing where the round asks for searches."""
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

        :param events: the data of each, with its bytes where these have not changed
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
        """The events of reasoning of which it is not yet known what it leads to, by the same."""

    def add(self, payload: bytes, kind: str) -> None:
        """Take in an event."""
        self.fold.add(payload)
        self._event = read_struct(payload, StreamEvent)
        if self._event is not None and kind not in FINAL_KINDS:
            self._items.add(kind, self._event)

    def output(self) -> list[JsonValue]:
        """Return the items of the round."""
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
