"""One call to the store: it is bounded in time, and the client's errors become Tidemark's.

``tidemark/store/commands.py`` makes each call inside of one; the clients of ``client.py`` are below.
Each outcome is reported to ``OutageBackoff``, so that calls to a store that is away are skipped.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from tidemark.core.errors import RecordUnreadable, SchemaUnknown, StoreError, StoreRefuses, StoreUnavailable
from tidemark.store.connection.client import FAILURES, OUTAGES, breaks_at_a_record, refuses_writes
from tidemark.store.connection.faults import fault_of, words_within
from tidemark.store.connection.outage import OutageBackoff
from tidemark.store.connection.timeouts import RenewingTimeout

LARGE_BYTES = 2**20
"""A larger write gets more time by its size."""
WRITTEN_BYTES_A_SECOND = 10 * 2**20
"""The slowest that a store may be: a network of 100 Mbit/s, or a disk that is busy."""
GONE = "The conversation store does not answer."
REFUSES = "The conversation store answers, and refuses to write."
BROKEN = "A record of the conversation store cannot be read."


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
