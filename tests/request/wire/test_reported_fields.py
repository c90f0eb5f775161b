"""What a request's turn and report hold, by name: both are made in the fields' order, where no slip would show."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast

from tidemark.core.conversation.prefix import chain_of, owner_of
from tidemark.core.conversation.records import ConversationState, TurnRecord
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe
from tidemark.core.planning.budget import CompactionPolicy, ModelProfile, ModelWindow, budget_for
from tidemark.core.planning.calibration import Calibration
from tidemark.core.ports import Caller, RequestCount, Route
from tidemark.core.report import Report
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.pipeline.bound_thinking import ThinkingGuard
from tidemark.pipeline.commands import Commands
from tidemark.pipeline.dropping_clients import DroppingClients
from tidemark.pipeline.fit import BudgetFitter
from tidemark.pipeline.identify import Identifier, tenant_of
from tidemark.pipeline.lossless import LosslessResults
from tidemark.pipeline.masked_results import ResultMasks
from tidemark.pipeline.native_compaction import NativeCompaction
from tidemark.pipeline.recall import Recaller
from tidemark.pipeline.repeated_turns import RepeatedTurns
from tidemark.pipeline.search_offers import SearchOffers
from tidemark.pipeline.shared_accounts import SharedAccounts
from tidemark.pipeline.steps import Pipeline
from tidemark.pipeline.values import BufferedReply, Controls, Exchange

ROUTE = Route("wire", "asked", "served", "openai", "http://upstream/v1")
PROFILE = ModelProfile("asked", ModelWindow(), CompactionPolicy(calibrate=True, max_recall_tokens=None))
CALLER = Caller(b"f" * 32, (), program="a-program/1.0")
SUMMARY = PrefixSummary(b"", 2, "It is there.", SummaryRecipe("llm", "", 0), "hybrid", "automatic", 0.0)
KNOWN = ConversationState(conversation="c" * 48, stored_count=2, summary=SUMMARY, degraded=True)
COUNT = RequestCount((5, 7, 11), 3, "o200k_base", exact=True, scheme="0f1e2d3c")
SUMMARY_TOKENS = 2
AS_DENSE = Calibration(local_tokens=10, provider_tokens=20, replies=1)
SAID = [
    {"role": "user", "content": "Where?"},
    {"role": "assistant", "content": "There."},
    {"role": "user", "content": "When?"},
]
OWN_SECONDS = 0.25
"""Of the pipeline itself, by the timer."""


class _Ports:
    """Everything outside the pipeline, where each answer is another value."""

    recipe = None

    def has_credential(self, _: object) -> bool:
        return False

    def moves_summaries(self, *_: object) -> bool:
        return True

    def __init__(self) -> None:
        self.ticks = iter([1.0, 1.0 + OWN_SECONDS])

    async def resolve(self, _: str, **__: object) -> Route:
        return ROUTE

    async def profile(self, *_: object) -> ModelProfile:
        return PROFILE

    async def recall(self, *_: object) -> ConversationState:
        return KNOWN

    async def count(self, *_: object, **__: object) -> RequestCount:
        return COUNT

    async def calibration(self, *_: object) -> Calibration:
        return AS_DENSE

    def count_message(self, *_: object) -> int:
        return SUMMARY_TOKENS

    async def send(self, *_: object, **__: object) -> BufferedReply:
        return BufferedReply(200, (), b"{}")

    def timer(self) -> float:
        return next(self.ticks)

    def mark_format(self, *_: object) -> None:
        return None

    def needs_callers_key(self, _: object) -> bool:
        return True


def _exchanged(controls: Controls) -> tuple[Exchange, Any]:
    ports = cast("Any", _Ports())
    identity = Identifier(
        store=ports,
        calibrations=ports,
        counter=ports,
        choose=lambda *_: ports,
        emit=lambda _: None,
        clock=lambda: 8.5,
        timer=ports.timer,
    )
    guard = ThinkingGuard(ports.timer)
    masks = ResultMasks(ports)
    natives = NativeCompaction(upstream=ports, guard=guard, counter=ports, masks=masks, timer=ports.timer)
    fitting = BudgetFitter(
        counter=ports,
        compactor=ports,
        preparation=ports,
        recaller=Recaller(ports),
        timer=ports.timer,
        natives=natives,
        masks=masks,
        searches=(searches := SearchOffers(ports, ports.timer)),
    )
    commands = Commands(fitter=fitting, store=ports, mark_for=lambda _: "mark", emit=ports, clock=ports.timer)
    pipeline = Pipeline(
        history=ports,
        continued=ports,
        dropping=DroppingClients(ports, ports, ports),
        commands=commands,
        upstream=ports,
        searches=searches,
        catalog=ports,
        calibrations=ports,
        accounts=SharedAccounts(ports, ports, is_open=True),
        repeats=RepeatedTurns(ports, ports.timer),
        identifier=identity,
        fitter=fitting,
        lossless=LosslessResults(ports),
        natives=natives,
        thinking=guard,
        clock=lambda: 9.5,
        timer=ports.timer,
    )
    request = ChatDialect().parser.parse_now(json.dumps({"model": "asked", "messages": SAID}).encode())
    exchange = asyncio.run(pipeline.run(request, CALLER, controls))
    assert isinstance(exchange, Exchange)
    return exchange, request


def test_a_turn_and_its_report_hold_what_their_fields_are_called() -> None:
    """Each field has the value of its name. Neighbours of one kind differ, or a slip would not show."""
    exchange, request = _exchanged(Controls(conversation="mine"))
    tenant = tenant_of(CALLER, ROUTE)
    assert exchange.report == Report(
        conversation="c" * 48,
        tenant=tenant,
        limit=budget_for(PROFILE, None).limit,
        action="reused",
        tokens_before=52,
        tokens_after=32,
        local_tokens=16,
        summarized=2,
        strategy="hybrid",
        warning=None,
        degraded=True,
        overhead_seconds=OWN_SECONDS,
        gap="",
        recall="nothing",
        covered=2,
        position=3,
        newest=chain_of(tenant, request.messages, conversation="mine").tip,
        is_summary_moved=True,
    )
    assert exchange.turn.record == TurnRecord(
        tenant=tenant,
        conversation="c" * 48,
        chain=chain_of(tenant, request.messages, conversation="mine"),
        stored_count=2,
        messages=request.messages,
        tokens=(5, 7, 11),
        complete=False,
        model="asked",
        action="reused",
        tokens_before=52,
        tokens_after=32,
        summarized=2,
        created_at=9.5,
        scheme="0f1e2d3c",
        owner=owner_of(CALLER.fingerprint),
        name="mine",
        sender="chat a-program/1.0",
    )
    assert (exchange.turn.counted_as, exchange.turn.prepare) == ("served", None)
    assert exchange.turn.learn is not None
