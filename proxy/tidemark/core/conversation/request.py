"""A model request and its dialect: the seam between client formats and everything that plans, counts and stores.

A dialect parses a client's bytes into a ``ModelRequest`` at the beginning of the pipeline. Later steps ask the
request's dialect for every byte that they send, read or answer, so they know no member and no event of any format.
"""

from __future__ import annotations

from collections.abc import Awaitable, Collection, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from tidemark.core.conversation.cache_marks import CacheMarks
from tidemark.core.conversation.kept import KeptConversation
from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.native import NativeFormat
from tidemark.core.conversation.reply import Reply, ReplyFold
from tidemark.core.conversation.responses import ResponseFormat
from tidemark.core.conversation.thinking import ThinkingFormat
from tidemark.core.errors import TidemarkError
from tidemark.core.frozen import frozen
from tidemark.core.report import OwnAnswer, Usage


class SearchedReply(Protocol):
    """Reads a reply over its rounds, and returns what of it is the client's.

    In a stream ``read`` takes whole events, else the whole body of a round.
    """

    calls: Message | None
    """The message of the round that has ended, if it calls for searches alone; None if the reply is over."""

    def read(self, data: bytes) -> bytes:
        """Return the client's part of the next bytes.

        No call of the function is in it, and no end of a round that calls it.
        """
        ...

    def next_round(self) -> None:
        """Begin the next round."""
        ...

    def end(self) -> bytes:
        """Return what ends the client's reply if its calls cannot be answered."""
        ...


@frozen(eq=False)
class MessageFacts:
    """Facts that cover all messages of one request, so that the next turn looks at its new messages only.

    The steps that find a fact write it: the token counter and the commands. Losing a fact costs time only.
    """

    tokens: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Tokens of each message, by the key of the counting rules."""
    free_of_commands: set[str] = field(default_factory=set)
    """Marks for which no message is a command or an answer to one (``pipeline/command_text.py``)."""

    def of_first(self, count: int) -> MessageFacts:
        tokens = {key: counts[:count] for key, counts in self.tokens.items()}
        return MessageFacts(tokens, set(self.free_of_commands))


@frozen(eq=False)
class ReuseHints:
    """What a long request can take over from the earlier request that it continues."""

    messages: tuple[Message, ...]
    """The messages of the request that these hints belong to."""
    shared_count: int = 0
    """How many leading messages the earlier request had, byte for byte."""
    earlier: MessageFacts = field(default_factory=MessageFacts)
    """Facts about those leading messages."""
    facts: MessageFacts = field(default_factory=MessageFacts)
    """Facts about all messages of this request."""


@frozen
class ModelRequest:
    """One request to a model, in any dialect."""

    body: bytes
    """The whole body, as received."""
    fields: Mapping[str, bytes]
    """The raw JSON of every top-level member, by name, in the client's order."""
    model: str
    messages: tuple[Message, ...]
    dialect: Dialect
    stream: bool = False
    max_output_tokens: int | None = None
    """The longest reply that the client allows, in tokens."""
    billed_members: Mapping[str, JsonValue] = field(default_factory=dict)
    """Decoded members that the provider bills as input: tools, response_format and others."""
    parsed: ReuseHints | None = field(default=None, compare=False, repr=False)
    """Present if the request is a long one."""
    continues: str | None = None
    """The id of an earlier response whose conversation goes on: ``previous_response_id`` of OpenAI's Responses."""
    left_to_upstream: str = ""
    """Why the provider is to compact the request itself, for the client's warning; empty if Tidemark does it."""
    continuation: ContinuedRequest | None = None
    """Present if an earlier response or item was resolved, or only the upstream can resolve it."""
    compaction_triggers: tuple[int, ...] = ()
    """For each element that asks for a compaction in place of an answer, how many elements stand behind it."""
    marks: CacheMarks | None = None
    """What ``body_with`` marks for the provider's prompt cache; None if that is left to the client."""

    @property
    def asks_to_compact(self) -> bool:
        """Whether the answer is to be the conversation's summary, sealed: the last element says so."""
        return 0 in self.compaction_triggers

    @property
    def hints(self) -> ReuseHints | None:
        """Hints for exactly these messages; None if messages were removed after the parse."""
        parsed = self.parsed
        return parsed if parsed is not None and parsed.messages is self.messages else None


@frozen
class KeptTurn:
    """A request of a conversation that Tidemark keeps (``pipeline/kept_conversations.py``)."""

    conversation: KeptConversation
    own_items: Sequence[bytes]
    """The items that the request itself brings."""


@frozen
class ContinuedRequest:
    """How a request goes on from an earlier response (``pipeline/continuing.py``)."""

    received: ModelRequest | None = None
    """The client's own request, which goes out if nothing has to change: the upstream has the rest itself."""
    earlier_count: int = 0
    """How many of the request's non-system messages Tidemark has put before the client's own."""
    earlier_systems: int = 0
    """How many of its system messages."""
    resolved: str = ""
    """The id of the earlier response whose messages Tidemark has put in, so that the upstream does not see it."""
    kept_turn: KeptTurn | None = None
    """Present if Tidemark has the conversation that the request names, and has put its items in."""
    upstream_has: str = ""
    """The earlier response, or the conversation, that only the upstream has; empty if nothing is missing here."""


@frozen
class CachedPrefix:
    """The beginning of a conversation exactly as it is forwarded: what a provider has in its prompt cache."""

    messages: tuple[Message, ...]
    raws: tuple[bytes, ...]
    """The same messages as they are forwarded."""
    fields: Mapping[str, bytes]
    """The members beside the messages that belong to the cached prefix, as raw JSON."""
    limit: int
    """Tokens that the conversation's model accepts as input beside the reply."""


class RequestFormat(Protocol):
    """How a dialect reads requests and writes them again."""

    def parse(self, body: bytes, *, anonymous: bool = False, bounded: bool = True) -> Awaitable[ModelRequest]:
        """Parse a body; in a thread if much of it is new.

        :param anonymous: whether the model may be missing, because nothing is forwarded
        :param bounded: whether the number of messages has a bound; stored conversations have none
        :raises InvalidRequest: with ``param`` and a stable ``code``
        """
        ...

    def parse_messages(self, raws: Sequence[bytes]) -> tuple[Message, ...]:
        """Parse single messages, in any thread.

        :raises InvalidRequest: an element is not a message
        """
        ...

    def parse_lines(self, data: bytes) -> list[Message]:
        """Parse an export: one message a line.

        :raises BadImport: a line is no message, or a tool call and its results have come apart
        """
        ...

    def request_of(self, model: str, messages: Sequence[Message]) -> ModelRequest:
        """Build the request that a client would send for these messages."""
        ...

    def body_with(self, request: ModelRequest, messages: Sequence[Message], *, model: str) -> bytes:
        """Write the request's body with other messages and another model; other members keep their bytes."""
        ...

    def body_with_model(self, request: ModelRequest, model: str) -> bytes:
        """Write the request's body with another model; other members keep their bytes."""
        ...

    def body_with_raw(self, request: ModelRequest, raws: Sequence[bytes]) -> bytes:
        """Write the request's body with messages that are bytes already."""
        ...

    def raws_of(self, messages: Sequence[Message]) -> list[bytes]:
        """Return the JSON of each message, also of those that Tidemark made."""
        ...

    def write(self, message: Message) -> bytes:
        """Write a message of any dialect in this one, from its role, text, calls and media."""
        ...

    def without(self, request: ModelRequest, places: Collection[int]) -> ModelRequest:
        """Remove the messages at these places; all other bytes stay, those between messages too."""
        ...

    def is_message(self, raw: bytes) -> bool:
        """Return whether stored bytes are a message of this dialect, without a full parse."""
        ...

    def as_sent(self, raw: bytes) -> bytes:
        """Return a stored message as a client would send it back: without members that only replies have."""
        ...

    def replace_middle(self, message: Message, first: int, last: int, mark: str) -> Message:
        """Replace the characters from ``first`` to ``last`` of a message's text by a mark."""
        ...

    def cached_members(self, request: ModelRequest) -> Mapping[str, bytes] | None:
        """Return the members that a provider caches together with the messages.

        A summarizer is asked in chat completions, so they must be members of that format, and a dialect without them
        returns None. None also if a model could not answer with a summary: the request demands JSON or a tool call.
        """
        ...


class ReplyFormat(Protocol):
    """How a dialect reads the replies of an upstream."""

    def fold_body(self, data: bytes) -> Reply:
        """Read a reply that is not a stream."""
        ...

    def fold_stream(self) -> ReplyFold:
        """Begin to read a stream."""
        ...

    def before_end(self, data: bytes) -> bytes:
        """Return the events that come before the one that ends a stream."""
        ...

    def usage(self, usage: Mapping[str, JsonValue]) -> Usage:
        """Read the provider's own counts (FR-1.1.5)."""
        ...


class StreamCounts(Protocol):
    """How an upstream is asked for its counts of a stream, if streams have them on request only.

    A client that did not ask sees nothing of it.
    """

    def asking(self, request: ModelRequest) -> ModelRequest | None:
        """Return a request that asks for the counts; None if the client's asks, or cannot be changed."""
        ...

    def leave_out(self, events: bytes) -> bytes:
        """Return whole events without the counts and without what else the question brings in.

        It is called for every piece of a stream, so it must not decode every event.
        """
        ...

    def is_refused(self, body: bytes) -> bool:
        """Return whether an upstream's refusal is about the question."""
        ...


class SearchFunctionFormat(Protocol):
    """How a dialect offers the search function to a model, and reads replies that may call it.

    A client sees neither the calls nor their answers.
    """

    definition: str
    """The function as it stands in a request; the same bytes in every request."""

    def offering(self, request: ModelRequest) -> ModelRequest | None:
        """Return a request that offers the function; None if the client's request leaves no place for it."""
        ...

    def without_calls(self, request: ModelRequest, offering: ModelRequest) -> ModelRequest:
        """Return the request for the last round, in which the model cannot call the function.

        :param request: the client's own
        :param offering: what ``offering`` returned for it
        """
        ...

    def call_message(self, message: Message) -> bytes:
        """Return the JSON of a message with calls as the next round's request has it."""
        ...

    def result(self, call: str, text: str) -> bytes:
        """Return the JSON of a message that answers a call.

        :param call: its id
        """
        ...

    def is_refused(self, body: bytes) -> bool:
        """Return whether an upstream's refusal is about functions."""
        ...

    def whole(self) -> SearchedReply:
        """Begin to read a reply that is not streamed."""
        ...

    def stream(self) -> SearchedReply:
        """Begin to read a stream."""
        ...


class ErrorFormat(Protocol):
    """How a dialect writes errors."""

    def error(self, error: TidemarkError) -> bytes:
        """Write an error as a body."""
        ...

    def error_event(self, error: TidemarkError, previous: bytes = b"") -> bytes:
        """Write an error as an event of a stream that has begun.

        :param previous: the piece that the stream sent last, for a dialect whose events are numbered
        """
        ...


class AnswerFormat(ErrorFormat, Protocol):
    """How a dialect writes what Tidemark answers itself."""

    def answer(self, request: ModelRequest, answer: OwnAnswer) -> bytes:
        """Write an answer as one body."""
        ...

    def answer_events(self, request: ModelRequest, answer: OwnAnswer) -> bytes:
        """Write an answer as a whole event stream."""
        ...

    def late_reply_event(self, status: int, body: bytes) -> bytes:
        """Write an upstream's whole reply as an event of a stream that has begun."""
        ...


class Dialect(RequestFormat, ReplyFormat, AnswerFormat, Protocol):
    """A client format. Chat completions is the first one (``dialects/chat/dialect.py``)."""

    name: str
    """Short and stable, for error messages: ``chat``."""
    path: str
    """The path of the upstream's endpoint below its base URL: ``/chat/completions``."""
    messages_member: str
    """The member that has the messages; errors name it."""
    system_member: str
    """The member that has the system text beside the messages; empty if only messages have it."""
    tool_members: tuple[str, ...]
    """The members that declare tools."""
    responses: ResponseFormat | None
    """Present if a client can go on from an earlier response by its id."""

    def opening_error(self, data: bytes) -> bytes | None:
        """Return the error of a stream that begins with one, as the body that a request without a stream gets.

        :param data: all that came of the stream
        :returns: empty if the reply has begun, None if the events do not tell yet
        """
        ...

    @property
    def bound_thinking(self) -> ThinkingFormat | None:
        """Return how thinking is read that providers bind to what stood before it; None for a dialect without it."""
        ...

    @property
    def native_compaction(self) -> NativeFormat | None:
        """Return how the provider is asked for a summary; None if the dialect's providers write none."""
        ...

    @property
    def search_function(self) -> SearchFunctionFormat | None:
        """Return how the search function is offered; None if the dialect has no such way."""
        ...

    @property
    def stream_counts(self) -> StreamCounts | None:
        """Return how the counts of a stream are asked for; None if every stream has them."""
        ...
