"""A worker's bill on its way to the store: nothing is lost or counted twice, and nothing grows without bound."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from tidemark.core.bill import BillFigures, EarlierTurn
from tidemark.core.errors import RecordUnreadable, StoreError, StoreUnavailable
from tidemark.core.events import MessagesSearched, RequestServed
from tidemark.core.money import ModelPrice, Rates
from tidemark.core.ports import Route, TextRequest
from tidemark.core.report import Report, Usage
from tidemark.features.bill.counter import DAY_SECONDS, MAX_MODELS, OTHER, BillCounter
from tidemark.features.bill.store import DayFigures, RedisDays
from tidemark.store.bills import ConversationBill, RedisBills

pytestmark = pytest.mark.anyio
PRICE = ModelPrice(Rates(1e-6, 2e-6, 1e-7, 1e-6))
CONVERSATION = "c" * 48
ROUTE = Route("wire", "m", "small", "openai", "https://api.openai.com/v1")
COMPACTED = RequestServed(
    "/v1/chat/completions",
    200,
    "complete",
    0.1,
    model="m",
    report=Report(CONVERSATION, "t", 100_000, "reused", 20_000, 10_000, price=PRICE),
    usage=Usage(10_000, 9000, 10),
)


@pytest.fixture
def anyio_backend() -> str:
    """As the server."""
    return "asyncio"


class Days(RedisDays):
    """A store that fails as often as it is asked to, and has what it was sent."""

    def __init__(self, *failures: StoreError) -> None:
        self.failures = list(failures)
        self.sent: list[tuple[int, dict[tuple[int, str], BillFigures]]] = []

    async def add(self, writer: str, number: int, figures: DayFigures) -> None:
        """Note a batch."""
        assert writer
        self.sent.append((number, dict(figures)))
        if self.failures:
            raise self.failures.pop(0)

    async def read(self, first: int, last: int) -> DayFigures:
        """Nothing reads here."""
        raise NotImplementedError

    @property
    def total(self) -> BillFigures:
        """Return the sum of all batches, each once."""
        total = BillFigures()
        for figures in (figures for _, batch in dict(self.sent).items() for figures in batch.values()):
            total.add(figures)
        return total


class Bills(RedisBills):
    """The same for conversations."""

    def __init__(self, *failures: StoreError) -> None:
        self.failures = list(failures)
        self.stored: dict[str, EarlierTurn | None] = {}
        self.sent: list[tuple[str, str, BillFigures, EarlierTurn | None]] = []

    async def read(self, conversation: str) -> ConversationBill:
        """Return the newest turn."""
        if self.failures:
            raise self.failures.pop(0)
        return ConversationBill(BillFigures(), self.stored.get(conversation))

    async def add(self, conversation: str, batch: str, figures: BillFigures, newest: EarlierTurn | None) -> None:
        """Note a turn."""
        self.sent.append((conversation, batch, figures, newest))
        self.stored[conversation] = newest


async def priced(_: Route) -> ModelPrice | None:
    """Every model costs the same."""
    return PRICE


def counting(days: Days, bills: Bills, now: list[float]) -> BillCounter:
    """Return a counter whose clock stands at the list's only number."""
    return BillCounter(days, bills, priced, lambda: now[0])


async def test_a_conversation_s_turns_follow_one_another_within_a_batch() -> None:
    """Each is compared with the one before, and the store has the newest."""
    days, bills, now = Days(), Bills(), [1000.0]
    counter = counting(days, bills, now)
    for moment in (1000.0, 1010.0, 1020.0):
        now[0] = moment
        counter.on_event(COMPACTED)
    await counter.settle()
    ((number, batch),) = days.sent
    ((conversation, _, figures, newest),) = bills.sent
    assert (number, conversation, figures) == (1, CONVERSATION, batch[0, "m"])
    assert figures.requests == 3
    assert newest == EarlierTurn("m", 20_000, 1020.0, caches=True)


async def test_a_batch_that_failed_is_sent_again_under_its_number() -> None:
    """The store may have taken it all the same; what came meanwhile is another batch."""
    days, bills = Days(StoreUnavailable("away"), StoreUnavailable("away")), Bills()
    counter = counting(days, bills, [0.0])
    counter.on_event(COMPACTED)
    await counter.settle()
    counter.on_event(COMPACTED)
    await counter.settle()
    await counter.aclose()
    assert [number for number, _ in days.sent] == [1, 1, 1, 2]
    assert days.total.requests == 2
    assert len(bills.sent) == 2


async def test_while_the_store_does_not_say_what_was_before_all_turns_wait() -> None:
    """None is lost, and none is compared with nothing."""
    days, bills = Days(), Bills(StoreUnavailable("away"))
    counter = counting(days, bills, [0.0])
    counter.on_event(COMPACTED)
    await counter.settle()
    assert not days.sent
    counter.on_event(COMPACTED)
    await counter.aclose()
    assert days.total.requests == 2


async def test_a_broken_record_stops_nothing() -> None:
    """The turn is counted by day."""
    days, bills = Days(RecordUnreadable("of another kind")), Bills(RecordUnreadable("of another kind"))
    counter = counting(days, bills, [0.0])
    counter.on_event(COMPACTED)
    await counter.settle()
    counter.on_event(COMPACTED)
    await counter.settle()
    assert [number for number, _ in days.sent] == [1, 2]


async def test_another_model_in_one_conversation_knows_nothing_of_the_first_one_s_cache() -> None:
    """Its own prefix counts as cached, which is the smaller saving."""
    days, bills = Days(), Bills()
    bills.stored[CONVERSATION] = EarlierTurn("other", 1, 0.0, caches=True)
    counter = counting(days, bills, [0.0])
    report = replace(COMPACTED.report, action="compacted") if COMPACTED.report else None
    counter.on_event(replace(COMPACTED, report=report))
    await counter.settle()
    figures = days.total
    assert figures.uncompacted_nano == 20_000 * 100 + 10 * 2000


async def test_a_clock_that_jumps_puts_no_turn_on_a_day_of_invented_money() -> None:
    """Each stands on the day that the clock says, and costs the same."""
    days, now = Days(), [0.0]
    counter = counting(days, Bills(), now)
    for moment in (10.0 * DAY_SECONDS, 3.0 * DAY_SECONDS, -1.0):
        now[0] = moment
        counter.on_event(COMPACTED)
    await counter.settle()
    ((_, batch),) = days.sent
    assert [day for day, _ in batch] == [10, 3, -1]
    assert all(one == other for one, other in pairwise(batch.values()))


async def test_a_search_is_one_more_question_to_the_upstream() -> None:
    """The uncompacted turn would have needed one. Two calls in one round are one more."""
    days, bills = Days(), Bills()
    bills.stored[CONVERSATION] = EarlierTurn("m", 20_000, 0.0, caches=False)
    counter = counting(days, bills, [0.0])
    counter.on_event(MessagesSearched(CONVERSATION, "m", "recalled", 1))
    counter.on_event(MessagesSearched(CONVERSATION, "m", "nothing", 1))
    counter.on_event(replace(COMPACTED, usage=Usage(20_000, 0, 10)))
    counter.on_event(replace(COMPACTED, usage=Usage(10_000, 0, 10)))
    await counter.settle()
    assert days.total.uncompacted_nano == 2 * (20_000 * 1000 + 10 * 2000)


async def test_a_summary_is_billed_though_no_turn_came_of_it() -> None:
    """Also one whose answer was no summary, and one without counts."""
    days, bills = Days(), Bills()
    counter = counting(days, bills, [0.0])
    request = TextRequest([], 10, 1.0, conversation=CONVERSATION, model="m")
    counter.note_completion(ROUTE, request, {"usage": {"prompt_tokens": 1000, "completion_tokens": 100}})
    counter.note_completion(ROUTE, request, {"choices": []})
    counter.note_usage("", ROUTE, Usage(10, 0, 10))
    await counter.settle()
    figures = days.total
    assert (figures.summaries_nano, figures.summary_tokens, figures.unknown_summaries) == (1_230_000, 1120, 1)
    assert (figures.requests, figures.saved_usd) == (0, None)
    assert bills.sent[0][2].summary_tokens == 1100


async def test_requests_that_no_upstream_answered_are_not_billed() -> None:
    """Refusals, answers of Tidemark's own, and what was never understood."""
    days = Days()
    counter = counting(days, Bills(), [0.0])
    counter.on_event(replace(COMPACTED, report=None))
    counter.on_event(replace(COMPACTED, status=429, outcome="refused", usage=Usage()))
    counter.on_event(RequestServed("/v1/x", 404, "rejected", 0.1))
    await counter.settle()
    assert days.total == BillFigures()


async def test_clients_cannot_fill_the_days_with_names() -> None:
    """Only a model that an upstream counted for has a row, and only so many."""
    days = Days()
    counter = counting(days, Bills(), [0.0])
    counter.on_event(replace(COMPACTED, model="invented", usage=Usage()))
    for number in range(MAX_MODELS + 5):
        counter.on_event(replace(COMPACTED, model=f"m{number}"))
    await counter.settle()
    ((_, batch),) = days.sent
    assert len(batch) == MAX_MODELS + 1
    assert batch[0, OTHER].requests == 6
