"""While the store is asked: bounded in time, and the carriers' errors become ours.

Below the adapter, which asks; above the carriers. How it goes is told to the rest, so that a store that is gone is left
alone for a while.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from proxy.core.errors import RecordUnreadable, StoreError, StoreRefuses, StoreUnavailable
from proxy.store.connection.client import FAILURES, OUTAGES, breaks_at_a_record, refuses_writes
from proxy.store.connection.outage import OutageBackoff
from proxy.store.connection.timeouts import RenewingTimeout

LARGE_BYTES = 2**20
"""A write beyond this is given time by its size."""
WRITTEN_BYTES_A_SECOND = 10 * 2**20
"""That a store takes at least: a network of 100 Mbit/s, a disk that is busy."""
GONE = "The conversation store does not answer."
REFUSES = "The conversation store answers, and refuses to write."
BROKEN = "A record of the conversation store cannot be read."


class StoreCall(RenewingTimeout):
    """While the store is asked: how that goes is told to the rest."""

    def __init__(self, rest: OutageBackoff, seconds: float, *, probe: bool = False) -> None:
        """:param probe: ask even while the store rests"""
        super().__init__(seconds, rest.answered)
        self._rest = rest
        self._probe = probe

    def __enter__(self) -> None:
        """:raises StoreUnavailable: the store rests"""
        now = asyncio.get_running_loop().time()
        if self._rest.resting and not self._probe:
            raise StoreUnavailable(GONE, internal="left alone for a while after a failure")
        self._begin(now)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """:raises StoreUnavailable: it did not answer, or not in time, or refuses to write

        :raises RecordUnreadable: it answered that what is stored is not what was asked for
        """
        if self._over(kind):
            error = TimeoutError()
        if error is None:
            self._rest.succeeded(asyncio.get_running_loop().time())
        elif isinstance(error, FAILURES):
            raise self._failure(error) from error

    def _failure(self, error: BaseException) -> StoreError:
        """What a carrier's error is to us; the rest is told what follows from it for other calls."""
        cause = f"{type(error).__name__}: {error}"
        if isinstance(error, OUTAGES):
            self._rest.failed()
            return StoreUnavailable(GONE, internal=cause)
        if refuses_writes(error):
            self._rest.refused()
            return StoreRefuses(REFUSES, internal=cause)
        if breaks_at_a_record(error):
            return RecordUnreadable(BROKEN, internal=cause)
        return StoreUnavailable(GONE, internal=cause)


class AskingForLong(StoreCall):
    """While a large write is on its way: it may take longer by its size, and so may what waits behind it."""

    def __init__(self, rest: OutageBackoff, seconds: float, size_bytes: int, *, probe: bool = False) -> None:
        super().__init__(rest, seconds + size_bytes / WRITTEN_BYTES_A_SECOND, probe=probe)
        self._answered = rest.answered_last  # it does not wait for itself
        self._until = 0.0

    def __enter__(self) -> None:
        super().__enter__()
        self._until = asyncio.get_running_loop().time() + self._seconds
        self._rest.begin_large_write(self._until)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._rest.end_large_write(self._until)
        super().__exit__(kind, error, trace)
