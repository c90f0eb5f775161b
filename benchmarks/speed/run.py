"""Measuring: all systems run at once, and do each work in turns, round after round.

Processor time is the figure that other programs on the machine disturb least; ratios are taken within a round.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from benchmarks.speed import load, machine
from benchmarks.speed.peers import UPSTREAM, Running, System, start
from benchmarks.speed.work import Batch, Work

DIRECT = "direct"
"""The upstream without any proxy: what the others' latency is added to."""
QUIET_SECONDS = 5.0


@dataclass
class Measured:
    """One round of one work on one system."""

    cpu_ms: float = 0.0
    """Of the proxy, for each request."""
    store_ms: float = 0.0
    """Of its store, for each request."""
    first_ms: list[float] = field(default_factory=list)
    whole_ms: list[float] = field(default_factory=list)
    per_second: float = 0.0
    failed: int = 0
    missing: int = 0
    """Not done within the time limit."""
    actions: dict[str, int] = field(default_factory=dict)
    before_kb: int = 0
    peak_kb: int = 0


Rounds = dict[str, dict[str, list[Measured]]]
"""By system, then by work."""


@dataclass
class Bench:
    """The systems that run, and what was measured."""

    upstream: Running
    running: list[Running]
    rounds: Rounds = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    """Systems that could not be started, and why."""


def open_bench(systems: Iterable[System], folder: Path, stack: ExitStack) -> Bench:
    """Start everything, one after another, so that each start has the machine to itself."""
    upstream = start(UPSTREAM, "", folder / "upstream")
    stack.callback(upstream.stop)
    bench = Bench(upstream, [])
    for system in systems:
        try:
            running = start(system, f"http://{load.HOST}:{upstream.port}", folder / system.name)
        except RuntimeError as error:
            bench.skipped[system.name] = str(error)
            continue
        stack.callback(running.stop)
        machine.settled(running.pid, 30.0)
        running.rest_kb = machine.memory_kb(running.pid)
        bench.running.append(running)
    return bench


def measure(bench: Bench, works: Sequence[Work], rounds: int, told: float = 0.0) -> Iterator[str]:
    """All rounds of all works; yields a line of progress for each."""
    for number in range(rounds):
        began = time.perf_counter()
        for work in works:
            if work.rounds is None or number < work.rounds:
                _round(bench, work, number)
        yield f"round {number + 1} of {rounds}: {time.perf_counter() - began:.0f} s"


def _round(bench: Bench, work: Work, number: int) -> None:
    batch = work.make(f"{work.name}-{number}")
    turns: list[Running] = [bench.upstream, *bench.running]
    shift = number % len(turns)  # nobody is always the first
    for running in turns[shift:] + turns[:shift]:
        name = DIRECT if running is bench.upstream else running.system.name
        if work.ours and running.system.requirement:
            continue
        measured = uvloop.run(_measured(running, work, batch))
        bench.rounds.setdefault(name, {}).setdefault(work.name, []).append(measured)


async def _measured(running: Running, work: Work, batch: Batch) -> Measured:
    path = running.system.path
    before = [load.request(path, body) for body in batch.before]
    data = [load.request(path, body) for body in batch.measured]
    if before:
        await load.drive(running.port, before, 1, work.limit_seconds)
    await asyncio.to_thread(machine.settled, running.pid, QUIET_SECONDS)
    found = Measured(before_kb=machine.memory_kb(running.pid))
    start = machine.usage(running.pid)
    watch = asyncio.create_task(_watch(running.pid, found)) if work.concurrency > 1 else None
    outcome = await load.drive(running.port, data, work.concurrency, work.limit_seconds)
    if watch:
        watch.cancel()
    await asyncio.to_thread(machine.settled, running.pid, QUIET_SECONDS, 0.05)  # what is done after the answer counts
    end = machine.usage(running.pid)
    found.peak_kb = max(found.peak_kb, machine.memory_kb(running.pid))
    return _filled(found, outcome, len(data), start, end)


def _filled(found: Measured, outcome: load.Outcome, asked: int, start: machine.Usage, end: machine.Usage) -> Measured:
    done = max(1, len(outcome.answers))
    good = [answer for answer in outcome.answers if answer.status == 200]
    found.cpu_ms = (end.cpu_ms - start.cpu_ms) / done
    found.store_ms = (end.store_ms - start.store_ms) / done
    found.first_ms = [answer.first * 1000 for answer in good]
    found.whole_ms = [answer.whole * 1000 for answer in good]
    found.per_second = len(good) / outcome.seconds if outcome.seconds else 0.0
    found.failed = len(outcome.answers) - len(good)
    found.missing = asked - len(outcome.answers)
    found.actions = dict(Counter(answer.action for answer in good if answer.action))
    return found


async def _watch(pid: int, found: Measured) -> None:
    """Note the most memory that a system takes meanwhile."""
    while True:
        found.peak_kb = max(found.peak_kb, machine.memory_kb(pid))
        await asyncio.sleep(0.25)
