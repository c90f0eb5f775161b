"""The base of the dialects: all that they do in the same way.

It writes the requests that go upstream. A dialect names its members and its functions as attributes of its class, and
a class of its own writes its errors. ``Dialect`` in ``tidemark/core/conversation/request.py`` says what each is for.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from tidemark.core.conversation.cache_marks import CacheMarks
from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.native import NativeFormat
from tidemark.core.conversation.request import Dialect, ModelRequest, StreamCounts
from tidemark.core.conversation.responses import ResponseFormat
from tidemark.core.report import Usage
from tidemark.dialects.bodies import array_of, array_without, body_of
from tidemark.dialects.marking import with_mark_in_content
from tidemark.dialects.openings import opening_error

HOUR_WRITES = "ephemeral_1h_input_tokens"
"""Anthropic's name of the count of what was written to the cache for an hour."""
MAX_COUNT = 2**53
"""The largest number of tokens that is believed: larger whole numbers cannot be added up exactly."""


class BaseDialect(Dialect):
    """``Dialect``, as far as it is the same in each."""

    text_type = "text"
    """The type of a text among the parts of a system message."""
    responses: ResponseFormat | None = None
    stream_counts: StreamCounts | None = None
    native_compaction: NativeFormat | None = None

    opening_error = staticmethod(opening_error)

    @abstractmethod
    def own_message(self, text: str) -> bytes:
        """Write a message of Tidemark's own."""

    def array(self, messages: Sequence[Message], fields: Mapping[str, bytes] | None = None) -> bytes:
        """Write the member that has the messages.

        :param fields: the client's other members, which may change how a summary is written; None if there are none
        """
        del fields
        return array_of(self.raws_of(messages))

    def array_without(self, array: bytes, messages: Sequence[Message], places: Collection[int]) -> bytes:
        """Remove the messages at these places from the member; all other bytes stay."""
        return array_without(array, messages, places)

    def request_of(self, model: str, messages: Sequence[Message]) -> ModelRequest:
        fields = {"model": json.dumps(model).encode(), self.messages_member: self.array(messages)}
        return ModelRequest(body_of(fields, {}), fields, model, tuple(messages), self)

    def body_with(self, request: ModelRequest, messages: Sequence[Message], *, model: str) -> bytes:
        if request.marks is None:
            replaced = {self.messages_member: self.array(messages, request.fields)}
        else:
            replaced = {**self.marked_members(request.fields, messages, request.marks)}
        if model != request.model:
            replaced["model"] = json.dumps(model).encode()
        return body_of(request.fields, replaced)

    def marked_members(
        self, fields: Mapping[str, bytes], messages: Sequence[Message], marks: CacheMarks
    ) -> Mapping[str, bytes]:
        """Write the members that get cache marks: on the last message before the summary, and on the summary.

        :param fields: of the client's request
        """
        del fields
        raws = self.raws_of(messages)
        place = next((place for place, message in enumerate(messages) if not message.raw), None)
        if place is not None:
            for marked in range(place - (marks.on_system and place > 0), place + 1):
                raws[marked] = with_mark_in_content(raws[marked], marks.member, self.text_type)
        return {self.messages_member: array_of(raws)}

    def body_with_model(self, request: ModelRequest, model: str) -> bytes:
        return body_of(request.fields, {"model": json.dumps(model).encode()})

    def body_with_raw(self, request: ModelRequest, raws: Sequence[bytes]) -> bytes:
        return body_of(request.fields, {self.messages_member: array_of(raws)})

    def raws_of(self, messages: Sequence[Message]) -> list[bytes]:
        return [message.raw or self.own_message(message.text) for message in messages]

    def without(self, request: ModelRequest, places: Collection[int]) -> ModelRequest:
        before = request.fields[self.messages_member]
        after = self.array_without(before, request.messages, places)
        fields = {**request.fields, self.messages_member: after}
        remaining = tuple([message for place, message in enumerate(request.messages) if place not in places])
        is_unique = request.body.count(before) == 1  # else an unknown member has the same bytes
        body = request.body.replace(before, after) if is_unique else body_of(fields, {})
        return replace(request, body=body, fields=fields, messages=remaining)

    def cached_members(self, request: ModelRequest) -> Mapping[str, bytes] | None:
        """Return None: a summarizer is asked in chat completions, so it cannot go on with these bytes."""
        del request
        return None


def usage_of(usage: Mapping[str, JsonValue], input_name: str, output_name: str) -> Usage:
    """Read OpenAI's counts of input, cached input and output, whose names differ between its formats."""
    details = usage.get(f"{input_name}_details")
    total, output = count_of(usage.get(input_name)), count_of(usage.get(output_name))
    if not isinstance(details, dict):
        return Usage(total, None, output)
    cache_writes = details.get("cache_write_tokens", details.get("cache_creation_tokens"))  # OpenAI's, litellm's name
    lives = details.get("cache_creation_token_details")  # litellm's
    hour = count_of(lives.get(HOUR_WRITES)) if isinstance(lives, dict) else None
    return Usage(total, count_of(details.get("cached_tokens")), output, count_of(cache_writes), hour)


def count_of(value: JsonValue) -> int | None:
    """Read a number of tokens; an upstream may send anything in its place."""
    return value if type(value) is int and abs(value) <= MAX_COUNT else None
