"""Queues what leaves the context, and delivers it to consumers (S0-4). No request waits for a delivery.

``outbox.py`` queues what the compaction flushes, and ``recovery.py`` queues what a process left behind that died.
``worker.py`` and ``courier.py`` deliver. ``entry_points.py``, ``daily.py`` and ``webhook.py`` are the consumers; the
last is not imported here, so that a process without a webhook does not import aiohttp.
"""

from __future__ import annotations

from tidemark.memory_flush.consumer import Consumer, RetryWaits
from tidemark.memory_flush.courier import Courier
from tidemark.memory_flush.daily import DailyFiles
from tidemark.memory_flush.entry_points import EntryPointConsumer, installed_consumers
from tidemark.memory_flush.outbox import Outbox
from tidemark.memory_flush.recovery import Recovery
from tidemark.memory_flush.worker import FlushWorker, QueueWatch

__all__ = [
    "Consumer",
    "Courier",
    "DailyFiles",
    "EntryPointConsumer",
    "FlushWorker",
    "Outbox",
    "QueueWatch",
    "Recovery",
    "RetryWaits",
    "installed_consumers",
]
