"""A second dialect, made for tests: other members, other roles, other events and other errors than chat completions.

    {"model": "small", "turns": [{"who": "human", "says": "Hi."}], "live": true, "at_most": 100}

``"yours": true`` leaves compaction to the provider, and ``"tally": true`` asks for an event with the counts.

A whole reply is ``{"bot": text, "why": "done", "spent": {"in": N, "out": N}}``. A stream has an event ``word`` for each
piece of text, and ``over`` at its end. An error is ``{"problem": {"text": ..., "code": ...}}``.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

from tidemark.core.conversation.digest import meaning
from tidemark.core.conversation.messages import JsonValue, Message, Role
from tidemark.core.conversation.reply import EMPTY_REPLY, Reply
from tidemark.core.conversation.request import ModelRequest
from tidemark.core.conversation.responses import ResponseFormat
from tidemark.core.errors import InvalidRequest, TidemarkError
from tidemark.core.report import OwnAnswer, Usage
from tidemark.dialects.bodies import array_of, array_without, body_of
from tidemark.dialects.members import flag_of, model_of
from tidemark.dialects.raw_json import decode_value, read_elements, read_members

ROLES: Mapping[str, Role] = {"rules": "system", "human": "user", "bot": "assistant"}
NAMES = {role: name for name, role in ROLES.items()}


class ToyDialect:
    """``Dialect``; it has no state."""

    name = "toy"
    path = "/talk"
    messages_member = "turns"
    system_member: str = ""
    tool_members: tuple[str, ...] = ()
    responses: ResponseFormat | None = None
    search_function = None
    bound_thinking = None
    native_compaction = None

    @property
    def stream_counts(self) -> ToyCounts:
        """Return how the counts of a stream are asked for."""
        return ToyCounts()

    async def parse(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> ModelRequest:
        """Parse a body."""
        fields = read_members(body, bounded=bounded, listed="turns")
        if "turns" not in fields:
            raise InvalidRequest("There are no turns.", param="turns", code="missing_required_parameter")
        model = "" if anonymous and "model" not in fields else model_of(fields)
        messages = self.parse_messages(read_elements(fields["turns"]))
        at_most = decode_value(fields["at_most"], "at_most") if "at_most" in fields else None
        limit = at_most if isinstance(at_most, int) else None
        left = "'yours' asks the provider to compact" if flag_of(fields, "yours") else ""
        return ModelRequest(body, fields, model, messages, self, flag_of(fields, "live"), limit, left_to_upstream=left)

    def parse_messages(self, raws: Sequence[bytes]) -> tuple[Message, ...]:
        """Parse single messages."""
        return tuple([self._message(raw) for raw in raws])

    def parse_lines(self, data: bytes) -> list[Message]:
        """Parse an export."""
        return [self._message(line) for line in data.splitlines() if line]

    def request_of(self, model: str, messages: Sequence[Message]) -> ModelRequest:
        """Build the request that a client would send for these messages."""
        fields = {"model": json.dumps(model).encode(), "turns": array_of(self.raws_of(messages))}
        return ModelRequest(body_of(fields, {}), fields, model, tuple(messages), self)

    def body_with(self, request: ModelRequest, messages: Sequence[Message], *, model: str) -> bytes:
        """Write the request's body with other messages and another model."""
        replaced = {"turns": array_of(self.raws_of(messages)), "model": json.dumps(model).encode()}
        return body_of(request.fields, replaced)

    def body_with_model(self, request: ModelRequest, model: str) -> bytes:
        """Write the request's body with another model."""
        return body_of(request.fields, {"model": json.dumps(model).encode()})

    def body_with_raw(self, request: ModelRequest, raws: Sequence[bytes]) -> bytes:
        """Write the request's body with messages that are bytes already."""
        return body_of(request.fields, {"turns": array_of(raws)})

    def raws_of(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the JSON of each message."""
        return [message.raw or turn(NAMES[message.role], message.text) for message in messages]

    def write(self, message: Message) -> bytes:
        """Write a message of any dialect."""
        return turn(NAMES[message.role], message.text)

    def without(self, request: ModelRequest, places: Collection[int]) -> ModelRequest:
        """Remove the messages at these places."""
        after = array_without(request.fields["turns"], request.messages, places)
        fields = {**request.fields, "turns": after}
        messages = tuple([message for place, message in enumerate(request.messages) if place not in places])
        return replace(request, body=body_of(fields, {}), fields=fields, messages=messages)

    def is_message(self, raw: bytes) -> bool:
        """Return whether stored bytes are a message."""
        return b'"who"' in raw

    def as_sent(self, raw: bytes) -> bytes:
        """Return a stored message as a client would send it back."""
        return raw

    def replace_middle(self, message: Message, first: int, last: int, mark: str) -> Message:
        """Replace a part of a message's text."""
        return self._message(turn(NAMES[message.role], message.text[:first] + mark + message.text[last:]))

    def cached_members(self, request: ModelRequest) -> Mapping[str, bytes] | None:
        """Return None: a summarizer is asked in chat completions, so it cannot go on with these bytes."""
        return None

    def fold_body(self, data: bytes) -> Reply:
        """Read a whole reply."""
        body = json.loads(data)
        text = body.get("bot")
        if not isinstance(text, str):
            return EMPTY_REPLY
        return Reply(self._message(turn("bot", text)), complete="why" in body, usage=body.get("spent", {}))

    def fold_stream(self) -> ToyFold:
        """Begin to read a stream."""
        return ToyFold(self)

    def before_end(self, data: bytes) -> bytes:
        """Return the events before ``over``."""
        return data.partition(b"event: over")[0]

    def usage(self, usage: Mapping[str, JsonValue]) -> Usage:
        """Read the provider's counts."""
        taken, given = usage.get("in"), usage.get("out")
        return Usage(taken if isinstance(taken, int) else None, None, given if isinstance(given, int) else None)

    def answer(self, request: ModelRequest, answer: OwnAnswer) -> bytes:
        """Write an answer of Tidemark's own."""
        return json.dumps({"bot": answer.text, "why": "done", "model": request.model}).encode()

    def answer_events(self, request: ModelRequest, answer: OwnAnswer) -> bytes:
        """Write such an answer as a stream."""
        return word(answer.text) + OVER

    def opening_error(self, _data: bytes) -> bytes | None:
        """Each stream of the toy has begun at once."""
        return b""

    def error(self, error: TidemarkError) -> bytes:
        """Write an error."""
        return json.dumps({"problem": {"text": str(error), "code": error.code}}).encode()

    def error_event(self, error: TidemarkError, _previous: bytes = b"") -> bytes:
        """Write an error as an event."""
        return b"event: problem\ndata: " + self.error(error) + b"\n\n"

    def late_reply_event(self, status: int, body: bytes) -> bytes:
        """Write an upstream's whole reply as an event."""
        return b"event: problem\ndata: " + body + b"\n\n"

    def _message(self, raw: bytes) -> Message:
        value = decode_value(raw, "turns")
        if not isinstance(value, dict) or value.get("who") not in ROLES or not isinstance(value.get("says"), str):
            raise InvalidRequest("A turn has a 'who' and a 'says'.", param="turns", code="invalid_type")
        role, text = ROLES[value["who"]], value["says"]
        return Message(raw, role, text, meaning(role, [text], (), answers="", name="", audio=""))


class ToyCounts:
    """``StreamCounts`` of the toy."""

    def asking(self, request: ModelRequest) -> ModelRequest | None:
        """Return a request that asks, unless the client's does."""
        if "tally" in request.fields:
            return None
        fields = {**request.fields, "tally": b"true"}
        return replace(request, fields=fields, body=body_of(fields, {}))

    def leave_out(self, events: bytes) -> bytes:
        """Return the events but those with counts."""
        whole = [event for event in events.split(b"\n\n") if event and not event.startswith(b"event: tally")]
        return b"".join([event + b"\n\n" for event in whole])

    def is_refused(self, body: bytes) -> bool:
        """Return whether a refusal names the member."""
        return b"tally" in body


class ToyFold:
    """Reads a stream of the toy."""

    def __init__(self, dialect: ToyDialect) -> None:
        self.ended = False
        self._dialect = dialect
        self._data = b""

    def may_end_large(self, data: bytes) -> bool:
        """Return False: no toy is large."""
        return False

    def feed(self, data: bytes) -> None:
        """Take in the next bytes."""
        self._data += data
        self.ended = OVER in self._data

    def reply(self) -> Reply:
        """Return what was read."""
        events = list(events_in(self._data))
        text = "".join([str(data["w"]) for name, data in events if name == "word"])
        over = [data for name, data in events if name == "over"]
        problem = next((data for name, data in events if name == "problem"), None)
        tally = next((data for name, data in events if name == "tally"), None)
        spent = tally or (over[0].get("spent") if over else None)
        message = self._dialect.parse_messages([turn("bot", text)])[0]
        return Reply(message, bool(over), spent if isinstance(spent, dict) else {}, problem)


def turn(who: str, text: str) -> bytes:
    """Write one message."""
    return json.dumps({"who": who, "says": text}, ensure_ascii=False).encode()


def word(text: str) -> bytes:
    """Write one event of a stream."""
    return b"event: word\ndata: " + json.dumps({"w": text}).encode() + b"\n\n"


OVER = b'event: over\ndata: {"why": "done", "spent": {"in": 11, "out": 5}}\n\n'


def events_in(data: bytes) -> Iterator[tuple[str, dict[str, JsonValue]]]:
    """Yield the name and the data of every whole event."""
    for event in data.split(b"\n\n"):
        name, _, payload = event.partition(b"\ndata: ")
        if name.startswith(b"event: ") and payload:
            yield name[7:].decode(), json.loads(payload)
