"""Computes figures from rounds: what each system needs for each work, also as a ratio to the bare relay.

A ratio is taken within each round, where both sides had the same machine, and the median of the rounds counts.
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
"""The growth of a ratio that counts as a regression."""
ENOUGH = 10
"""The fewest answers of a meaningful figure."""
COMPARED = ("cpu", "first")
"""The ratios that noise disturbs little enough to compare them with an earlier run."""


@dataclass(frozen=True)
class Figures:
    """The figures of one work on one system."""

    cpu_ms: float
    store_ms: float
    first_p50_ms: float
    first_p99_ms: float
    added_p50_ms: float
    """The time to the first byte, above the upstream alone."""
    added_p99_ms: float
    whole_p50_ms: float
    per_second: float
    grown_kb: float
    """The peak memory above the memory before the work."""
    failed: int
    missing: int
    answers: int
    actions: Mapping[str, int] = field(default_factory=dict)
    ratios: Ratios = field(default_factory=dict)
    """Ratios to the bare relay (``cpu``, ``first``, ``per_second``) and to Tidemark (``cpu_to_ours``). 0 where there is
    none."""


@dataclass(frozen=True)
class Report:
    """The whole result of a run."""

    machine: Mapping[str, str]
    rounds: int
    works: Mapping[str, str]
    """The titles of the works by name."""
    systems: Mapping[str, Mapping[str, float]]
    """By system: ``ready_seconds``, ``rest_mb``, ``after_mb``."""
    figures: Mapping[str, Mapping[str, Figures]]
    """The figures by system and work."""
    alone: Sequence[str] = ()
    """Works with one request at a time; with several at once, a first byte waits for the other requests."""
    skipped: Mapping[str, str] = field(default_factory=dict)
    kind: str = "full"
    """``quick`` or ``full``. Earlier work of a process changes its figures, so only equal kinds are compared."""
    extra: Mapping[str, float] = field(default_factory=dict)
    """Further measurements: ``litellm_import_seconds`` and the parsing of bodies."""
    shares: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    """By system and work, the share of each part of its processor time (``shares.py``)."""

    def plain(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return asdict(self)

    def at(self, system: str, work: str) -> Figures | None:
        """Return the figures of a system for a work, if it performed the work."""
        return self.figures.get(system, {}).get(work)


def read(path: Path) -> Report:
    """Read a report from JSON."""
    return msgspec.json.decode(path.read_bytes(), type=Report)


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value that this share of all values does not exceed; 0 without values."""
    ordered = sorted(values)
    return ordered[max(0, math.ceil(share * len(ordered)) - 1)] if ordered else 0.0


def _pooled(rounds: Sequence[Measured]) -> list[float]:
    return [value for measured in rounds for value in measured.first_ms]


def _ratio(ours: Sequence[float], floor: Sequence[float]) -> float:
    """Return the median of the rounds' ratios."""
    pairs = [own / base for own, base in zip(ours, floor, strict=False) if base > 0]
    return statistics.median(pairs) if pairs else 0.0


def _ratios(rounds: Sequence[Measured], floor: Sequence[Measured], ours: Sequence[Measured]) -> Ratios:
    return {
        "cpu_to_ours": _ratio([measured.cpu_ms for measured in rounds], [measured.cpu_ms for measured in ours]),
        "cpu": _ratio([measured.cpu_ms for measured in rounds], [measured.cpu_ms for measured in floor]),
        "first": _ratio(
            [percentile(measured.first_ms, 0.5) for measured in rounds],
            [percentile(measured.first_ms, 0.5) for measured in floor],
        ),
        "per_second": _ratio([measured.per_second for measured in rounds], [measured.per_second for measured in floor]),
    }


def of_work(
    rounds: Sequence[Measured], direct: Sequence[Measured], floor: Sequence[Measured], ours: Sequence[Measured] = ()
) -> Figures:
    """Return the figures of one work on one system."""
    firsts, bare = _pooled(rounds), _pooled(direct)
    p50, p99 = percentile(firsts, 0.5), percentile(firsts, 0.99)
    return Figures(
        cpu_ms=statistics.median(measured.cpu_ms for measured in rounds),
        store_ms=statistics.median(measured.store_ms for measured in rounds),
        first_p50_ms=p50,
        first_p99_ms=p99,
        added_p50_ms=p50 - percentile(bare, 0.5),
        added_p99_ms=p99 - percentile(bare, 0.99),
        whole_p50_ms=percentile([value for measured in rounds for value in measured.whole_ms], 0.5),
        per_second=statistics.median(measured.per_second for measured in rounds),
        grown_kb=statistics.median(measured.peak_kb - measured.before_kb for measured in rounds),
        failed=sum(measured.failed for measured in rounds),
        missing=sum(measured.missing for measured in rounds),
        answers=len(firsts),
        actions=dict(sum((Counter(measured.actions) for measured in rounds), Counter())),
        ratios=_ratios(rounds, floor, ours),
    )


def all_figures(rounds: Rounds) -> dict[str, dict[str, Figures]]:
    """Return the figures of all works on all systems."""
    direct, floor, ours = (rounds.get(name, {}) for name in (DIRECT, FLOOR, OURS))
    return {
        system: {
            work: of_work(done, direct.get(work, []), floor.get(work, []), ours.get(work, []))
            for work, done in of_system.items()
        }
        for system, of_system in rounds.items()
    }


def of_systems(bench: Bench, after_kb: Mapping[str, int]) -> dict[str, dict[str, float]]:
    """Return the figures of each system as a whole."""
    return {
        name: {
            "ready_seconds": statistics.median(measured.ready_seconds for measured in starts),
            "rest_mb": statistics.median(measured.rest_kb for measured in starts) / 1024,
            "after_mb": after_kb.get(name, 0) / 1024,
        }
        for name, starts in bench.starts.items()
    }


def ratios_of(report: Report, system: str) -> Ratios:
    """Return the ratios of one system for a comparison with later runs, named as ``small/cpu``."""
    return {
        f"{work}/{kind}": round(figures.ratios[kind], 3)
        for work, figures in report.figures.get(system, {}).items()
        for kind in COMPARED
        if figures.ratios.get(kind) and figures.answers >= ENOUGH and (kind == "cpu" or work in report.alone)
    }


def regressions(now: Ratios, before: Ratios, tolerance: float = TOLERANCE) -> list[str]:
    """List the ratios that grew by more than the tolerance, where both sides have them."""
    return [
        f"{name}: {before[name]:.2f} before, {now[name]:.2f} now ({now[name] / before[name] - 1:+.0%})"
        for name in before
        if name in now and now[name] > before[name] * (1 + tolerance)
    ]
