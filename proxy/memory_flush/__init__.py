"""What leaves the context is queued off the request and delivered to whoever wants it (S0-4).

``outbox.py`` takes it from the flow and ``recovery.py`` makes up for a process that died in between; ``worker.py`` and
``courier.py`` deliver; ``entry_points.py``, ``daily.py`` and ``webhook.py`` are the consumers. The last is not imported
here, so that who posts nothing need not wait for aiohttp.
"""

from __future__ import annotations

from proxy.memory_flush.consumer import Consumer, Waits
from proxy.memory_flush.courier import Courier
from proxy.memory_flush.daily import DailyFiles
from proxy.memory_flush.entry_points import EntryPointConsumer, installed
from proxy.memory_flush.outbox import Outbox
from proxy.memory_flush.recovery import Recovery
from proxy.memory_flush.worker import FlushWorker, Watch

__all__ = [
    "Consumer",
    "Courier",
    "DailyFiles",
    "EntryPointConsumer",
    "FlushWorker",
    "Outbox",
    "Recovery",
    "Waits",
    "Watch",
    "installed",
]
