"""Reads completions and streams over the rounds in which the model searches, and passes on what is the client's.

``dialect.py`` begins it. All rounds have one id, one sum of tokens and one text. A text never waits; the name
in the first piece of a call decides whose it is. The client gets signed thinking of one round at most: of the first
whose text it gets, or else of the last. A provider refuses an answer that comes back with thinking which the model did
not write at once (Anthropic API guide, "Extended thinking"). Source: OpenAI API reference, "The chat completion object"
and "The chat completion chunk object".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.thinking import ANY_SIGNATURE, SIGNATURE
from tidemark.core.recall.search_function import FUNCTION_NAME
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.chat.deltas import PartialObject
from tidemark.dialects.chat.reply import DONE, ChunkFold, fold_body
from tidemark.dialects.raw_json import decode_or_none
from tidemark.dialects.searching import sum_of
from tidemark.dialects.sse import EVENTS, payload_of

_HEAD = ("id", "created", "model", "system_fingerprint")
"""The members that are the same in all chunks of a completion."""
_CUT_SHORT = ("length", "content_filter")
"""Reasons to end with which a call is not whole."""
THINKING = "thinking_blocks"
"""Signed thinking, as litellm gives and takes it."""
PARAGRAPH = "\n\n"
"""Stands between the texts of two rounds."""
Piece = Mapping[str, JsonValue]
"""A piece of a call, as a delta has it."""
_NO_ANSWER = ("role", "reasoning_content", "provider_specific_fields")
"""Members of a delta with which a model does not yet answer; litellm repeats thinking in the last one."""


class RoundsBefore:
    """What the rounds before the present one brought: the head of the first, their text and their tokens."""

    def __init__(self) -> None:
        self.number = 0
        self.head: dict[str, JsonValue] = {}
        self.text = ""
        """Of all earlier rounds, as the client has it."""
        self.usage: Mapping[str, JsonValue] = {}

    def note_head(self, body: Mapping[str, JsonValue]) -> None:
        """Keep the head of the first body or chunk that has one."""
        if not self.head:
            self.head = {name: body[name] for name in _HEAD if name in body}

    def with_head(self, body: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return a body or chunk with the head of the first, and with the tokens of all rounds."""
        members = {name: self.head.get(name, value) for name, value in body.items()}
        usage = members.get("usage")
        if isinstance(usage, dict) and self.usage:
            members["usage"] = sum_of(self.usage, usage)
        return members

    def separator(self, text: str) -> str:
        """Return what goes before the first text of a round."""
        return PARAGRAPH if self.text and text and not self.text[-1].isspace() and not text[0].isspace() else ""

    def add(self, message: Message | None, usage: Mapping[str, JsonValue]) -> None:
        self.number += 1
        if message is not None:
            self.text += self.separator(message.text) + message.text
        self.usage = sum_of(self.usage, usage)


def is_search(call: Mapping[str, JsonValue]) -> bool:
    """Return whether a call, or what has come of it, is one of the search function."""
    return name_of(call) == FUNCTION_NAME


def name_of(call: Mapping[str, JsonValue]) -> JsonValue:
    """Return the name of a call's function; None if there is none yet."""
    for kind in ("function", "custom"):
        body = call.get(kind)
        if isinstance(body, dict) and body.get("name"):
            return body["name"]
    return None


def asks_to_search(searches: Iterable[bool], reason: JsonValue) -> bool:
    """Return whether a round that ended for this reason waits for nothing but searches.

    :param searches: for each call whether it is one
    """
    calls = list(searches)
    return bool(calls) and all(calls) and reason not in _CUT_SHORT


class SearchedBody:
    """``SearchedReply`` that is not streamed. Its state is what the rounds before brought."""

    def __init__(self) -> None:
        self.calls: Message | None = None
        self._before = RoundsBefore()
        self._body: dict[str, JsonValue] = {}
        """The body of the newest round."""
        self._thinking: JsonValue = None
        """Signed thinking of the first round whose text the client gets."""

    def read(self, data: bytes) -> bytes:
        """Return the client's completion; nothing if the round only searches. A plain answer keeps its bytes."""
        body = decode_or_none(data, msgspec.json.decode)
        choice = _choice_of(body)
        if not isinstance(body, dict) or choice is None:
            return data
        self._body = body
        message = choice.get("message")
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        calls = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        searches = [is_search(call) for call in calls]
        if asks_to_search(searches, choice.get("finish_reason")):
            self.calls = fold_body(data, msgspec.json.decode).message
            if self.calls is not None:
                self._before.note_head(body)
                return b""
        if not any(searches) and not self._before.number:
            return data
        return self._write(ends=False)

    def next_round(self) -> None:
        usage, has_text = self._body.get("usage"), bool(self._before.text)
        self._before.add(self.calls, usage if isinstance(usage, dict) else {})
        if self._before.text and not has_text:
            self._thinking = _message_of(self._body).get(THINKING)
        self.calls = None

    def end(self) -> bytes:
        """Return the newest completion without its calls, as one that has ended."""
        self.calls = None
        return self._write(ends=True)

    def _write(self, *, ends: bool) -> bytes:
        """Write the newest completion for the client.

        :param ends: whether nothing is left to call, so that the model just stopped
        """
        body = self._before.with_head(self._body)
        choice = dict(_choice_of(body) or {})
        members = dict(_message_of(body))
        if self._before.text:
            members.pop(THINKING, None)
            members |= {THINKING: self._thinking} if self._thinking else {}
        listed = members.pop("tool_calls", None)
        calls = [call for call in (listed if isinstance(listed, list) else ()) if isinstance(call, dict)]
        if remaining := [call for call in calls if not is_search(call)]:
            members["tool_calls"] = _signed(remaining, calls)
        text = members.get("content")
        if isinstance(text, str) and text:
            members["content"] = self._before.text + self._before.separator(text) + text
        elif not text and self._before.text:
            members["content"] = self._before.text
        choice["message"] = members
        if ends and choice.get("finish_reason") == "tool_calls":
            choice["finish_reason"] = "stop"
        body["choices"] = [choice]
        return encode_json(body)


def _signed(calls: Sequence[Piece], all_calls: Iterable[Piece]) -> list[Piece]:
    """Return the client's calls, or the first pieces of one; the first is signed if a search beside it was.

    :param all_calls: of the answer
    """
    is_lost = SIGNATURE not in calls[0] and any(is_search(call) and SIGNATURE in call for call in all_calls)
    return [{**calls[0], **ANY_SIGNATURE}, *calls[1:]] if is_lost else [*calls]


def _message_of(body: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the message of a completion; an empty one if it has none."""
    message = (_choice_of(body) or {}).get("message")
    return message if isinstance(message, dict) else {}


def _choice_of(body: object) -> dict[str, JsonValue] | None:
    """Return the one choice of a completion or a chunk; None for a chunk of counts."""
    choices = body.get("choices") if isinstance(body, dict) else None
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    return choice if isinstance(choice, dict) else None


class SearchedStream:
    """``SearchedReply`` of a stream. Its state is the present round, and what those before brought."""

    def __init__(self) -> None:
        self.calls: Message | None = None
        self._before = RoundsBefore()
        self._round = _Round()
        self._has_role = False
        """Whether the client has the role, which begins a message."""

    def read(self, data: bytes) -> bytes:
        """Return the client's events among whole ones; those that need no change keep their bytes."""
        return b"".join([self._read_event(event) for event in EVENTS.findall(data)])

    def next_round(self) -> None:
        self._before.add(self.calls, self._round.fold.usage)
        self.calls, self._round = None, _Round()

    def end(self) -> bytes:
        """Return the events that end a stream, as of a model that just stopped."""
        self.calls = None
        head = {**self._before.head, "object": "chat.completion.chunk"}
        choices: list[JsonValue] = [{"index": 0, "delta": {}, "finish_reason": "stop"}]
        events = [*self._round.thinking, _event({**head, "choices": choices})]
        if self._round.fold.usage:
            usage = sum_of(self._before.usage, self._round.fold.usage)
            events.append(_event({**head, "choices": [], "usage": usage}))
        return b"".join([*events, b"data: ", DONE, b"\n\n"])

    def _read_event(self, event: bytes) -> bytes:
        payload = payload_of(event)
        chunk = decode_or_none(payload, msgspec.json.decode) if payload and payload != DONE else None
        if not isinstance(chunk, dict):
            return b"" if self.calls is not None and payload else event
        self._before.note_head(chunk)
        pieces = self._round.fold_in(chunk)
        if self.calls is not None and self._round.fold.error is None:
            return b""  # the round is over, and this is its usage
        self.calls = None
        choice: Mapping[str, JsonValue] | None = _choice_of(chunk)
        if choice is not None and _thinking_of(choice):
            event, choice = self._hold_thinking(event, chunk, choice)
        changed = None if choice is None else self._changed(choice, pieces)
        thinking = b"" if changed is None else self._thinking_before(changed)
        if changed is choice:
            return thinking + (_event(self._before.with_head(chunk)) if self._before.number and event else event)
        if changed is None:
            return b""
        if self._round.is_searching:  # its usage is added to that of the rounds that follow
            chunk.pop("usage", None)
        return thinking + _event({**self._before.with_head(chunk), "choices": [changed]})

    def _hold_thinking(
        self, event: bytes, chunk: dict[str, JsonValue], choice: Mapping[str, JsonValue]
    ) -> tuple[bytes, Mapping[str, JsonValue]]:
        """Hold the thinking of a choice until it is known what it leads to.

        :returns: what is left of event and choice
        """
        blocks, delta = _thinking_of(choice), choice.get("delta")
        rest = {name: value for name, value in delta.items() if name != THINKING} if isinstance(delta, dict) else {}
        says = _says(rest) or bool(choice.get("finish_reason"))
        if not self._before.text:
            whole = event if not says and not self._before.number else self._thinking_event(blocks)
            self._round.thinking.append(whole)
        choice = {**choice, "delta": rest}
        chunk["choices"] = [choice]
        return _event(chunk) if says else b"", choice

    def _thinking_before(self, choice: Mapping[str, JsonValue]) -> bytes:
        """Return the events of the thinking that waited, if this choice makes it the client's."""
        delta = choice.get("delta")
        own = (
            {name: value for name, value in delta.items() if name not in _NO_ANSWER} if isinstance(delta, dict) else {}
        )
        if not (choice.get("finish_reason") or _says(own)):
            return b""
        waiting, self._round.thinking = self._round.thinking, []
        return b"".join(waiting)

    def _thinking_event(self, blocks: JsonValue) -> bytes:
        choice: dict[str, JsonValue] = {"index": 0, "delta": {THINKING: blocks}, "finish_reason": None}
        return _event({**self._before.head, "object": "chat.completion.chunk", "choices": [choice]})

    def _changed(self, choice: Mapping[str, JsonValue], pieces: list[Piece]) -> Mapping[str, JsonValue] | None:
        """Return the client's part of a choice; None if nothing of it is."""
        reason, own = choice.get("finish_reason"), choice.get("delta")
        delta = dict(own) if isinstance(own, dict) else {}
        if reason:
            pieces = [*pieces, *self._round.nameless()]
            if asks_to_search(self._round.searches(), reason):
                self.calls = self._round.fold.reply().message
                self._round.is_searching = self.calls is not None
                reason = None if self._round.is_searching else reason
        if "tool_calls" in delta and delta["tool_calls"] != pieces:
            del delta["tool_calls"]
        if pieces:
            delta["tool_calls"] = pieces
        self._continue_message(delta)
        if delta == own and reason == choice.get("finish_reason"):
            return choice
        return {**choice, "delta": delta, "finish_reason": reason} if reason or _says(delta) else None

    def _continue_message(self, delta: dict[str, JsonValue]) -> None:
        """Let the delta of a later round go on with the message of the first."""
        if "role" in delta:
            if self._has_role:
                del delta["role"]
            self._has_role = True
        text = delta.get("content")
        if self._before.number and isinstance(text, str) and text and not self._round.has_text:
            delta["content"] = self._before.separator(text) + text
        self._round.has_text = self._round.has_text or bool(text)


class _Round:
    """One round of a stream: what came of it, and whose its calls are."""

    def __init__(self) -> None:
        self.fold = _CallingFold()
        self.has_text = False
        self.is_searching = False
        """Whether the round has ended in searches alone."""
        self._places: dict[int, int] = {}
        """The index that each call of the client's has for the client, by the identity of the call."""
        self.thinking: list[bytes] = []
        """Events with signed thinking that wait: only what follows says whether the client gets them."""
        self._searches: set[int] = set()
        """The calls that are searches, by their identity, too."""
        self._waiting: dict[int, list[Piece]] = {}
        """The pieces of calls that have no name yet."""

    def fold_in(self, chunk: Mapping[str, JsonValue]) -> list[Piece]:
        """Take in a chunk, and return the pieces of the client's calls in it."""
        self.fold.pieces = []
        self.fold.add(chunk)
        clients: list[Piece] = []
        for piece, call in self.fold.pieces:
            own = id(call)
            if own in self._places:
                clients += self._placed(call, [piece])
            elif own not in self._searches:
                clients += self._decided(call, piece)
        return clients

    def _decided(self, call: PartialObject, piece: Piece) -> list[Piece]:
        """Return the pieces of a call so far if its name is there, and is none of the search function."""
        waiting = [*self._waiting.pop(id(call), ()), piece]
        value = call.value()
        if is_search(value):
            self._searches.add(id(call))
            return []
        if name_of(value) is None:
            self._waiting[id(call)] = waiting
            return []
        return self._placed(call, waiting)

    def nameless(self) -> list[Piece]:
        """Return the pieces that still wait; a call without a name is the client's."""
        return [piece for call in self.fold.calls for piece in self._placed(call, self._waiting.pop(id(call), []))]

    def searches(self) -> list[bool]:
        """Return for each call of the round whether it is a search."""
        return [is_search(call.value()) for call in self.fold.calls]

    def _placed(self, call: PartialObject, pieces: list[Piece]) -> list[Piece]:
        """Return pieces of a call with the index that it has among the client's calls."""
        if not pieces:
            return []
        if not self._places:
            pieces = _signed(pieces, [whole.value() for whole in self.fold.calls])
        place = self._places.setdefault(id(call), len(self._places))
        return [piece if piece.get("index") == place else {**piece, "index": place} for piece in pieces]


class _CallingFold(ChunkFold):
    """Folds a stream, and notes to which call each piece belongs."""

    def __init__(self) -> None:
        super().__init__()
        self.pieces: list[tuple[Piece, PartialObject]] = []
        """Of the newest chunk, with their calls."""

    def call_for(self, piece: Mapping[str, JsonValue], position: int) -> PartialObject:
        call = super().call_for(piece, position)
        self.pieces.append((piece, call))
        return call


def _thinking_of(choice: Mapping[str, JsonValue]) -> JsonValue:
    """Return the signed thinking in a choice; None if it has none."""
    delta = choice.get("delta")
    return delta.get(THINKING) if isinstance(delta, dict) else None


def _says(delta: Mapping[str, JsonValue]) -> bool:
    """Return whether a delta has something beside empty members."""
    return any(value not in (None, "", [], {}) for value in delta.values())


def _event(chunk: Mapping[str, JsonValue]) -> bytes:
    return b"data: " + encode_json(dict(chunk)) + b"\n\n"
