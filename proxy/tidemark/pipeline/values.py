"""The values that the steps of a request pass on.

The server makes ``Controls`` from request headers. The steps of ``pipeline/steps.py`` turn a request into a
``RequestContext``, a ``FittedRequest`` and an ``Exchange``; the relay ends it with an ``Ending``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any, Literal, Protocol

from tidemark.core.conversation.keeping import strictest
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.native import NativeForm
from tidemark.core.conversation.prefix import PrefixChain
from tidemark.core.conversation.records import ConversationState, Keep, TurnRecord
from tidemark.core.conversation.reply import EMPTY_REPLY, Reply
from tidemark.core.conversation.request import Dialect, ModelRequest
from tidemark.core.conversation.sent_prompts import NO_NEWS, PromptNews
from tidemark.core.conversation.summary import PrefixSummary
from tidemark.core.errors import TidemarkError
from tidemark.core.events import Outcome
from tidemark.core.frozen import frozen
from tidemark.core.planning.budget import Budget, ModelProfile
from tidemark.core.planning.calibration import CalibratedBudget
from tidemark.core.planning.situation import NOTHING_LEFT_OUT, LeftOut, Mode
from tidemark.core.ports import Caller, Headers, RequestCount, Route, TokenCounter, Upstream, UpstreamReply
from tidemark.core.receipt import render_receipt
from tidemark.core.report import Action, OwnAnswer, Report

History = Literal["client", "stored"]
Learn = Callable[[Reply], Awaitable[None]]
"""Learns from the usage of a complete reply, if the model is calibrated."""
Prepare = Callable[[str], Awaitable[None]]
"""Begins to prepare the next summary; takes the id that the turn was stored under."""
LeaveOut = Callable[[bytes], bytes]
"""Takes whole events of a stream, and returns them without what the client did not ask for."""
Add = Callable[[Reply], Coroutine[Any, Any, None]]
"""Adds a complete reply to the conversation that its client named; raises if the store does not take it."""
Bind = Callable[[Reply], bytes]
"""Returns the bytes to store about the prefix that a reply's thinking is bound to."""


class Watch(Protocol):
    """Sends the requests of one turn without what their upstream would refuse of an earlier one's answers."""

    warning: str | None

    async def send(self, upstream: Upstream, request: ModelRequest, body: bytes, *, changed: bool) -> UpstreamReply:
        """Send a request.

        :param changed: whether the body says anything else than the client's own
        :raises UpstreamError: there was no answer
        """
        ...

    def bindings(self, reply: Reply) -> bytes:
        """Return what is to be stored of the turn, as ``ConversationState.bindings``."""
        ...


KeepResponse = Callable[[TurnRecord, Reply], TurnRecord]
"""Adds to a turn's record what is stored of its response."""
GiveUp = Callable[[TurnRecord], None]
"""Takes a record of stored history that could not be stored."""

STORE_FULL = (
    "nothing more is stored for this credential: it has reached store.max_tenant_mb; forget conversations, or have the "
    "bound raised"
)
"""The warning of a request whose turn is not stored."""


@frozen
class Controls:
    """What the client asks of Tidemark, by request headers."""

    mode: Mode = "auto"
    retention: int | None = None
    """Tokens of the newest messages that stay as they are (FR-2.2.2)."""
    conversation: str | None = None
    """The client's own name for the conversation."""
    history: History = "client"
    """Who has the conversation's earlier messages: the client, which sends them all, or the store."""
    known_count: int | None = None
    """``X-Tidemark-History: stored; known=N``: how many stored messages the client knows, system messages apart."""
    idempotency_key: str = ""
    """``Idempotency-Key`` of a turn of stored history: requests with one key are one turn."""
    acknowledge: bool = False
    """``X-Tidemark-Overflow: acknowledge``: send the request although it could not be compacted (FR-5.1.2)."""
    keep: Keep = "all"
    """``X-Tidemark-Keep``: the most that is stored of the request."""
    by_hand: bool = False
    """Whether a person compacts a stored conversation, so that no request is sent."""


class Progress(Protocol):
    """Listens to how far a request has come, while its client waits."""

    def on_planned(self, report: Report) -> None:
        """Take the report of what was done to the request, right before the upstream is asked."""
        ...

    def on_summarizing(self, messages: int, tokens: int) -> None:
        """Note that the client waits for a summary of so many messages and tokens (FR-1.6.2)."""
        ...


class NoProgress:
    """``Progress`` that nobody reads."""

    def on_planned(self, report: Report) -> None:
        """Do nothing."""

    def on_summarizing(self, messages: int, tokens: int) -> None:
        """Do nothing."""


NO_PROGRESS = NoProgress()


@frozen
class ConversationPlace:
    """The tenant and chain under which the store has a conversation."""

    tenant: str
    chain: PrefixChain
    left_out: LeftOut = NOTHING_LEFT_OUT
    """The first messages of the chain, which were not read: a summary stands for them."""


@frozen
class RequestContext:
    """A request whose identity and size are known."""

    request: ModelRequest
    controls: Controls
    caller: Caller
    route: Route
    profile: ModelProfile
    tenant: str
    chain: PrefixChain
    stored: ConversationState
    """What the store knows of the conversation."""
    count: RequestCount
    measure: CalibratedBudget
    started: float
    """By the timer: when the request was taken up."""
    conversation: str
    """The id that the client gets."""
    prompt: PromptNews = NO_NEWS
    """Which part of its earlier request the client has changed, if the response must report it."""
    unclipped: RequestContext | None = None
    """The same request as it came, if tool results were made smaller since."""
    put_in_use: PrefixSummary | None = None
    """The summary that an earlier attempt of this very request put into use."""
    texts_only: bool = False
    """Whether a summary that the provider wrote goes out as its text, because the provider refused it."""
    owner: str = ""
    """Whose conversation it is, if somebody else may ask (the operator); empty for the caller's own."""
    idle_seconds: float = 0.0
    """Since the conversation's newest turn was stored; 0 if there is none. It is below 0 if a clock was set back."""

    @property
    def mode(self) -> Mode:
        """Return what is done to the request: as its client asks, else as its model's policy says."""
        mode = self.controls.mode
        return "shadow" if mode == "auto" and self.profile.policy.mode == "shadow" else mode

    @property
    def keep(self) -> Keep:
        """Return what is stored of the request: the least that its client or its model's policy wants."""
        return strictest(self.controls.keep, self.profile.policy.keep)

    @property
    def is_shadow(self) -> bool:
        """Return whether the request travels as it came, and is only reported on."""
        return self.mode == "shadow"

    @property
    def budget(self) -> Budget:
        """The marks, in the tokens that ``count`` and all summaries are in."""
        return self.measure.marks

    def report(
        self,
        action: Action,
        after: int,
        now: float,
        *,
        summary: PrefixSummary | None = None,
        warning: str | None = None,
        degraded: bool = False,
    ) -> Report:
        """Return the report of what is done to the request.

        :param after: tokens of what is forwarded, counted locally
        :param now: by the timer
        :param summary: what stands for the oldest messages
        :param degraded: whether something could not be stored, beside what ``stored`` says
        """
        measure, stored, not_stored, chain = self.measure, self.stored, self.keep == "none", self.chain.hashes
        return Report(  # in the fields' order: so many names would cost more than the fields themselves
            self.conversation,
            self.tenant,
            measure.budget.limit,
            action,
            measure.provider_tokens((self.unclipped or self).count.total),
            measure.provider_tokens(after),
            after,
            summary.summarized if summary else 0,
            summary.made_by if summary else None,
            warning or (STORE_FULL if stored.full else None),
            not not_stored and (degraded or stored.degraded or stored.unwritable or stored.full),
            now - self.started,
            "",
            render_receipt(summary.receipt) if summary else "",
            covered=summary.covered if summary else 0,
            price=self.profile.price,
            not_stored=not_stored,
            position=len(chain),
            newest=chain[-1] if chain else b"",
        )


@frozen
class FittedRequest:
    """A request within its budget: what will be forwarded."""

    messages: Sequence[Message]
    report: Report
    changed: bool = True
    """Whether the messages differ from the client's."""
    summary: PrefixSummary | None = None
    """The summary that is in use now."""
    full: bool = False
    """Whether the request is critically near its limit, and no compaction would change that (FR-5.3.1c)."""
    native: NativeForm | None = None
    """The summary in its provider's own form, if it goes out in it."""
    has_search_tokens: bool = True
    """Whether the tokens of the search function, if it is offered, are among those of the report."""


@frozen
class PendingTurn:
    """A turn whose reply is on its way."""

    record: TurnRecord
    """What is stored if no complete reply comes."""
    counted_as: str
    """The model whose tokenizer counts the reply."""
    dialect: Dialect
    """The format of the reply."""
    learn: Learn | None = None
    prepare: Prepare | None = None
    """Present if the next summary is due."""
    give_up: GiveUp | None = None
    """Present if the client keeps no messages itself (stored history)."""
    leave_out: LeaveOut | None = None
    """Present if the upstream reports what Tidemark asked for and the client did not."""
    keep_response: KeepResponse | None = None
    """Present if the client may ask for the response again by its id."""
    bind: Bind | None = None
    """Present if the upstream may check the thinking of the reply when it comes back."""
    add: Add | None = None
    """Present if Tidemark keeps the conversation that the client named."""
    answered_here: bool = False
    """Whether the reply is Tidemark's own, so that its counts are no provider's."""

    @property
    def must_be_stored(self) -> bool:
        """Whether the client relies on the store for this turn, so that it must hear if it is not stored."""
        return self.give_up is not None or self.add is not None

    def record_with(self, reply: Reply, counter: TokenCounter) -> TurnRecord:
        """Return the record with the reply; an incomplete reply is not among its messages."""
        message, usage = reply.message, {} if self.answered_here else reply.usage
        if message is None or not reply.complete:
            record = replace(self.record, complete=reply.complete, usage=usage)
        else:
            record = self.record.with_reply(message, counter.count_message(message, self.counted_as), usage)
        if self.bind is not None and (bindings := self.bind(reply)):
            record = replace(record, bindings=bindings)
        return record if self.keep_response is None else self.keep_response(record, reply)


@frozen
class Exchange:
    """An upstream's reply on its way, and what belongs to it."""

    reply: UpstreamReply
    turn: PendingTurn
    report: Report
    summary: PrefixSummary | None = None
    """The summary that is in use now, if the store has it."""


@frozen
class Refused:
    """A request that was understood but not forwarded, or not answered; nothing of it was stored."""

    error: TidemarkError
    report: Report


@frozen
class CommandAnswer:
    """Tidemark's own answer to a command. Nothing of it is stored, and nothing was sent upstream."""

    answer: OwnAnswer
    report: Report


@frozen
class Repeated:
    """The answer of an earlier try of the same turn. Nothing was sent upstream, and nothing more is stored."""

    reply: UpstreamReply
    data: bytes
    """Its whole body."""
    report: Report


Result = Exchange | Refused | CommandAnswer | Repeated
"""What a request comes to, before its reply is relayed."""


@frozen
class Ending:
    """How an exchange ended, and what the upstream itself counted."""

    outcome: Outcome
    reply: Reply = EMPTY_REPLY
    error: TidemarkError | None = None
    """The error that the client must still be sent. Either the reply was cut short and the upstream did not say so, or
    the turn of a stored history could not be stored."""
    stored: bool = True
    """Whether the turn is in the store; nothing of a refusal is."""


class BufferedReply:
    """An ``UpstreamReply`` whose body was read already."""

    def __init__(self, status: int, headers: Headers, data: bytes) -> None:
        self.status = status
        self.headers = headers
        self._data = data

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body in one piece."""
        yield self._data

    async def close(self) -> None:
        """Do nothing: no connection is open."""
