"""From rounds to figures: what each system needs for each work, and as a ratio to the floor.

A ratio is taken within each round, where both sides met the same machine, and the median of the rounds is kept.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.speed.run import DIRECT, Bench, Measured, Rounds

FLOOR, OURS = "floor", "tidemark"
Ratios = dict[str, float]
TOLERANCE = 0.20
"""A ratio that has grown by more has regressed."""
ENOUGH = 10
"""Of fewer answers chance decides."""
COMPARED = ("cpu", "first")
"""Of the ratios, those that noise leaves alone well enough to be held against an earlier run."""


@dataclass(frozen=True)
class Figures:
    """One work on one system."""

    cpu_ms: float
    store_ms: float
    first_p50_ms: float
    first_p99_ms: float
    added_p50_ms: float
    """Until the first byte, above the upstream alone."""
    added_p99_ms: float
    whole_p50_ms: float
    per_second: float
    grown_kb: float
    """Memory at its peak, less than before the work."""
    failed: int
    missing: int
    answers: int
    actions: Mapping[str, int] = field(default_factory=dict)
    ratios: Ratios = field(default_factory=dict)
    """To the floor: ``cpu``, ``first`` and ``per_second``; to Tidemark: ``cpu_to_ours``. 0 where there is none."""


@dataclass(frozen=True)
class Report:
    """Everything that a run found."""

    machine: Mapping[str, str]
    rounds: int
    works: Mapping[str, str]
    """Name and title."""
    systems: Mapping[str, Mapping[str, float]]
    """Of each: ``ready_seconds``, ``rest_mb``, ``after_mb``."""
    figures: Mapping[str, Mapping[str, Figures]]
    """By system and work."""
    alone: Sequence[str] = ()
    """Works whose requests come one at a time; with several at once, the first byte waits for the others' turns."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    kind: str = "full"
    """``quick`` or ``full``: what else a process did before moves its figures, so only like is held against like."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """What is measured beside the systems: ``litellm_import_seconds`` and the parsing of bodies."""

    def plain(self) -> dict[str, Any]:
        """As JSON holds it."""
        return asdict(self)

    def at(self, system: str, work: str) -> Figures | None:
        """What a system needed for a work, where it did it."""
        return self.figures.get(system, {}).get(work)


def read(path: Path) -> Report:
    """A report that was written as JSON."""
    return msgspec.json.decode(path.read_bytes(), type=Report)


def percentile(values: Sequence[float], share: float) -> float:
    """The value that this share of all does not exceed; 0 of none."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _pooled(rounds: Sequence[Measured]) -> list[float]:
    return [value for one in rounds for value in one.first_ms]


def _ratio(ours: Sequence[float], floor: Sequence[float]) -> float:
    """The median of the ratios of the rounds."""
    pairs = [own / base for own, base in zip(ours, floor, strict=False) if base > 0]
    return statistics.median(pairs) if pairs else 0.0


def _ratios(rounds: Sequence[Measured], floor: Sequence[Measured], ours: Sequence[Measured]) -> Ratios:
    return {
        "cpu_to_ours": _ratio([one.cpu_ms for one in rounds], [one.cpu_ms for one in ours]),
        "cpu": _ratio([one.cpu_ms for one in rounds], [one.cpu_ms for one in floor]),
        "first": _ratio(
            [percentile(one.first_ms, 0.5) for one in rounds], [percentile(one.first_ms, 0.5) for one in floor]
        ),
        "per_second": _ratio([one.per_second for one in rounds], [one.per_second for one in floor]),
    }


def of_work(
    rounds: Sequence[Measured], direct: Sequence[Measured], floor: Sequence[Measured], ours: Sequence[Measured] = ()
) -> Figures:
    """The figures of one work on one system."""
    firsts, bare = _pooled(rounds), _pooled(direct)
    p50, p99 = percentile(firsts, 0.5), percentile(firsts, 0.99)
    return Figures(
        cpu_ms=statistics.median(one.cpu_ms for one in rounds),
        store_ms=statistics.median(one.store_ms for one in rounds),
        first_p50_ms=p50,
        first_p99_ms=p99,
        added_p50_ms=p50 - percentile(bare, 0.5),
        added_p99_ms=p99 - percentile(bare, 0.99),
        whole_p50_ms=percentile([value for one in rounds for value in one.whole_ms], 0.5),
        per_second=statistics.median(one.per_second for one in rounds),
        grown_kb=statistics.median(one.peak_kb - one.before_kb for one in rounds),
        failed=sum(one.failed for one in rounds),
        missing=sum(one.missing for one in rounds),
        answers=len(firsts),
        actions=dict(sum((Counter(one.actions) for one in rounds), Counter())),
        ratios=_ratios(rounds, floor, ours),
    )


def all_figures(rounds: Rounds) -> dict[str, dict[str, Figures]]:
    """The figures of all works on all systems."""
    direct, floor, ours = (rounds.get(name, {}) for name in (DIRECT, FLOOR, OURS))
    return {
        system: {
            work: of_work(done, direct.get(work, []), floor.get(work, []), ours.get(work, []))
            for work, done in of_system.items()
        }
        for system, of_system in rounds.items()
    }


def of_systems(bench: Bench, after_kb: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """What is true of each system as a whole."""
    return {
        name: {
            "ready_seconds": statistics.median(one.ready_seconds for one in starts),
            "rest_mb": statistics.median(one.rest_kb for one in starts) / 1024,
            "after_mb": after_kb.get(name, 0) / 1024,
        }
        for name, starts in bench.starts.items()
    }


def ratios_of(report: Report, system: str) -> Ratios:
    """The ratios of one system that a later run is held against, as ``small/cpu``."""
    return {
        f"{work}/{kind}": round(found.ratios[kind], 3)
        for work, found in report.figures.get(system, {}).items()
        for kind in COMPARED
        if found.ratios.get(kind) and found.answers >= ENOUGH and (kind == "cpu" or work in report.alone)
    }


def regressions(now: Ratios, before: Ratios, tolerance: float = TOLERANCE) -> list[str]:
    """What has grown by more than the tolerance since, a line each. What only one side has is not compared."""
    return [
        f"{name}: {before[name]:.2f} before, {now[name]:.2f} now ({now[name] / before[name] - 1:+.0%})"
        for name in before
        if name in now and now[name] > before[name] * (1 + tolerance)
    ]
