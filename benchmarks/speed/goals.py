"""Defines Tidemark's goals, each as a figure of one run with its bound."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from benchmarks.speed.figures import FLOOR, OURS, Figures, Report

Number = float | None
"""A figure; None where the run did not measure it."""


@dataclass(frozen=True)
class Goal:
    """One goal."""

    name: str
    measure: Callable[[Report], Number]
    bound: Callable[[Report], Number]
    at_least: bool = False
    """Whether a larger figure is better."""
    unit: str = ""


def _constant(value: float) -> Callable[[Report], Number]:
    return lambda _: value


def _cpu(work: str) -> Callable[[Report], Number]:
    """Measure processor time as a multiple of the bare relay's."""

    def measure(report: Report) -> Number:
        figures = report.at(OURS, work)
        return figures.ratios.get("cpu") if figures else None

    return measure


def _of(work: str, take: Callable[[Figures], float], system: str = OURS) -> Callable[[Report], Number]:
    def measure(report: Report) -> Number:
        figures = report.at(system, work)
        return take(figures) if figures and figures.answers else None

    return measure


def _less(minuend: Callable[[Report], Number], subtrahend: Callable[[Report], Number]) -> Callable[[Report], Number]:
    def measure(report: Report) -> Number:
        first, second = minuend(report), subtrahend(report)
        return None if first is None or second is None else first - second

    return measure


def _over(dividend: Callable[[Report], Number], divisor: Callable[[Report], Number]) -> Callable[[Report], Number]:
    def measure(report: Report) -> Number:
        first, second = dividend(report), divisor(report)
        return None if first is None or not second else first / second

    return measure


def _cpu_ms(work: str, system: str = OURS) -> Callable[[Report], Number]:
    return _of(work, lambda figures: figures.cpu_ms, system)


def _dialect(work: str) -> Callable[[Report], Number]:
    """Measure a dialect's small request as a multiple of the one in chat completions."""
    return _over(_cpu_ms(work), _cpu_ms("small"))


def _p50(work: str, system: str = OURS) -> Callable[[Report], Number]:
    return _of(work, lambda figures: figures.first_p50_ms, system)


def _p99(work: str, system: str = OURS) -> Callable[[Report], Number]:
    return _of(work, lambda figures: figures.first_p99_ms, system)


def _extra(name: str, more: float = 0.0) -> Callable[[Report], Number]:
    def measure(report: Report) -> Number:
        value = report.extra.get(name)
        return None if value is None else value + more

    return measure


def _system(name: str, field: str) -> Callable[[Report], Number]:
    return lambda report: report.systems[name][field] if name in report.systems else None


def _beyond_parsing(work: str) -> Callable[[Report], Number]:
    return _less(_cpu_ms(work), _extra(f"parsing_{work}_ms"))


def _a_chunk(system: str) -> Callable[[Report], Number]:
    """Measure the cost of the chunks that a long stream has beyond a short one."""
    return _less(_cpu_ms("stream-1000", system), _cpu_ms("stream-100", system))


def _small(work: str, title: str) -> list[Goal]:
    """Return the goals of small requests."""
    ours, litellm = _cpu_ms(work), _cpu_ms(work, "litellm")
    return [
        Goal(f"{title}: CPU, times the floor", _cpu(work), _constant(2.5)),
        Goal(f"{title}: LiteLLM's CPU, times ours", _over(litellm, ours), _constant(30), at_least=True),
        Goal(f"{title}: p50 to first byte, against awecompress's", _p50(work), _p50(work, "awecompress"), unit="ms"),
    ]


GOALS = [
    *_small("small", "small request"),
    *_small("small-1000", "the same, 1,000 in a row"),
    Goal("small request of Responses: CPU, times that of chat", _dialect("small-responses"), _constant(1.2)),
    Goal("small request of messages: CPU, times that of chat", _dialect("small-messages"), _constant(1.2)),
    Goal("a request that is only carried: CPU, times the floor", _cpu("carried"), _constant(1.3)),
    Goal("100 chunks, paced: CPU, times the floor", _cpu("stream-100-paced"), _constant(1.5)),
    Goal(
        "100 chunks, paced: LiteLLM's CPU, times ours",
        _over(_cpu_ms("stream-100-paced", "litellm"), _cpu_ms("stream-100-paced")),
        _constant(60),
        at_least=True,
    ),
    Goal(
        "each further chunk, unpaced: LiteLLM's CPU, times ours",
        _over(_a_chunk("litellm"), _a_chunk(OURS)),
        _constant(60),
        at_least=True,
    ),
    Goal("467 KB, warm: CPU, times the floor", _cpu("history-1000"), _constant(3)),
    Goal(
        "467 KB, warm: p50 to first byte above the floor",
        _less(_p50("history-1000"), _p50("history-1000", FLOOR)),
        _constant(2.5),
        unit="ms",
    ),
    Goal(
        "a turn at 1,000 messages, times one at 10, beyond parsing",
        _over(_beyond_parsing("history-1000"), _beyond_parsing("history-10")),
        _constant(4),
    ),
    Goal(
        "the same beyond the floor's carrying, too",
        _over(
            _less(_beyond_parsing("history-1000"), _cpu_ms("history-1000", FLOOR)),
            _less(_beyond_parsing("history-10"), _cpu_ms("history-10", FLOOR)),
        ),
        _constant(4),
    ),
    Goal(
        "a stored summary put into 100k tokens: p99 above the same without",
        _less(_p99("reused"), _p99("kept")),
        _constant(5),
        unit="ms",
    ),
    Goal("ready to serve", _system(OURS, "ready_seconds"), _extra("litellm_import_seconds", 0.5), unit="s"),
    Goal(
        "ready to serve through litellm",
        _system("tidemark-translate", "ready_seconds"),
        _extra("litellm_import_seconds", 0.5),
        unit="s",
    ),
    Goal("memory at rest", _system(OURS, "rest_mb"), _constant(220), unit="MB"),
    Goal("memory at rest with litellm", _system("tidemark-translate", "rest_mb"), _constant(220), unit="MB"),
    Goal(
        "500 streams: memory for each",
        _of("streams-500", lambda figures: figures.grown_kb / 500),
        _constant(100),
        unit="KB",
    ),
    Goal(
        "20,000 requests: memory grown",
        _of("endurance", lambda figures: figures.grown_kb / 1024),
        _constant(5),
        unit="MB",
    ),
]
"""The last bound allows for memory that an allocator retains: 5 MB in 20,000 requests are 262 bytes each."""


def verdict(goal: Goal, report: Report) -> tuple[Number, Number, bool | None]:
    """Return the figure, its bound and whether it is reached; None where it was not measured."""
    figures, bound = goal.measure(report), goal.bound(report)
    if figures is None or bound is None or math.isnan(figures):
        return figures, bound, None
    return figures, bound, figures >= bound if goal.at_least else figures <= bound


def lines(report: Report) -> Iterator[str]:
    """Yield a line for each goal that the run measured."""
    for goal in GOALS:
        figures, bound, reached = verdict(goal, report)
        if reached is None:
            continue
        side = "at least" if goal.at_least else "at most"
        unit = f" {goal.unit}" if goal.unit else ""
        yield f"{'reached' if reached else 'MISSED '}  {goal.name}: {figures:.2f}{unit} ({side} {bound:.2f})"
