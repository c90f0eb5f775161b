"""Plugs in the memory flush: queue, outbox, consumers and worker.

It queues nothing unless ``memory_flush.enabled`` is true. ``tidemark flush`` uses it without a server.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from collections.abc import Iterator, Sequence

from tidemark.core.events import Event, Listeners
from tidemark.core.flush_events import FlushBuried, FlushDelivered, FlushDropped, FlushFailed, FlushQueued, FlushWaiting
from tidemark.core.ports import DeletionHook, MemoryFlush
from tidemark.delivery.consumer import Consumer, RetryWaits
from tidemark.delivery.courier import Courier
from tidemark.delivery.queue import QueueBounds, RedisFlushQueue
from tidemark.delivery.recovery import Recovery
from tidemark.delivery.worker import FlushWorker, QueueWatch
from tidemark.features.feature import Feature
from tidemark.features.memory_flush.daily import DailyFiles
from tidemark.features.memory_flush.entry_points import EntryPointConsumer, installed_consumers
from tidemark.features.memory_flush.outbox import Outbox
from tidemark.telemetry.series import SeriesRegistry
from tidemark.worker.worker import Worker

STORE_SECONDS = 10.0
"""The longest that one step waits for the store. No client waits for these steps."""
FOLDER = "flush"
"""The folder of the daily files, inside the data folder."""


class MemoryFlushFeature(Feature):
    """Queues and delivers the messages that leave the context.

    It has its own connection to the store. So no request waits behind entries, which may be megabytes, and a failure of
    an entry does not make requests skip the store.
    """

    def __init__(self, worker: Worker) -> None:
        section = worker.settings.memory_flush
        self.enabled = section.enabled
        self._settings = worker.settings
        self._emit = emit = Listeners(worker.emit, FlushSeries(worker.metrics.registry))
        self._waits = RetryWaits(attempts=section.attempts)
        self.codec = worker.codec
        ttl_seconds, bounds = float(worker.lifetimes.longest), QueueBounds(section.max_entries, section.max_mb * 2**20)
        self.store = store = worker.other_store(ttl_seconds, STORE_SECONDS)
        self.queue = RedisFlushQueue(store.ask, worker.codec, ttl_seconds=ttl_seconds, bounds=bounds)
        notes = RedisFlushQueue(worker.store.ask, worker.codec, ttl_seconds=ttl_seconds, bounds=bounds)
        self.outbox = Outbox(self.queue, store, notes=notes, emit=emit, clock=time.time, nudge=self._nudge)
        self.recovery = Recovery(self.queue, store, emit=emit, clock=time.time)
        self._watch = QueueWatch(self.queue, emit)
        self._worker: FlushWorker | None = None

    def deletion_hooks(self) -> Sequence[DeletionHook]:
        """Return one, also while the feature is off, because entries may remain from when it was on."""
        return [self.forget]

    def flushes(self) -> Sequence[MemoryFlush]:
        """Return the outbox, if the memory flush is on."""
        return [self.outbox] if self.enabled else []

    async def start(self) -> None:
        """Start, and deliver if this process shall.

        :raises ConfigError: two consumers have one name
        """
        if self.enabled:
            self.begin(work=self._settings.memory_flush.worker)

    def begin(self, *, work: bool) -> None:
        """Watch the queue in the running loop.

        :param work: whether this process also delivers
        :raises ConfigError: two consumers have one name
        """
        consumers = [*self.consumers()] if work else []
        self._watch.start()
        if work:
            reader = f"{socket.gethostname()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"
            couriers = [self._courier(consumer, reader) for consumer in consumers]
            self._worker = FlushWorker(self.queue, couriers, self.recovery, reader=reader, emit=self._emit)
            self._worker.start()

    async def aclose(self) -> None:
        """Queue the remaining entries, and let another worker lead."""
        await self.outbox.aclose()
        await self._watch.aclose()
        if self._worker is not None:
            await self._worker.aclose()
        await self.store.close()

    async def forget(self, tenant: str, conversation: str) -> None:
        """Delete a conversation from the queue, the dead letters, the notes and the daily files.

        Entries that were delivered, or are being delivered now, belong to the consumers. The files are this machine's.

        :raises StoreUnavailable: the store did not answer in time
        """
        self.outbox.forget({conversation})
        await self.queue.forget({conversation})
        await asyncio.to_thread(self.daily().forget, tenant, {conversation})

    def consumers(self) -> Iterator[Consumer]:
        """Yield the consumers that the configuration names.

        :raises ConfigError: two of them have one name
        """
        section, secret = self._settings.memory_flush, self._settings.secrets.flush
        if section.daily:
            yield self.daily()
        if section.webhook is not None and secret is not None:
            from tidemark.delivery.webhook import Webhook  # noqa: PLC0415 - it imports aiohttp

            yield Webhook(
                str(section.webhook), secret.reveal().encode(), timeout_seconds=section.timeout_seconds, clock=time.time
            )
        if section.entry_points:
            for entry_point in installed_consumers():
                yield EntryPointConsumer(entry_point.name, entry_point.load, timeout_seconds=section.timeout_seconds)

    def daily(self) -> DailyFiles:
        section = self._settings.memory_flush
        folder = self._settings.data_dir / FOLDER
        return DailyFiles(folder, keep_days=section.keep_days, clock=time.time, codec=self.codec)

    def _courier(self, consumer: Consumer, reader: str) -> Courier:
        return Courier(consumer, self.queue, reader, waits=self._waits, emit=self._emit, clock=time.time)

    def _nudge(self) -> None:
        if self._worker is not None:
            self._worker.nudge()


class FlushSeries:
    """The series of the memory flush."""

    def __init__(self, registry: SeriesRegistry) -> None:
        self._flushes = registry.counter(
            "flushes", "Times messages left the context and were queued, or not.", ("outcome",)
        )
        self._deliveries = registry.counter(
            "flush_deliveries", "Entries of the flush queue offered to consumers.", ("consumer", "outcome")
        )
        self._queue = registry.gauge("flush_queue_length", "Entries that a consumer has still to take.", ("consumer",))
        self._age = registry.gauge("flush_queue_age_seconds", "Age of the oldest of them.", ("consumer",))
        self._lost = registry.gauge("flush_lost", "Entries that made way before a consumer took them.", ("consumer",))
        self._letters = registry.gauge("flush_dead_letters", "Dead letters that are kept.", ())

    def __call__(self, event: Event) -> None:
        """Count an event of the memory flush; it is given no others."""
        match event:
            case FlushQueued():
                self._flushes.labels("queued").inc()
            case FlushDropped():
                self._flushes.labels("dropped").inc()
            case FlushDelivered():
                self._deliveries.labels(event.consumer, "delivered").inc()
            case FlushFailed():
                self._deliveries.labels(event.consumer, "failed").inc()
            case FlushBuried():
                self._deliveries.labels(event.consumer, "dead").inc()
            case FlushWaiting():
                self._queue.labels(event.consumer).set(event.entries)
                self._age.labels(event.consumer).set(event.seconds)
                self._lost.labels(event.consumer).set(event.lost)
                self._letters.set(event.dead)
            case _:
                pass  # the log alone reports delays and losses
