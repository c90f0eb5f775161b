"""What a feature plugs into a worker. Each feature is a folder here, with one such class in its ``feature.py``.

``app/features.py`` lists them. Each gets the worker, and hands the worker's parts to its own. Of other features it uses
only ``conversations``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from starlette.requests import Request
from starlette.routing import BaseRoute

from tidemark.core.bill import SavingOf
from tidemark.core.events import Listener
from tidemark.core.ports import Caller, DeletionHook, MemoryFlush
from tidemark.server.guarding import Trail

VisitorOf = Callable[[Request], Caller | None]
"""Returns whose events a visitor may get, None for those of all. It raises an error for anybody else."""


class Feature:
    """A feature of one worker; each method may be left out."""

    def routes(self) -> Sequence[BaseRoute]:
        """Return the routes of the API."""
        return ()

    def console_routes(self, home: str, visitor: VisitorOf) -> Sequence[BaseRoute]:
        """Return the routes below ``home`` that pages of the console ask; ``visitor`` refuses who has not signed in."""
        del home, visitor
        return ()

    def trails(self) -> Sequence[Trail]:
        """Return what takes the entries of the audit log."""
        return ()

    def listeners(self) -> Sequence[Listener]:
        """Return what hears of every event."""
        return ()

    def deletion_hooks(self) -> Sequence[DeletionHook]:
        """Return what deletes the feature's own records of a conversation."""
        return ()

    def flushes(self) -> Sequence[MemoryFlush]:
        """Return the consumers that hear which messages leave the context."""
        return ()

    def savings(self) -> Sequence[SavingOf]:
        """Return what says how much a turn saved."""
        return ()

    async def start(self) -> None:
        """Start in the running loop."""

    async def aclose(self) -> None:
        """Write what waits, and stop."""
