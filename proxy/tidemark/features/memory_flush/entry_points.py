"""Calls functions of other packages, from the entry points of the group ``tidemark.memory_flush``.

Each function is a consumer of the flush queue. It runs on an event loop in its own thread, so that a function that
raises, hangs or blocks does not affect requests.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import itertools
import json
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from tidemark.core.errors import ConfigError, FlushNotTaken, FlushRefused
from tidemark.core.ports import FlushEntry

GROUP = "tidemark.memory_flush"
END_SECONDS = 1.0
"""Time for a cancelled function to end; after it, its loop counts as blocked."""
MAX_BLOCKED_THREADS = 4
"""Blocked threads of one function that may be abandoned; only the end of the process ends them."""


def installed_consumers() -> Sequence[EntryPoint]:
    """Return the entry points that are installed in this environment, by name.

    :raises ConfigError: two have one name, so that they would share a group in the queue and each would get a part
    """
    installed = sorted(entry_points(group=GROUP), key=lambda entry_point: entry_point.name)
    for entry_point, following in itertools.pairwise(installed):
        if entry_point.name == following.name:
            packages = " and ".join(sorted(map(_package, (entry_point, following))))
            raise ConfigError(
                f"Two functions in the group {GROUP} have the name {entry_point.name!r}, of the packages {packages}. "
                "Rename one, uninstall its package, or set memory_flush.entry_points: false."
            )
    return installed


def _package(entry_point: EntryPoint) -> str:
    return entry_point.dist.name if entry_point.dist is not None else entry_point.module


class EntryPointConsumer:
    """Gives entries to one function. The mutable state is its loop, and its blocked threads.

    :param load: returns the function, or raises if it cannot be loaded
    """

    def __init__(self, name: str, load: Callable[[], Any], *, timeout_seconds: float) -> None:
        self.name = f"entry:{name}"
        self._load = load
        self._timeout = timeout_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._blocked: list[threading.Thread] = []
        self._thread: threading.Thread | None = None

    async def deliver(self, entry: FlushEntry, attempt: int) -> None:
        """Call the function with the entry's document, a new copy for each call.

        :raises FlushRefused: it returned something other than None or True, or is no coroutine function
        :raises FlushNotTaken: it raised, did not end in time, or cannot be loaded
        """
        del attempt
        self._blocked = [thread for thread in self._blocked if thread.is_alive()]
        if len(self._blocked) >= MAX_BLOCKED_THREADS:
            raise FlushNotTaken(f"{len(self._blocked)} calls of it are blocked")
        loop, call = self._running_loop(), self._call(entry.body)
        try:
            answer = await self._result(asyncio.run_coroutine_threadsafe(call, loop))
        except RuntimeError as error:
            raise FlushNotTaken("its loop has ended") from error
        finally:
            if inspect.getcoroutinestate(call) == inspect.CORO_CREATED and loop.is_closed():
                call.close()  # a task of the function ended the loop before this call began
        if isinstance(answer, FlushNotTaken):
            raise answer
        if answer is not None and answer is not True:
            raise FlushRefused(f"it returned {type(answer).__name__}, and not None or True")

    async def aclose(self) -> None:
        """Stop the loop, unless it is blocked."""
        loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            with contextlib.suppress(RuntimeError):  # it stopped by itself
                loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(thread.join, END_SECONDS)

    async def _result(self, future: concurrent.futures.Future[Any]) -> Any:
        """Wait for a call within the timeout; abandon its thread if it blocks the loop."""
        waiting = asyncio.wrap_future(future)
        done, _ = await asyncio.wait([waiting], timeout=self._timeout)
        if done:
            return waiting.result()
        future.cancel()
        probe = asyncio.create_task(self._wait_for_loop())
        done, _ = await asyncio.wait([probe], timeout=END_SECONDS)
        probe.cancel()
        if not done and self._thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)  # takes effect when it is no longer blocked
            self._blocked.append(self._thread)
            self._loop = self._thread = None
        raise FlushNotTaken(f"it did not end within {self._timeout:g} s")

    async def _wait_for_loop(self) -> None:
        """Wait until the loop runs any callback."""
        if self._loop is not None:
            here, awake = asyncio.get_running_loop(), asyncio.Event()
            with contextlib.suppress(RuntimeError):  # it stopped by itself, and the next call gets another loop
                self._loop.call_soon_threadsafe(here.call_soon_threadsafe, awake.set)
                await awake.wait()

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            self._loop = loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(loop,), name=self.name, daemon=True)
            self._thread.start()
        return self._loop

    async def _call(self, body: bytes) -> Any:
        """Return the function's answer, in the function's own thread. No exception of it stops the loop."""
        try:
            answer = self._load()(json.loads(body))
            if not inspect.isawaitable(answer):
                return FlushRefused("it is no coroutine function")
            return await answer
        except BaseException as error:  # noqa: BLE001 - SystemExit and a cancellation are failures of the function too
            return FlushNotTaken(f"it raised {type(error).__name__}")


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    except (SystemExit, KeyboardInterrupt):
        pass  # a task of the function raised it: it stops this loop, and the next call gets another one
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        with contextlib.suppress(Exception):
            loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        loop.close()
