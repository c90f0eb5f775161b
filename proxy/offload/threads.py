"""Work over very many messages or megabytes, done beside the event loop: nobody else waits for it.

Below whatever walks over all of a request: plans, records, what is rendered. A rule that takes a microsecond a message
holds everybody for 20 ms where there are 20,000.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
MANY_MESSAGES = 1_000
"""A plan over as many takes some 5 ms, a thread a tenth of one."""
MANY_BYTES = 1_048_576
"""Packing as many takes some milliseconds."""


async def beside_many(messages: int, work: Callable[[], T]) -> T:
    """What ``work`` gives, from a thread where it walks over more than ``MANY_MESSAGES``."""
    return await asyncio.to_thread(work) if messages > MANY_MESSAGES else work()
