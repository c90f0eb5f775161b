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
from collections.abc import Awaitable, Callable
from types import TracebackType

from tidemark.core.errors import RecordUnreadable, SchemaUnknown, StoreError, StoreRefuses, StoreUnavailable
from tidemark.core.frozen import frozen
from tidemark.store.connection.client import FAILURES, OUTAGES, breaks_at_a_record, refuses_writes
from tidemark.store.connection.faults import fault_of, words_within
from tidemark.store.connection.outage import OutageBackoff
from tidemark.store.connection.timeouts import RenewingTimeout

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
        """Stop probing."""
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
            error = TimeoutError()
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
