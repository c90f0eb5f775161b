"""Adds up what this worker's requests and summaries cost, and writes it to the store every other second.

A request only leaves its event here. All else happens in a task of its own: pricing, reading what is known of the turn
before, comparing, writing. While the store does not answer, the events wait in memory.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field

from tidemark.core.bill import BilledTurn, BillFigures, EarlierTurn, billed_tokens
from tidemark.core.bounded import BoundedCache
from tidemark.core.conversation.messages import JsonValue
from tidemark.core.errors import RecordUnreadable
from tidemark.core.events import Event, MessagesSearched, RequestServed
from tidemark.core.frozen import frozen
from tidemark.core.money import BilledTokens, ModelPrice
from tidemark.core.ports import Route, TextRequest
from tidemark.core.report import NO_USAGE, Report, Usage
from tidemark.dialects.dialect import usage_of
from tidemark.features.bill.store import RedisDays
from tidemark.store.bills import RedisBills
from tidemark.worker.patient_writer import PatientWriter

MAX_WAITING = 20_000
"""Events that wait for the store, about 20 MB; of more the oldest are dropped."""
PAUSE_SECONDS = 2.0
MAX_MODELS = 100
"""The most models with rows of their own. Clients choose the names."""
OTHER = "other"
MAX_NAME_CHARACTERS = 100
REMEMBERED_SEARCHES = 1024
NEAR_SHARE = 0.25
"""The share of its limit above which a whole request is noted in its conversation: it is compacted soon."""
DAY_SECONDS = 86_400

OnCounted = Callable[[str, BillFigures], None]
"""Takes the figures of a model that were not counted before."""


@frozen
class SummaryCall:
    """A call of a model that writes summaries."""

    conversation: str
    """Empty for none."""
    model: str
    """The conversation's model, to whose row it is billed."""
    route: Route
    usage: Usage
    at: float
    """Unix time, seconds."""


_NotedTurn = tuple[RequestServed, float, int]
"""A request, when it ended in Unix time, and how often its upstream was asked."""


@dataclass(slots=True)
class _Noted:
    """What was noted and is not counted yet."""

    turns: deque[_NotedTurn] = field(default_factory=lambda: deque(maxlen=MAX_WAITING))
    calls: deque[SummaryCall] = field(default_factory=lambda: deque(maxlen=MAX_WAITING))

    def __bool__(self) -> bool:
        return bool(self.turns or self.calls)


@dataclass(slots=True)
class _Batch:
    """What is on its way to the store."""

    number: int
    days: dict[tuple[int, str], BillFigures] = field(default_factory=dict)
    conversations: dict[str, BillFigures] = field(default_factory=dict)
    newest: dict[str, EarlierTurn | None] = field(default_factory=dict)


class BillCounter:
    """Collects, prices and writes.

    The mutable state is what waits, and the batch that was sent last, until the store has answered. A batch has a
    number, so that one whose answer was lost counts once.

    :param price: returns the price of a route's model
    :param clock: Unix time in seconds; it may jump
    """

    def __init__(
        self,
        days: RedisDays,
        bills: RedisBills,
        price: Callable[[Route], Awaitable[ModelPrice | None]],
        clock: Callable[[], float],
        on_counted: OnCounted = lambda *_: None,
    ) -> None:
        self._days = days
        self._bills = bills
        self._price = price
        self._clock = clock
        self._on_counted = on_counted
        self._writer = uuid.uuid4().hex
        self._number = 0
        self._waiting = _Noted()
        self._pending = _Noted()
        """What the next batch is made of."""
        self._batch: _Batch | None = None
        self._searches: BoundedCache[str, int] = BoundedCache(REMEMBERED_SEARCHES)
        """Searches in turns that are not over, by conversation."""
        self._turn_calls: BoundedCache[str, list[SummaryCall]] = BoundedCache(REMEMBERED_SEARCHES)
        """Calls for summaries since a conversation's last turn."""
        self._models: set[str] = set()
        self._lock = asyncio.Lock()
        self._patient_writer = PatientWriter(self._write, self._has_more, PAUSE_SECONDS)

    def on_event(self, event: Event) -> None:
        if isinstance(event, RequestServed):
            report = event.report
            if report is not None and report.tokens_after:
                rounds = 1 + (self._searches.pop(report.conversation, 0) if self._searches else 0)
                if self._turn_calls:
                    self._turn_calls.pop(report.conversation, None)
                self._waiting.turns.append((event, self._clock(), rounds))
                self._patient_writer.begin()
        elif isinstance(event, MessagesSearched):
            self._searches.put(event.conversation, event.round)

    def note_completion(self, route: Route, request: TextRequest, answer: JsonValue) -> None:
        """Note what a summarizer was answered."""
        counts = answer.get("usage") if isinstance(answer, dict) else None
        usage = usage_of(counts, "prompt_tokens", "completion_tokens") if isinstance(counts, dict) else NO_USAGE
        self._note(SummaryCall(request.conversation, request.model or route.name, route, usage, self._clock()))

    def note_usage(self, conversation: str, route: Route, usage: Usage) -> None:
        """Note what a conversation's own provider counted for a summary."""
        self._note(SummaryCall(conversation, route.name, route, usage, self._clock()))

    async def saving_of(self, model: str, report: Report, usage: Usage) -> float | None:
        """Return what a turn that ends now saved at least, net of the summaries since the turn before.

        The turn before is not read, since the client waits: the whole request counts as cached if a summary is new.
        """
        figures, billed = BillFigures(), billed_tokens(usage)
        if billed is None:
            return None
        rounds = 1 + self._searches.get(report.conversation, 0)
        figures.add_turn(_turn(model, billed, report, self._clock(), rounds), report.price, None)
        for call in self._turn_calls.get(report.conversation, ()):
            figures.add_summary(billed_tokens(call.usage), await self._price(call.route))
        return figures.saved_usd

    def _note(self, call: SummaryCall) -> None:
        self._waiting.calls.append(call)
        if call.conversation:
            self._turn_calls.put(call.conversation, [*self._turn_calls.get(call.conversation, ()), call])
        self._patient_writer.begin()

    async def settle(self) -> None:
        """Write now what waits; during an outage it goes on waiting."""
        await self._patient_writer.settle()

    async def aclose(self) -> None:
        """Write what waits, as far as a short time allows."""
        await self._patient_writer.aclose()

    def _has_more(self) -> bool:
        return self._batch is not None or bool(self._pending or self._waiting)

    async def _write(self) -> None:
        """Write all batches.

        :raises StoreError: the store did not take one, which stays for the next try
        """
        async with self._lock:
            while self._has_more():
                if self._batch is None:
                    self._batch = await self._next_batch()
                await self._send(self._batch)
                self._batch = None

    async def _next_batch(self) -> _Batch:
        """Count what waits, with what the store knows of each compacted conversation's turn before.

        :raises StoreError: the store does not say that; nothing is lost
        """
        if not self._pending:
            self._pending, self._waiting = self._waiting, self._pending
        pending = self._pending
        prices = [await self._price(call.route) for call in pending.calls]
        earlier: dict[str, EarlierTurn | None] = {}
        for conversation in _followed(pending):
            with suppress(RecordUnreadable):
                earlier[conversation] = (await self._bills.read(conversation)).newest
        self._number += 1
        batch = _Batch(self._number)
        for turn in pending.turns:
            self._count_turn(batch, earlier, turn)
        for call, price in zip(pending.calls, prices, strict=True):
            counted = billed_tokens(call.usage)
            for figures in _places(batch, self._label(call.model, is_known=True), call.at, call.conversation):
                figures.add_summary(counted, price)
        for (_, model), figures in batch.days.items():
            self._on_counted(model, figures)
        self._pending = _Noted()
        return batch

    def _count_turn(self, batch: _Batch, earlier: dict[str, EarlierTurn | None], noted: _NotedTurn) -> None:
        """Count one request, and note it as its conversation's newest turn.

        :param earlier: the turn before of each conversation that is followed
        """
        served, now, rounds = noted
        report, billed = served.report, billed_tokens(served.usage)
        label = self._label(served.model, is_known=billed is not None and billed.input > 0)
        if billed is None or report is None:
            if served.status < 400 and served.outcome in ("complete", "incomplete"):
                for figures in _places(batch, label, now):
                    figures.requests += 1
                    figures.uncounted += 1
            return
        conversation = report.conversation if report.conversation in earlier else ""
        before = earlier.get(conversation)
        if before is not None and before.model != served.model:
            before = None
        turn, whole = _turn(served.model, billed, report, now, rounds), billed
        for figures in _places(batch, label, now, conversation):
            whole = figures.add_turn(turn, report.price, before)
        if conversation:
            caches = bool(billed.cached or billed.cache_writes or (before and before.caches))
            earlier[conversation] = batch.newest[conversation] = EarlierTurn(served.model, whole.input, now, caches)

    async def _send(self, batch: _Batch) -> None:
        for conversation, figures in [*batch.conversations.items()]:
            with suppress(RecordUnreadable):  # another version's key: the same batch would fail again
                name = f"{self._writer} {batch.number}"
                await self._bills.add(conversation, name, figures, batch.newest[conversation])
            del batch.conversations[conversation]
        with suppress(RecordUnreadable):
            await self._days.add(self._writer, batch.number, batch.days)

    def _label(self, model: str, *, is_known: bool) -> str:
        """Return the name of a model's row: only one that an upstream counted for gets its own."""
        name = model.encode("utf-8", "replace").decode()[:MAX_NAME_CHARACTERS]
        if name not in self._models:
            if not is_known or len(self._models) >= MAX_MODELS:
                return OTHER
            self._models.add(name)
        return name


def _places(batch: _Batch, label: str, now: float, conversation: str = "") -> list[BillFigures]:
    """Return the figures that a turn or a call belongs to: of its day and model, and of its conversation."""
    places = [batch.days.setdefault((int(now // DAY_SECONDS), label), BillFigures())]
    if conversation:
        batch.newest.setdefault(conversation, None)
        places.append(batch.conversations.setdefault(conversation, BillFigures()))
    return places


def _followed(noted: _Noted) -> set[str]:
    """Return the conversations of turns that are compacted, or are soon."""
    reports = [served.report for served, _, _ in noted.turns if served.report is not None]
    return {report.conversation for report in reports if report.conversation and _is_followed(report)}


def _is_followed(report: Report) -> bool:
    return report.tokens_before != report.tokens_after or report.tokens_after >= NEAR_SHARE * report.limit


def _turn(model: str, billed: BilledTokens, report: Report, now: float, rounds: int) -> BilledTurn:
    is_changed = report.action in ("compacted", "forced")
    return BilledTurn(
        model,
        billed,
        report.tokens_before,
        report.tokens_after,
        report.limit,
        is_changed,
        now,
        rounds,
        report.shadow,
    )
