"""Wiring of the memory flush: queue, outbox, consumers, worker. Only where ``memory_flush.enabled`` says so.

Beside the application, which starts and ends it; ``tidemark flush`` uses it without one.
"""

from __future__ import annotations

import asyncio
import os
import socket
import time
import uuid
from collections.abc import Iterator

from proxy.app.parts import SECONDS_A_DAY
from proxy.config import Settings
from proxy.core.events import Listener
from proxy.memory_flush import (
    Consumer,
    Courier,
    DailyFiles,
    EntryPointConsumer,
    FlushWorker,
    Outbox,
    QueueWatch,
    Recovery,
    RetryWaits,
    installed_consumers,
)
from proxy.store.codec import Codec
from proxy.store.conversations import RedisStore
from proxy.store.flush_queue import QueueBounds, RedisFlushQueue

STORE_SECONDS = 10.0
"""The longest that one step waits for the store; no client waits for it."""
FOLDER = "flush"
"""In the data folder: the daily tier."""


class Flushing:
    """What a process needs to queue what leaves the context, and to deliver it.

    It has a connection of its own to the store: no request waits behind entries, which may be megabytes, and a failure
    among them does not have the store left alone.

    :param codec: packs every stored value
    :param requests: the store as requests use it, over whose connection their notes go; None where there are none
    """

    def __init__(
        self, settings: Settings, url: str, emit: Listener, codec: Codec, requests: RedisStore | None = None
    ) -> None:
        said = settings.memory_flush
        self.enabled = said.enabled
        self._settings = settings
        self._emit = emit
        self._waits = RetryWaits(attempts=said.attempts)
        ttl_seconds = settings.store.ttl_days * SECONDS_A_DAY
        bounds = QueueBounds(said.max_entries, said.max_mb * 2**20)
        self.store = store = RedisStore(
            url,
            codec,
            ttl_seconds=ttl_seconds,
            recall_timeout_seconds=STORE_SECONDS,
            record_timeout_seconds=STORE_SECONDS,
            library=settings.transport.store == "library",
        )
        self.queue = RedisFlushQueue(store.ask, codec, ttl_seconds=ttl_seconds, bounds=bounds)
        notes = RedisFlushQueue((requests or store).ask, codec, ttl_seconds=ttl_seconds, bounds=bounds)
        self.outbox = Outbox(self.queue, store, notes=notes, emit=emit, clock=time.time, nudge=self._nudge)
        self.recovery = Recovery(self.queue, store, emit=emit, clock=time.time)
        self._watch = QueueWatch(self.queue, emit)
        self._worker: FlushWorker | None = None

    def start(self, *, work: bool) -> None:
        """Begin, in the running loop.

        :param work: whether this process may deliver, beside what it queues
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
        """Queue what is left, and give way to another worker."""
        await self.outbox.aclose()
        await self._watch.aclose()
        if self._worker is not None:
            await self._worker.aclose()
        await self.store.close()

    async def forget(self, tenant: str, conversation: str) -> None:
        """Take a conversation out of queue, dead letters, notes and daily files: really gone.

        What is being delivered at this moment, or was, is the consumers'. The files are those of this machine.

        :raises StoreUnavailable: the store did not answer in time
        """
        self.outbox.forget({conversation})
        await self.queue.forget({conversation})
        await asyncio.to_thread(self.daily().forget, tenant, {conversation})

    def consumers(self) -> Iterator[Consumer]:
        """Whoever wants what leaves the context, by the configuration.

        :raises ConfigError: two of them have one name
        """
        said, secret = self._settings.memory_flush, self._settings.secrets.flush
        if said.daily:
            yield self.daily()
        if said.webhook is not None and secret is not None:
            from proxy.memory_flush.webhook import Webhook  # noqa: PLC0415 - aiohttp, for those who want it only

            yield Webhook(
                str(said.webhook), secret.reveal().encode(), timeout_seconds=said.timeout_seconds, clock=time.time
            )
        if said.entry_points:
            for one in installed_consumers():
                yield EntryPointConsumer(one.name, one.load, timeout_seconds=said.timeout_seconds)

    def daily(self) -> DailyFiles:
        """The files of the daily tier."""
        said = self._settings.memory_flush
        return DailyFiles(self._settings.data_dir / FOLDER, keep_days=said.keep_days, clock=time.time)

    def _courier(self, consumer: Consumer, reader: str) -> Courier:
        return Courier(consumer, self.queue, reader, waits=self._waits, emit=self._emit, clock=time.time)

    def _nudge(self) -> None:
        if self._worker is not None:
            self._worker.nudge()
