"""Shows what a worker does at the moment, and what its store does, as gauges and seconds.

``metrics.py`` samples the state before each scrape, and once a second if several workers share their counts. So no
request takes time for it.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from tidemark.core.frozen import frozen
from tidemark.telemetry.series import SeriesRegistry

SAMPLE_SECONDS = 1.0
"""Between two samples; the seconds of an outage are exact to one of them."""
POOL_PREFIXES = ("asyncio_", "uvloop_")
"""What the names of the threads of an event loop's own pool begin with: asyncio's, and uvloop's."""
STORE_SECONDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)


@frozen
class WorkerState:
    """What one worker does at one moment."""

    streams: int = 0
    """Streams of replies on their way to clients."""
    preparations: int = 0
    """Summaries that are being made in the background."""
    open_breakers: int = 0
    """Summarizers that are not asked now, because they failed."""
    is_store_well: bool = True
    requests: int = 0
    """Model requests that are being answered."""
    waiting: int = 0
    """Model requests that wait for a place or a permit."""
    tasks: int = 0
    """Tasks of the event loop."""
    pool_threads: int = 0
    """Threads of the pools that work off the event loop."""


def count_pool_threads() -> int:
    """Count the threads of this process's pools, which start one whenever all are busy, up to a bound."""
    return sum(thread.name.startswith(POOL_PREFIXES) for thread in threading.enumerate())


class StateSeries:
    """The series of a worker's state. Its state is the time of the last sample, and the timer of the next one.

    :param read: returns the worker's state; None for a process that serves nothing
    """

    def __init__(self, registry: SeriesRegistry, read: Callable[[], WorkerState] | None) -> None:
        self._read = read
        self._sampled_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._streams = registry.live_gauge("streams_in_flight", "Streams on their way to clients.")
        self._requests = registry.live_gauge("requests_in_flight", "Model requests being answered.")
        self._waiting = registry.live_gauge("requests_waiting", "Model requests waiting for a place.")
        self._tasks = registry.live_gauge("tasks", "Tasks of the event loops.")
        self._pool_threads = registry.live_gauge("pool_threads", "Threads that work off the event loops.")
        self._preparations = registry.live_gauge("preparations_in_flight", "Summaries being made in the background.")
        self._breakers = registry.live_gauge("summarizers_resting", "Summarizers whose breaker is open.")
        self._degraded = registry.counter("store_degraded_seconds", "Seconds in which the store did not answer.", ())
        self._store = registry.histogram(
            "store_seconds", "Time of the write that each worker sends about once a second.", (), STORE_SECONDS
        )

    def start(self) -> None:
        """Sample once a second from now on, in the running loop."""
        self.sample()
        self._timer = asyncio.get_running_loop().call_later(SAMPLE_SECONDS, self.start)

    def end(self) -> None:
        """Stop sampling; an ended worker does nothing."""
        if self._timer is not None:
            self._timer.cancel()
        self._show(WorkerState())
        self._read = None

    def sample(self) -> None:
        if self._read is None:
            return
        state, now = self._read(), time.monotonic()
        if not state.is_store_well and self._sampled_at is not None:
            self._degraded.inc(now - self._sampled_at)
        self._sampled_at = now
        self._show(state)

    def add_store_time(self, seconds: float) -> None:
        """Count the time of one write."""
        self._store.observe(seconds)

    def _show(self, state: WorkerState) -> None:
        self._streams.set(state.streams)
        self._requests.set(state.requests)
        self._waiting.set(state.waiting)
        self._tasks.set(state.tasks)
        self._pool_threads.set(state.pool_threads)
        self._preparations.set(state.preparations)
        self._breakers.set(state.open_breakers)
