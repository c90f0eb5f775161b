"""Samples where Tidemark's processor time goes: to its own code, to each library, and to Python's standard library.

``python -m benchmarks.speed.shares FILE serve ...`` runs ``tidemark serve ...``, looks at the frame of each thread
after every millisecond of processor time, and writes the seconds of each part to a file. A sample counts with the time
that its thread has taken since the one before. What a library does in C counts for the code that calls it, or that it
calls next. Sampling costs time itself, so these runs give shares and no other figures.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
import types
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from benchmarks.speed import load, machine
from benchmarks.speed.figures import Report
from benchmarks.speed.systems import Running, System, start
from benchmarks.speed.work import CHAT_PATH, Work

OWN, PYTHON, LOOP = "own code", "Python", "uvloop"
SAMPLE_SECONDS, WRITE_SECONDS = 0.001, 0.1
QUIET_SECONDS = 5.0
LEAST_SHARE = 0.02
"""Smaller parts are added up as the others."""
Shares = Mapping[str, float]
"""By part, the share of the processor time; together 1."""


@lru_cache(maxsize=10_000)
def part_of(file_name: str) -> str:
    """Return the part that a source file belongs to."""
    if "/proxy/tidemark/" in file_name:
        return OWN
    if file_name.endswith("asyncio/runners.py"):  # the frame below all of the event loop's calls
        return LOOP
    _, inside, package = file_name.partition("/site-packages/")
    return package.partition("/")[0].removesuffix(".py") if inside else PYTHON


class Sampler:
    """Handles the signals of a timer of processor time. The mutable state is what each part has taken so far."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._seconds: Counter[str] = Counter()
        self._clocks: dict[int, float] = {}
        self._last_write = 0.0

    def start(self) -> None:
        """Sample from now on; a signal's handler runs in the main thread, between two of its steps."""
        signal.signal(signal.SIGPROF, self._sample)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)

    def _sample(self, _signal: int, interrupted: types.FrameType | None) -> None:
        frames = dict(sys._current_frames())  # noqa: SLF001 - the only way to see other threads
        if interrupted is not None:
            frames[threading.get_ident()] = interrupted
        for thread, frame in frames.items():
            now = time.clock_gettime(time.pthread_getcpuclockid(thread))
            spent = max(
                0.0, now - self._clocks.get(thread, now)
            )  # less if a new thread has the number of one that ended
            self._seconds[part_of(frame.f_code.co_filename)] += spent  # type: ignore[assignment]
            self._clocks[thread] = now
        if time.monotonic() - self._last_write > WRITE_SECONDS:
            self._write()

    def _write(self) -> None:
        self._last_write = time.monotonic()
        beside = self._path.with_suffix(".new")
        beside.write_text(json.dumps(self._seconds), encoding="ascii")
        beside.replace(self._path)


def sampled(system: System, path: Path) -> System:
    """Return a Tidemark that samples itself into a file."""
    program = [sys.executable, "-m", "benchmarks.speed.shares", str(path)]
    return replace(system, command=lambda place: [*program, *system.command(place)[3:]])


def shares_of(system: System, works: Iterable[Work], upstream: str, folder: Path) -> dict[str, Shares]:
    """Let a Tidemark that samples itself do each work once, and return the shares by work.

    :param upstream: the upstream without a path
    """
    path = folder / "samples.json"
    running = start(sampled(system, path), upstream, folder)
    try:
        shares: dict[str, Shares] = {}
        for work in works:
            batch = work.make(f"{work.name}-shares")
            place = system.path if work.path == CHAT_PATH else work.path
            requests = [[load.request(place, body) for body in bodies] for bodies in (batch.before, batch.measured)]
            asyncio.run(load.drive(running.port, requests[0], 1, work.limit_seconds))
            before = _read(running, path)
            asyncio.run(load.drive(running.port, requests[1], work.concurrency, work.limit_seconds))
            shares[work.name] = _shares(_read(running, path) - before)
        return shares
    finally:
        running.stop()


def _read(running: Running, path: Path) -> Counter[str]:
    """Return what each part has taken when the server is idle again.

    The signal lets it write what it has not written yet.
    """
    machine.settled(running.pid, QUIET_SECONDS)
    time.sleep(2 * WRITE_SECONDS)
    os.kill(running.pid, signal.SIGPROF)
    time.sleep(2 * WRITE_SECONDS)
    return Counter(json.loads(path.read_text(encoding="ascii")))


def _shares(seconds: Counter[str]) -> Shares:
    whole = seconds.total()
    return {part: spent / whole for part, spent in seconds.most_common()} if whole else {}


def line(shares: Shares, ratio: float) -> str:
    """Return what is said of a work: the parts with the largest shares, and what the bare relay takes.

    :param ratio: Tidemark's processor time by the relay's; 0 if the relay was not measured
    """
    large = [f"{part} {share:.0%}" for part, share in shares.items() if share >= LEAST_SHARE]
    rest = sum(share for share in shares.values() if share < LEAST_SHARE)
    relay = [f"the bare relay takes {1 / ratio:.0%} of it"] if ratio else []
    return "; ".join([", ".join([*large, f"others {rest:.0%}"]), *relay])


def lines(report: Report, work: str) -> Sequence[str]:
    """Return a line for each Tidemark whose shares of a work were sampled."""
    lines_of_work = []
    for system, by_work in report.shares.items():
        figures = report.at(system, work)
        if work in by_work and figures:
            lines_of_work.append(f"CPU of {system}: {line(by_work[work], figures.ratios.get('cpu', 0.0))}")
    return lines_of_work


def main() -> None:
    """Sample, and serve."""
    path = Path(sys.argv.pop(1))
    Sampler(path).start()
    from tidemark.cli.main import main as tidemark

    os.environ.setdefault("TIDEMARK_DATA_DIR", str(path.parent))
    tidemark()


if __name__ == "__main__":
    main()
