"""Runs work over very many messages or megabytes in a thread, so that no other request waits for it.

Packages above use it if they visit every message of a request, such as plans, records and rendering. A rule that
takes a microsecond for each message blocks the event loop for 20 ms if there are 20,000. Work that makes very many
objects also puts off the visits of the garbage collector to all objects, which stop all threads.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from threading import Lock
from typing import TypeVar

T = TypeVar("T")
MANY_MESSAGES = 1_000
"""A plan over so many messages takes some 5 ms; starting a thread takes 0.1 ms."""
MANY_BYTES = 1_048_576
"""Packing so many bytes takes some milliseconds."""
RARE = 1_000
"""Young objects are collected so often before all objects are visited once; Python 3.14 has no such count."""


class FullCollections:
    """The garbage collector's visits to all objects. Mutable: how many works put them off."""

    def __init__(self) -> None:
        self._changing = Lock()
        self._works = 0
        self._thresholds = gc.get_threshold()

    def put_off_during(self, work: Callable[[], T]) -> T:
        """Return the result of ``work``, while the collector visits young objects only, nearly always.

        A visit to 200,000 objects stops all threads for 70 ms. Half of them are such a work's own, which are gone
        when it has ended.
        """
        with self._changing:
            if not self._works:
                self._thresholds = gc.get_threshold()
                gc.set_threshold(*self._thresholds[:2], RARE)
            self._works += 1
        try:
            return work()
        finally:
            with self._changing:
                self._works -= 1
                if not self._works:
                    gc.set_threshold(*self._thresholds)


_full_collections = FullCollections()
"""The collector is the process's, so there is one."""


async def offload_if_many(messages: int, work: Callable[[], T]) -> T:
    """Return the result of ``work``, made in a thread if it visits more than ``MANY_MESSAGES``."""
    return await offload(work) if messages > MANY_MESSAGES else work()


async def offload(work: Callable[[], T]) -> T:
    """Return the result of ``work``, made in a thread; it may make several objects for each message or sentence."""
    return await asyncio.to_thread(_full_collections.put_off_during, work)
