"""Runs one check so that it can neither stop the others nor outlast the examination.

``examination.py`` makes the guard; a check of several parts runs each part through it again, so that what the others
found out is not lost.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tidemark.core.errors import TidemarkError
from tidemark.doctor.findings import Finding

Result = TypeVar("Result")

_BUG = "This is a fault of Tidemark's own; please report it with this line."
_LATE = "Look why it takes so long; a disk or a network that does not answer is the usual cause."


class Guard:
    """Turns what a check raises, or does not end in time, into a finding. Mutable: nothing.

    :param until: when every check must have ended, by the clock of the event loop, in seconds
    :param seconds: how long the whole examination may take, for its words
    """

    def __init__(self, until: float, seconds: float) -> None:
        self._until = until
        self._seconds = seconds

    async def run(self, name: str, check: Awaitable[list[Finding]], *, grace_seconds: float = 0.0) -> list[Finding]:
        """Return the findings of a check, or the one that it failed.

        :param grace_seconds: more time, for a check whose parts have a guard of their own
        """
        try:
            async with asyncio.timeout_at(self._until + grace_seconds):
                return await check
        except TimeoutError:
            return [Finding(name, "error", f"it was not examined to the end within {self._seconds:.0f} s", _LATE)]
        except Exception as error:  # noqa: BLE001 - one broken check must not hide what the others found
            return [failure(name, error)]


def failure(name: str, error: Exception) -> Finding:
    """Return the finding of a check that failed; the words of our own errors name the mend."""
    if isinstance(error, TidemarkError):
        return Finding(name, "error", str(error), "Correct what it names.")
    return Finding(name, "error", f"the check failed: {type(error).__name__}: {error}", _BUG)


async def in_thread(work: Callable[[], Result]) -> Result:
    """Run work that may block, in a thread that the end of the program does not wait for.

    ``asyncio.to_thread`` would not do: its pool is waited for, however long a file system is silent.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Result] = loop.create_future()

    def settle(result: Result | None, error: BaseException | None) -> None:
        if done.cancelled():
            return
        if error is not None:
            done.set_exception(error)
        else:
            done.set_result(result)  # type: ignore[arg-type]  # without an error there is a result

    def target() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as raised:  # noqa: BLE001 - it is raised again where the result is awaited
            error = raised
        with contextlib.suppress(RuntimeError):  # the loop has ended without it
            loop.call_soon_threadsafe(settle, result, error)

    threading.Thread(target=target, daemon=True).start()
    return await done
