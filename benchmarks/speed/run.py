"""Measures all systems, which run at the same time and perform each work in turns, round after round.

Processor time is the figure that other programs disturb least. Ratios are taken within a round.
"""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from benchmarks.speed import load, machine
from benchmarks.speed.systems import UPSTREAM, Running, System, start
from benchmarks.speed.work import CHAT_PATH, COLD, Batch, Work

DIRECT = "direct"
"""The upstream without a proxy, whose latency is subtracted from the others'."""
QUIET_SECONDS, REST_SECONDS = 5.0, 30.0
"""The longest wait until a system is idle, between works and after its start."""
WATCHED = 100
"""With this many requests at once, memory is also read while they run."""


@dataclass
class Measured:
    """One round of one work on one system."""

    cpu_ms: float = 0.0
    """The proxy's processor time for each request."""
    store_ms: float = 0.0
    """Its store's processor time for each request."""
    first_ms: list[float] = field(default_factory=list)
    whole_ms: list[float] = field(default_factory=list)
    per_second: float = 0.0
    failed: int = 0
    missing: int = 0
    """The requests that did not end within the time limit."""
    actions: dict[str, int] = field(default_factory=dict)
    before_kb: int = 0
    peak_kb: int = 0


@dataclass(frozen=True)
class Start:
    """One start of a system."""

    ready_seconds: float
    """The time to the end of the first answered request."""
    rest_kb: int
    """The memory of the idle system after that."""


Rounds = dict[str, dict[str, list[Measured]]]
"""The rounds by system, then by work."""


@dataclass
class Bench:
    """The running systems with their measurements."""

    upstream: Running
    running: list[Running] = field(default_factory=list)
    rounds: Rounds = field(default_factory=dict)
    starts: dict[str, list[Start]] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    """The systems that did not start, with the reasons."""

    def keep(self, system: str, work: Work, measured: Measured) -> None:
        """Record a round."""
        self.rounds.setdefault(system, {}).setdefault(work.name, []).append(measured)


def open_bench(systems: Iterable[System], folder: Path, stack: ExitStack, starts: int = 1) -> Bench:
    """Start all systems one after another, so that each start has the whole machine; the last start stays."""
    upstream = start(UPSTREAM, "", folder / "upstream")
    stack.callback(upstream.stop)
    bench = Bench(upstream)
    for number in range(starts):
        batch = COLD.make(f"cold-{number}")
        bench.keep(DIRECT, COLD, uvloop.run(_measured(upstream, COLD, batch)))
        for system in systems:
            if system.name not in bench.skipped:
                running = _started(bench, system, folder / f"{system.name}-{number}", batch)
                if running and number < starts - 1:
                    running.stop()
                elif running:
                    stack.callback(running.stop)
                    bench.running.append(running)
    return bench


def _started(bench: Bench, system: System, folder: Path, batch: Batch) -> Running | None:
    """Start one system, and send its first conversation."""
    with ExitStack() as failing:
        try:
            running = start(system, f"http://{load.HOST}:{bench.upstream.port}", folder)
            failing.callback(running.stop)
            machine.settled(running.pid, REST_SECONDS)
            first_start = Start(running.ready_seconds, machine.memory_kb(running.pid))
            bench.keep(system.name, COLD, uvloop.run(_measured(running, COLD, batch)))
        except (RuntimeError, OSError) as error:
            if not system.is_peer:
                raise
            bench.skipped[system.name] = str(error)
            return None
        bench.starts.setdefault(system.name, []).append(first_start)
        failing.pop_all()
    return running


def measure(bench: Bench, works: Sequence[Work], rounds: int) -> Iterator[str]:
    """Run all rounds of all works, and yield a line of progress for each."""
    for number in range(rounds):
        for work in works:
            if work.rounds is None or number >= rounds - work.rounds:
                began = time.perf_counter()
                for repeat in range(work.repeats):
                    _round(bench, work, number * work.repeats + repeat)
                yield f"round {number + 1} of {rounds}: {work.name}, {time.perf_counter() - began:.0f} s"


def _round(bench: Bench, work: Work, number: int) -> None:
    batch = work.make(f"{work.name}-{number}")
    turns: list[Running] = [bench.upstream, *bench.running]
    shift = number % len(turns)  # no system is always the first
    for running in turns[shift:] + turns[:shift]:
        name = DIRECT if running is bench.upstream else running.system.name
        if not suits(work, running.system):
            continue
        try:
            bench.keep(name, work, uvloop.run(_measured(running, work, batch)))
        except OSError as error:
            if not running.system.is_peer:
                raise
            bench.skipped[name] = f"{work.name}: {error}"
            bench.running.remove(running)


def suits(work: Work, system: System) -> bool:
    """Return whether a system performs a work."""
    return not (work.ours and system.is_peer) and (not system.only or work.name in system.only)


async def _measured(running: Running, work: Work, batch: Batch) -> Measured:
    path = running.system.path if work.path == CHAT_PATH else work.path
    before = [load.request(path, body) for body in batch.before]
    data = [load.request(path, body) for body in batch.measured]
    if before:
        await load.drive(running.port, before, 1, work.limit_seconds)
    await asyncio.to_thread(machine.settled, running.pid, QUIET_SECONDS)
    measured = Measured(before_kb=machine.memory_kb(running.pid))
    start = machine.usage(running.pid)
    watch = asyncio.create_task(_watch(running.pid, measured)) if work.concurrency >= WATCHED else None
    gc.disable()  # the client's own pauses must not count as latency
    try:
        outcome = await load.drive(running.port, data, work.concurrency, work.limit_seconds)
    finally:
        gc.enable()
    if watch:
        watch.cancel()
    await asyncio.to_thread(machine.settled, running.pid, QUIET_SECONDS, 0.05)  # what is done after the answer counts
    end = machine.usage(running.pid)
    measured.peak_kb = max(measured.peak_kb, machine.memory_kb(running.pid))
    return _filled(measured, outcome, len(data), start, end)


def _filled(
    measured: Measured, outcome: load.Outcome, requests: int, start: machine.Usage, end: machine.Usage
) -> Measured:
    done = max(1, len(outcome.answers))
    good = [answer for answer in outcome.answers if answer.good]
    measured.cpu_ms = (end.cpu_ms - start.cpu_ms) / done
    measured.store_ms = (end.store_ms - start.store_ms) / done
    measured.first_ms = [answer.first * 1000 for answer in good]
    measured.whole_ms = [answer.whole * 1000 for answer in good]
    measured.per_second = len(good) / outcome.seconds if outcome.seconds else 0.0
    measured.failed = len(outcome.answers) - len(good)
    measured.missing = requests - len(outcome.answers)
    measured.actions = dict(Counter(answer.action for answer in good if answer.action))
    return measured


async def _watch(pid: int, measured: Measured) -> None:
    """Record the peak memory of a system."""
    while True:
        measured.peak_kb = max(measured.peak_kb, machine.memory_kb(pid))
        await asyncio.sleep(0.25)
