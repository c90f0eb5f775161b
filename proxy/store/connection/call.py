"""While the store is asked: bounded in time, and the carriers' errors become ours.

Below the adapter, which asks; above the carriers. How it goes is told to the rest, so that a store that is gone is left
alone for a while.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from proxy.core.errors import StoreUnavailable
from proxy.store.connection.client import FAILURES, OUTAGES
from proxy.store.connection.outage import Rest
from proxy.store.connection.timeouts import Patience

GONE = "The conversation store does not answer."


class Asking(Patience):
    """While the store is asked: how that goes is told to the rest."""

    def __init__(self, rest: Rest, seconds: float, *, probe: bool = False) -> None:
        """:param probe: ask even while the store rests"""
        super().__init__(seconds, rest.answered)
        self._rest = rest
        self._probe = probe

    def __enter__(self) -> None:
        """:raises StoreUnavailable: the store rests"""
        now = asyncio.get_running_loop().time()
        if not self._rest.admits(now) and not self._probe:
            raise StoreUnavailable(GONE, internal="left alone for a while after a failure")
        self._begin(now)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """:raises StoreUnavailable: it did not answer, or not in time"""
        if self._over(kind):
            error = TimeoutError()
        if error is None:
            self._rest.succeeded(asyncio.get_running_loop().time())
        elif isinstance(error, FAILURES):
            if isinstance(error, OUTAGES):
                self._rest.failed(asyncio.get_running_loop().time())
            raise StoreUnavailable(GONE, internal=f"{type(error).__name__}: {error}") from error
