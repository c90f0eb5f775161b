"""The flush hook of a graph: what leaves the context goes to a function of the user's, off the graph (S0-4).

Beside ``langgraph.py``, which queues the messages before its result discards them. The proxy's own consumers, with
their queue in the store, are ``proxy/memory_flush/``.
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
"""Takes the messages that leave, oldest first. It may be async; what it returns is of no interest."""
MOST_WAITING = 1000
"""Flushes that wait for a slow function. More are dropped, with an error in the log: memory has an end."""
_LOG = logging.getLogger("tidemark")


class FlushHook:
    """Calls a function in a thread, one flush after the other in the order in which they left.

    The mutable state is the queue and its thread, which ends when the queue is empty. The interpreter waits for it at
    its own end, so what was queued is delivered.
    """

    def __init__(self, call: OnFlush) -> None:
        self._call = call
        self._waiting: deque[list[BaseMessage]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, messages: list[BaseMessage]) -> None:
        """Queue what leaves, and return at once."""
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
            except Exception:  # noqa: BLE001 - whatever a function of the user's raises must not stop the next flush
                _LOG.exception("on_flush failed for %d messages that left a graph's context", len(messages))


async def _awaited(done: Any) -> None:
    await done
