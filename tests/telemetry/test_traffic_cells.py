"""The metrics hand over whose figures are whose: by model and by tenant, and bounded."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from tidemark.core.events import Event, ManualCompactionEnded, RequestServed, RequestShed, SummaryFailed
from tidemark.core.report import Report, Usage
from tidemark.core.traffic import MAX_NAMES, OTHER, TrafficFigures
from tidemark.telemetry.gathering import SILENT_SECONDS, Cells, NamedTenants
from tidemark.telemetry.metrics import Metrics

SERVED = RequestServed(
    "/v1/chat/completions",
    200,
    "complete",
    0.75,
    first_byte_seconds=0.5,
    model="small",
    report=Report("c", "t", 1000, "compacted", 900, 400, overhead_seconds=0.002, recall="recalled", recalled_tokens=5),
    usage=Usage(410, 300, 20),
    owner="one",
    upstream_seconds=0.4,
)


async def handed_over(metrics: Metrics, events: Sequence[Event]) -> Cells:
    """What metrics hand over after some events."""
    cells: list[Cells] = []
    metrics.give_traffic_to(cells.append)
    for event in events:
        metrics(event)
    metrics.hand_over()
    (only,) = cells
    return only


def cells_of(*events: Event) -> Cells:
    """What new metrics hand over after some events."""
    return asyncio.run(handed_over(Metrics(), events))


def test_each_model_and_tenant_has_a_cell_of_its_own() -> None:
    """With the same figures that all requests have; what is nobody's is among those of all alone."""
    cells = cells_of(SERVED, SERVED, replace(SERVED, owner="two"), replace(SERVED, model="", owner=""))
    assert {place: figures.requests for place, figures in cells.items()} == {
        ("small", "one"): 2,
        ("small", "two"): 1,
        ("", ""): 1,
    }
    figures = cells["small", "one"]
    assert (figures.tokens_before, figures.tokens_saved, figures.cached_tokens, figures.compacted) == (
        1800,
        1000,
        600,
        2,
    )
    assert (sum(figures.overheads), sum(figures.first_bytes)) == (2, 2)
    assert 0.3 <= (figures.first_byte_quantile(0.5) or 0) <= 0.4


def test_summaries_belong_to_the_conversations_model_and_tenant() -> None:
    """Those that failed, and those that people asked for; what was refused beyond the limits is nobody's."""
    cells = cells_of(
        SummaryFailed("c", "small", "llm", "timeout", "deterministic", 60.0, owner="one"),
        ManualCompactionEnded("c", "small", "forced", "two"),
        ManualCompactionEnded("c", "small", "none", "three"),
        RequestShed("streams", 3, 0),
    )
    assert cells["small", "one"] == TrafficFigures(summarizer_failures=1)
    assert cells["small", "two"] == TrafficFigures(forced=1)
    assert cells["", ""] == TrafficFigures(shed=1)
    assert ("small", "three") not in cells


def test_the_first_byte_is_that_of_answers_of_models() -> None:
    """A refusal comes at once, and what has no model is no answer of one."""
    refused = replace(SERVED, status=429, outcome="refused")
    cells = cells_of(SERVED, refused, replace(SERVED, model=""), replace(SERVED, upstream_seconds=None))
    assert cells["small", "one"].requests == 3
    assert sum(sum(figures.first_bytes) for figures in cells.values()) == 1


def test_the_series_have_the_requests_of_all_tenants() -> None:
    """However many they are, the metrics do not name them."""
    together, apart = Metrics(), Metrics()
    events = [SERVED, replace(SERVED, seconds=3.0), replace(SERVED, report=None)] * 2
    asyncio.run(handed_over(together, events))
    asyncio.run(handed_over(apart, [replace(one, owner=f"t{place}") for place, one in enumerate(events)]))
    pages = [
        [
            line
            for line in metrics.render()[0].decode().splitlines()
            if not line.startswith(("process_", "tidemark_tasks"))
        ]
        for metrics in (together, apart)
    ]
    assert [line for line in pages[0] if "_created" not in line] == [
        line for line in pages[1] if "_created" not in line
    ]
    assert 'tidemark_requests_total{action="compacted",model="small",outcome="complete",status="200"} 4.0' in pages[1]


def test_only_so_many_tenants_are_named_and_who_is_silent_gives_its_place() -> None:
    """Those who got an answer first; others are one name."""
    now = [100.0]
    tenants = NamedTenants(lambda: now[0])
    assert tenants.name("refused", has_answer=False) == OTHER
    names = [tenants.name(f"t{number}", has_answer=True) for number in range(MAX_NAMES + 1)]
    assert names == [*(f"t{number}" for number in range(MAX_NAMES)), OTHER]
    assert (tenants.name("t0", has_answer=False), tenants.name("", has_answer=True)) == ("t0", "")
    now[0] += SILENT_SECONDS - 1
    tenants.see([*(f"t{number}" for number in range(MAX_NAMES - 1)), "unknown"])
    assert tenants.name("late", has_answer=True) == OTHER
    now[0] += 1
    assert tenants.name("late", has_answer=True) == "late"
    assert f"t{MAX_NAMES - 1}" not in tenants
    assert tenants.name("later", has_answer=True) == OTHER
