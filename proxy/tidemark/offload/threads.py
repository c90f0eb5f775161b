"""Runs work over very many messages or megabytes in a thread, so that no other request waits for it.

Packages above use it if they visit every message of a request, such as plans, records and rendering. A rule that
takes a microsecond for each message blocks the event loop for 20 ms if there are 20,000.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
MANY_MESSAGES = 1_000
"""A plan over so many messages takes some 5 ms; starting a thread takes 0.1 ms."""
MANY_BYTES = 1_048_576
"""Packing so many bytes takes some milliseconds."""


async def offload_if_many(messages: int, work: Callable[[], T]) -> T:
    """Return the result of ``work``, made in a thread if it visits more than ``MANY_MESSAGES``."""
    return await asyncio.to_thread(work) if messages > MANY_MESSAGES else work()
