"""Connects the parts that post live events to the operator's webhook: a queue of their own, and the flush's courier.

``feature.py`` starts and ends it if ``events.webhook`` is set.
"""

from __future__ import annotations

import json
import os
import socket
import time
import uuid
from collections.abc import Sequence

from tidemark.core.ports import FlushEntry
from tidemark.delivery.consumer import RetryWaits
from tidemark.delivery.courier import Courier
from tidemark.delivery.queue import QueueBounds, RedisFlushQueue
from tidemark.delivery.recovery import Recovery
from tidemark.delivery.worker import FlushWorker
from tidemark.features.live_events.events import LiveEvent
from tidemark.store import keys
from tidemark.worker.worker import Worker

BOUNDS = QueueBounds(entries=1000, bytes_held=8 * 2**20)
"""Batches that wait for a receiver, and as many dead letters; the oldest make way."""
TIMEOUT_SECONDS = 10.0
STORE_SECONDS = 10.0
"""The longest that one step waits for the store. No client waits for these steps."""
NAME = "events"
"""The consumer's name in logs and metrics."""


class EventDelivery:
    """Queues batches of live events, and delivers them in one process of all that share a store.

    Batches are entries without a conversation, so the courier delivers them one after another.
    """

    def __init__(self, worker: Worker) -> None:
        section, secret = worker.settings.events, worker.settings.secrets.flush
        self._target = None if section.webhook is None or secret is None else (str(section.webhook), secret)
        self.enabled = self._target is not None
        self._emit = worker.emit
        self.store = worker.other_store(None, STORE_SECONDS)
        self._queue = RedisFlushQueue(
            self.store.ask, worker.codec, ttl_seconds=None, bounds=BOUNDS, prefix=keys.EVENT_DELIVERIES
        )
        self._worker: FlushWorker | None = None

    async def publish(self, events: Sequence[LiveEvent]) -> bool:
        """Queue a batch, and return that somebody waits for it.

        :raises StoreUnavailable: the store did not answer in time
        """
        now = time.time()
        members = [{"event": event.kind, **event.fields} for event in events]
        body = json.dumps({"type": "events", "at": round(now, 3), "events": members}).encode()
        await self._queue.add(FlushEntry(uuid.uuid4().hex, "", "", body, now))
        if self._worker is not None:
            self._worker.nudge()
        return True

    def start(self) -> None:
        """Start to deliver, in the running loop."""
        if self._target is None:
            return
        from tidemark.delivery.webhook import Webhook  # noqa: PLC0415 - it imports aiohttp

        address, secret = self._target
        webhook = Webhook(
            address,
            secret.reveal().encode(),
            timeout_seconds=TIMEOUT_SECONDS,
            clock=time.time,
            name=NAME,
            event=NAME,
        )
        reader = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
        courier = Courier(webhook, self._queue, reader, waits=RetryWaits(), emit=self._emit, clock=time.time)
        recovery = Recovery(self._queue, self.store, emit=self._emit, clock=time.time)
        self._worker = FlushWorker(self._queue, [courier], recovery, reader=reader, emit=self._emit)
        self._worker.start()

    async def aclose(self) -> None:
        """Stop delivering, and let another worker lead."""
        if self._worker is not None:
            await self._worker.aclose()
        await self.store.close()
