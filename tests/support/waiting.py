"""Waits for facts that nobody tells of: a test looks again and again, and goes on as soon as they hold."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from inspect import isawaitable
from pathlib import Path

PATIENCE_SECONDS = 30.0
"""For what takes a fraction of a second on an idle machine."""
_PAUSE_SECONDS = 0.005


async def until(holds: Callable[..., object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until something holds, while the event loop turns."""
    async with asyncio.timeout(seconds):
        while True:
            answer = holds()
            if await answer if isawaitable(answer) else answer:
                return
            await asyncio.sleep(_PAUSE_SECONDS)


def wait_until(holds: Callable[..., object], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until something holds that another thread or process does."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, f"not within {seconds} s"
        time.sleep(_PAUSE_SECONDS)


async def settled(rounds: int = 20) -> None:
    """Let everything go on that waits for nothing but its turn on the event loop."""
    for _ in range(rounds):
        await asyncio.sleep(0)


def whole_lines(path: Path) -> list[bytes]:
    """The lines of a file; the last one may still be written, and counts when it has ended."""
    return [line for line in path.read_bytes().splitlines(keepends=True) if line.endswith(b"\n")]
