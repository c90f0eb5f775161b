"""Holds the time limits, the outage and the probes of one server of the store.

A single server has one ``StoreNode`` for all calls; a cluster has one for each server, so that one that is away or
slow delays no call to the others. ``tidemark/store/commands.py`` makes each call inside of one of its time limits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from tidemark.core.frozen import frozen
from tidemark.store.connection.call import LARGE_BYTES, LargeStoreCall, StoreCall
from tidemark.store.connection.outage import OutageBackoff
from tidemark.store.connection.probing import Probing

RECALL_SECONDS = 0.25
"""A client waits for it before its request is forwarded; on one machine it takes a thousandth."""
RECORD_SECONDS = 1.0
"""The last byte of the response waits for it."""


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
