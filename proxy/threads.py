"""Work over very many messages, done beside the event loop: rules of the core that walk over all of a request.

Below whatever plans. A rule that takes a microsecond a message holds everybody else for 20 ms where there are 20,000.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
MANY_MESSAGES = 1_000
"""A plan over as many takes some 5 ms, a thread a tenth of one."""


async def beside_many(messages: int, work: Callable[[], T]) -> T:
    """What ``work`` gives, from a thread where it walks over more than ``MANY_MESSAGES``."""
    return await asyncio.to_thread(work) if messages > MANY_MESSAGES else work()
