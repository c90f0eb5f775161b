"""Calls a user's function with the messages that leave a graph's context, in a thread (S0-4).

``langgraph.py`` queues the messages before its result discards them. The proxy's own consumers, with their queue in the
store, are in ``tidemark/features/memory_flush/``.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

from langchain_core.messages import BaseMessage

OnFlush = Callable[[list[BaseMessage]], Any]
"""A user's function for the messages that leave, oldest first. It may be async; its result is ignored."""
MOST_WAITING = 1000
"""The most flushes that wait for a slow function. Further ones are dropped with an error in the log, because memory is
limited."""
_LOG = logging.getLogger("tidemark")


class FlushHook:
    """Calls a function in a thread, for one flush after the other, in order.

    The mutable state is the queue and its thread, which ends when the queue is empty. The interpreter waits for the
    thread at its end, so all queued flushes are delivered.
    """

    def __init__(self, call: OnFlush) -> None:
        self._call = call
        self._waiting: deque[list[BaseMessage]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, messages: list[BaseMessage]) -> None:
        """Queue leaving messages, and return at once."""
        with self._lock:
            if len(self._waiting) >= MOST_WAITING:
                _LOG.error("on_flush is too slow: %d messages that left a graph's context are dropped", len(messages))
                return
            self._waiting.append(messages)
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="tidemark-flush")
                self._thread.start()

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._thread = None
                    return
                messages = self._waiting.popleft()
            try:
                done = self._call(messages)
                if inspect.isawaitable(done):
                    asyncio.run(_awaited(done))
            except Exception:  # noqa: BLE001 - an error of the user's function must not stop the next flush
                _LOG.exception("on_flush failed for %d messages that left a graph's context", len(messages))


async def _awaited(done: Any) -> None:
    await done
