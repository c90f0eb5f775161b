"""Holds the time limits, the outage and the probes of one server of the store.

A single server has one ``StoreNode`` for all calls; a cluster has one for each server, so that one that is away or
slow delays no call to the others. ``tidemark/store/commands.py`` makes each call inside of one of its time limits.

``Probing`` is started by ``OutageBackoff``. Requests continue without the store meanwhile. The store's return is
noticed within half a second; while the store is away, each process sends it two commands a second.

A call is bounded in time, and the client's errors become Tidemark's; the clients of ``client.py`` are below. Each
outcome is reported to ``OutageBackoff``, so that calls to a store that is away are skipped.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, cast

from tidemark.core.errors import RecordUnreadable, SchemaUnknown, StoreError, StoreRefuses, StoreUnavailable
from tidemark.core.frozen import frozen
from tidemark.store.connection.client import FAILURES, OUTAGES, breaks_at_a_record, refuses_writes
from tidemark.store.connection.faults import NO_TLS, fault_of, words_within
from tidemark.store.connection.outage import OutageBackoff

RECALL_SECONDS = 0.25
"""A client waits for it before its request is forwarded; on one machine it takes a thousandth."""
RECORD_SECONDS = 1.0
"""The last byte of the response waits for it."""
FIRST_SECONDS = 0.25
"""From a failure to the first probe: a restart or a failover takes at least as long."""
LONGEST_SECONDS = 0.5
"""Between two probes: a store that is back is used again within a second, the probe's own time included."""
LARGE_BYTES = 2**20
"""A larger write gets more time by its size."""
WRITTEN_BYTES_A_SECOND = 10 * 2**20
"""The slowest that a store may be: a network of 100 Mbit/s, or a disk that is busy."""
GONE = "The conversation store does not answer."
REFUSES = "The conversation store answers, and refuses to write."
BROKEN = "A record of the conversation store cannot be read."
LATE_SECONDS = 0.02
"""A timer that fires so much later than it was set for shows a busy loop."""
MOST = 16
"""How often one wait may run. 16 times 0.25 s are 4 s, which a client hardly notices if all else is late too."""


def _never() -> float:
    return -math.inf


_Wait = tuple[float, int, int]
"""The time when a wait is due, its remaining runs, and the cancellations of the task before it.

No runs remain for a wait that has ended. Waits are tuples, since a request makes two of them.
"""


class RenewingTimeout:
    """Bounds in time what a task does inside of ``with``. Any number of tasks may be inside.

    Its clock stops while this process or the store is busy. An answer may come in time, and an overloaded event loop
    reads it late. A store that answers other calls is slow, but not away. If such a delay counted as an outage, a busy
    moment would become worse: every request would continue without its history.

    It stands in for ``asyncio.timeout``, which has no such clock. One timer for all waits of a length, in place of one
    for each, saves 60,000 of the 1,117,000 instructions of a small request, 5 %
    (``docs/adr/0016-timeouts-of-the-store.md``).

    Raises ``TimeoutError`` if it took longer, the loop had time to notice the answer, and the store answered no
    other call meanwhile. It cancels the task and takes the cancellation back by the rules of ``asyncio.Timeout``.

    Belongs to the event loop that uses it first. Mutable: the waits, all of one length, so that the oldest is due
    first; and the one timer for that. The timer stays when a wait ends, because every request uses it twice.
    """

    def __init__(self, seconds: float, last_answer: Callable[[], float] = _never) -> None:
        """:param last_answer: returns when the store last answered any call, by the loop's clock"""
        self._seconds = seconds
        self._last_answer = last_answer
        self._waits: dict[asyncio.Task[Any], _Wait] = {}
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> None:
        self._begin(asyncio.get_running_loop().time())

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._end_wait(kind):
            raise TimeoutError from error

    def _begin(self, now: float) -> None:
        task = asyncio.current_task()
        if task is None or task in self._waits:
            raise RuntimeError("A task can be inside of a RenewingTimeout once at a time.")
        due = now + self._seconds
        self._waits[task] = (due, MOST, task.cancelling())
        if self._timer is None:
            self._watch(due)

    def _end_wait(self, kind: type[BaseException] | None) -> bool:
        """End the present task's wait, and return whether it took too long."""
        if kind is GeneratorExit:  # thrown away with its loop: no task is present
            return False
        task = cast("asyncio.Task[Any]", asyncio.current_task())
        _, runs, cancelling = self._waits.pop(task)
        # A cancellation by other code is passed on, even if both came together.
        return not runs and task.uncancel() <= cancelling and kind is asyncio.CancelledError

    def _watch(self, due: float) -> None:
        self._timer = asyncio.get_running_loop().call_at(due, self._check, due)

    def _check(self, due: float) -> None:
        """Called when the oldest wait was due."""
        loop = asyncio.get_running_loop()
        now, self._timer = loop.time(), None
        overdue: list[tuple[asyncio.Task[Any], _Wait]] = []
        for task, wait in self._waits.items():
            if wait[0] > max(now, due):  # a timer may come a little early: its clock is coarse
                self._watch(wait[0])
                break
            overdue.append((task, wait))
        for task, wait in overdue:
            was_due, runs, cancelling = wait
            if runs > 1 and (now - was_due > LATE_SECONDS or self._last_answer() > was_due - self._seconds):
                del self._waits[task]  # so that the oldest stays the first
                self._waits[task] = (now + self._seconds, runs - 1, cancelling)
                if self._timer is None:
                    self._watch(now + self._seconds)
            elif runs:
                loop.call_soon(self._cancel, task, wait)  # an answer that is there already comes first

    def _cancel(self, task: asyncio.Task[Any], wait: _Wait) -> None:
        if self._waits.get(task) is wait:
            due, _, cancelling = wait
            self._waits[task] = (due, 0, cancelling)
            task.cancel()


@frozen
class CallTimes:
    """How long calls wait for a server that does not answer, in seconds."""

    recall_seconds: float = RECALL_SECONDS
    record_seconds: float = RECORD_SECONDS


class StoreNode:
    """The time limits, the outage and the probes of one server. Belongs to the event loop that uses it first."""

    def __init__(
        self,
        times: CallTimes,
        write: Callable[[], Awaitable[object]],
        probe: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Nothing is sent yet.

        :param write: writes one key on the server
        :param probe: tells during an outage whether it is over; without it ``ping`` does
        """
        self.backoff = backoff = OutageBackoff(self._begin_probes)
        self._probes = Probing(backoff, probe or self.ping)
        self._write = write
        self._record_seconds = times.record_seconds
        self.recalling = StoreCall(backoff, times.recall_seconds)
        """The time limit of what a request waits for before it is forwarded."""
        self.recording = StoreCall(backoff, times.record_seconds)
        """The time limit of everything else."""
        self.probing = StoreCall(backoff, times.record_seconds, probe=True)
        """The same limit for a call that is made during an outage too."""

    def writing(self, size_bytes: int, *, probe: bool) -> StoreCall:
        """Return the time limit of a write by its size.

        :param probe: make the call during an outage too
        """
        if size_bytes <= LARGE_BYTES:
            return self.probing if probe else self.recording
        return LargeStoreCall(self.backoff, self._record_seconds, size_bytes, probe=probe)

    async def ping(self) -> None:
        """Write one key, during an outage too, to learn whether the server takes writes.

        :raises StoreUnavailable: the server does not answer, or refuses to write
        """
        with self.probing:
            await self._write()
        self.backoff.wrote()

    async def aclose(self) -> None:
        await self._probes.aclose()

    def _begin_probes(self) -> None:
        self._probes.begin()


class Probing:
    """Probes a store while it is not well. Belongs to the event loop that uses it first. Mutable: its one task."""

    def __init__(self, outage: OutageBackoff, probe: Callable[[], Awaitable[None]]) -> None:
        """Nothing is probed yet.

        :param probe: writes one key, reports to ``outage`` how that went, and raises ``StoreError`` if it failed
        """
        self._outage = outage
        self._probe = probe
        self._task: asyncio.Task[None] | None = None
        self._closed = False

    def begin(self) -> None:
        """Probe from now on, until the store is well."""
        if not self._closed and (self._task is None or self._task.done()):
            self._task = asyncio.create_task(self._probe_until_well())

    async def aclose(self) -> None:
        self._closed = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _probe_until_well(self) -> None:
        pause = FIRST_SECONDS
        while not self._outage.is_well:
            await asyncio.sleep(pause)
            pause = LONGEST_SECONDS
            with contextlib.suppress(StoreError):
                await self._probe()


class StoreCall(RenewingTimeout):
    """Bounds calls to the store in time, and reports how each one went."""

    def __init__(self, outage: OutageBackoff, seconds: float, *, probe: bool = False) -> None:
        """:param probe: call the store even during an outage"""
        super().__init__(seconds, outage.last_answer_expected)
        self._outage = outage
        self._probe = probe

    def __enter__(self) -> None:
        """:raises StoreUnavailable: an outage is under way, or calls are barred"""
        now = asyncio.get_running_loop().time()
        if self._outage.is_away:
            if self._outage.refusal:
                raise SchemaUnknown(self._outage.refusal)
            if not self._probe:
                raise StoreUnavailable(
                    self._outage.reason or GONE, internal=f"skipped during an outage: {self._outage.reason or GONE}"
                )
        self._begin(now)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End the call, and raise what went wrong as an error of ours.

        :raises StoreUnavailable: the store did not answer, or not in time, or refuses to write
        :raises RecordUnreadable: what is stored is of another kind than the call expects
        """
        if self._end_wait(kind):
            error = TimeoutError(NO_TLS) if NO_TLS in str(error) else TimeoutError("no answer in time")
        if error is None:
            self._outage.succeeded(asyncio.get_running_loop().time())
        elif isinstance(error, FAILURES):
            raise self._failure(error) from error

    def _failure(self, error: BaseException) -> StoreError:
        """Return Tidemark's error for a client's, and report what follows from it for other calls."""
        fault = fault_of(words_within(error))
        cause = f"{fault} ({type(error).__name__}: {error})" if fault else f"{type(error).__name__}: {error}"
        if isinstance(error, OUTAGES):
            reason = str(fault or GONE)
            self._outage.failed(reason)
            return StoreUnavailable(reason, internal=cause)
        if refuses_writes(error):
            self._outage.refused()
            return StoreRefuses(str(fault or REFUSES), internal=cause)
        if breaks_at_a_record(error):
            return RecordUnreadable(BROKEN, internal=cause)
        return StoreUnavailable(str(fault or GONE), internal=cause)


class LargeStoreCall(StoreCall):
    """Bounds one large write: it gets more time by its size, and so do the calls that wait behind it."""

    def __init__(self, outage: OutageBackoff, seconds: float, size_bytes: int, *, probe: bool = False) -> None:
        super().__init__(outage, seconds + size_bytes / WRITTEN_BYTES_A_SECOND, probe=probe)
        self._last_answer = outage.last_answer  # its own time does not prolong itself
        self._until = 0.0

    def __enter__(self) -> None:
        super().__enter__()
        self._until = asyncio.get_running_loop().time() + self._seconds
        self._outage.begin_large_write(self._until)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._outage.end_large_write(self._until)
        super().__exit__(kind, error, trace)
