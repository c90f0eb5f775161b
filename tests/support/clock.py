"""An event loop whose clock stands still while there is work, and jumps to the next timer where there is none.

A rule about time needs no time this way, and a busy machine cannot break it. The loop knows its own threads; other
processes, and other loops, have no part in its clock.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Arguments = TypeVarTuple("Arguments")

TURN_SECONDS = 1e-6
"""What a turn of the loop takes, so that a timer that comes a rounding too early does not come for ever."""


class _Clock(selectors.DefaultSelector):
    """Mutable: the seconds that it shows, and what threads of the loop are at."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.threads: set[asyncio.Future[Any]] = set()

    def select(self, timeout: float | None = None) -> Any:
        """Look at the sockets. If none has anything to tell, the time until the next timer is over at once."""
        self.now += TURN_SECONDS
        if not timeout or self.threads:
            return super().select(timeout)
        found = super().select(0)
        if not found:
            self.now += timeout
        return found


class JumpingLoop(asyncio.SelectorEventLoop):
    """The event loop of tests whose fixture ``anyio_backend`` returns ``JUMPING``."""

    def __init__(self) -> None:
        self._own_clock = _Clock()
        super().__init__(self._own_clock)

    def time(self) -> float:
        """Return the seconds since the beginning."""
        return self._own_clock.now

    def hold(self, seconds: float) -> None:
        """Pass time as work does that blocks the loop."""
        self._own_clock.now += seconds

    def run_in_executor(
        self, executor: Executor | None, func: Callable[[*Arguments], T], *args: *Arguments
    ) -> asyncio.Future[T]:
        """Run something in a thread, for which the clock stands still."""
        running = super().run_in_executor(executor, func, *args)
        self._own_clock.threads.add(running)
        running.add_done_callback(self._own_clock.threads.discard)
        return running


JUMPING: tuple[str, dict[str, Any]] = ("asyncio", {"loop_factory": JumpingLoop})


def jumping_loop() -> JumpingLoop:
    """Return the loop that runs."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, JumpingLoop)
    return loop


async def pass_seconds(seconds: float) -> None:
    """Let time pass in which nothing blocks the loop."""
    jumping_loop()
    await asyncio.sleep(seconds)
