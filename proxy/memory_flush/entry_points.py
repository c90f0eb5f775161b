"""Entry points: functions of other packages, in the group ``tidemark.memory_flush``.

A consumer of the flush queue for each. It runs on an event loop in a thread of its own, so that one that raises, hangs
or blocks has no part in the serving of requests.
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

from proxy.core.errors import ConfigError, FlushNotTaken, FlushRefused
from proxy.core.ports import FlushEntry

GROUP = "tidemark.memory_flush"
END_SECONDS = 1.0
"""What a function that was cancelled may take to end; after it, its loop is taken for blocked."""
MOST_BLOCKED = 4
"""Threads of one function that may be left behind blocked; nothing can end them but the process's end."""


def installed() -> Sequence[EntryPoint]:
    """What is installed in this environment, by name.

    :raises ConfigError: two of one name: they would share one place in the queue, and each would get a part
    """
    found = sorted(entry_points(group=GROUP), key=lambda one: one.name)
    for one, other in itertools.pairwise(found):
        if one.name == other.name:
            packages = " and ".join(sorted(_package(each) for each in (one, other)))
            raise ConfigError(
                f"Two functions in the group {GROUP} have the name {one.name!r}, of the packages {packages}. "
                "Rename one, uninstall its package, or set memory_flush.entry_points: false."
            )
    return found


def _package(one: EntryPoint) -> str:
    return one.dist.name if one.dist is not None else one.module


class EntryPointConsumer:
    """Gives entries to one function. The mutable state is its loop, and how many were left behind blocked.

    :param load: the function, or what is raised where it cannot be had
    """

    def __init__(self, name: str, load: Callable[[], Any], *, timeout_seconds: float) -> None:
        self.name = f"entry:{name}"
        self._load = load
        self._timeout = timeout_seconds
        self._loop: asyncio.AbstractEventLoop | None = None
        self._blocked: list[threading.Thread] = []
        self._thread: threading.Thread | None = None

    async def deliver(self, entry: FlushEntry, attempt: int) -> None:
        """Call the function with the entry's document, a new one each time.

        :raises FlushRefused: it returned something else than None or True, or is no coroutine function
        :raises FlushNotTaken: it raised, did not end in time, or cannot be loaded
        """
        del attempt
        self._blocked = [one for one in self._blocked if one.is_alive()]
        if len(self._blocked) >= MOST_BLOCKED:
            raise FlushNotTaken(f"{len(self._blocked)} calls of it are blocked")
        loop, call = self._running(), self._called(entry.body)
        try:
            answer = await self._ended(asyncio.run_coroutine_threadsafe(call, loop))
        except RuntimeError as error:
            raise FlushNotTaken("its loop has ended") from error
        finally:
            if inspect.getcoroutinestate(call) == inspect.CORO_CREATED and loop.is_closed():
                call.close()  # a task that the function began had ended the loop before it came to this call
        if isinstance(answer, FlushNotTaken):
            raise answer
        if answer is not None and answer is not True:
            raise FlushRefused(f"it returned {type(answer).__name__}, and not None or True")

    async def aclose(self) -> None:
        """End the loop, if it is not blocked."""
        loop, thread, self._loop = self._loop, self._thread, None
        if loop is not None and thread is not None:
            with contextlib.suppress(RuntimeError):  # it ended by itself
                loop.call_soon_threadsafe(loop.stop)
            await asyncio.to_thread(thread.join, END_SECONDS)

    async def _ended(self, future: concurrent.futures.Future[Any]) -> Any:
        waiting = asyncio.wrap_future(future)
        done, _ = await asyncio.wait([waiting], timeout=self._timeout)
        if done:
            return waiting.result()
        future.cancel()
        asked = asyncio.create_task(self._answers())
        done, _ = await asyncio.wait([asked], timeout=END_SECONDS)
        asked.cancel()
        if not done and self._thread is not None and self._loop is not None:
            self._loop.call_soon_threadsafe(self._loop.stop)  # once it is not blocked any more
            self._blocked.append(self._thread)
            self._loop = self._thread = None
        raise FlushNotTaken(f"it did not end within {self._timeout:g} s")

    async def _answers(self) -> None:
        """Ends as soon as the loop does anything."""
        if self._loop is not None:
            here, awake = asyncio.get_running_loop(), asyncio.Event()
            with contextlib.suppress(RuntimeError):  # it has ended by itself, and the next call gets another one
                self._loop.call_soon_threadsafe(here.call_soon_threadsafe, awake.set)
                await awake.wait()

    def _running(self) -> asyncio.AbstractEventLoop:
        if self._loop is None or self._thread is None or not self._thread.is_alive():
            self._loop = loop = asyncio.new_event_loop()
            self._thread = threading.Thread(target=_serve, args=(loop,), name=self.name, daemon=True)
            self._thread.start()
        return self._loop

    async def _called(self, body: bytes) -> Any:
        """What the function answers; in its own thread. Nothing that it raises ends the loop."""
        try:
            answer = self._load()(json.loads(body))
            if not inspect.isawaitable(answer):
                return FlushRefused("it is no coroutine function")
            return await answer
        except BaseException as error:  # noqa: BLE001 - SystemExit and being cancelled too are the function's own failure
            return FlushNotTaken(f"it raised {type(error).__name__}")


def _serve(loop: asyncio.AbstractEventLoop) -> None:
    asyncio.set_event_loop(loop)
    try:
        loop.run_forever()
    except (SystemExit, KeyboardInterrupt):
        pass  # of a task that the function began: it ends this loop, and the next call gets another one
    finally:
        left = asyncio.all_tasks(loop)
        for task in left:
            task.cancel()
        with contextlib.suppress(Exception):
            loop.run_until_complete(asyncio.gather(*left, return_exceptions=True))
        loop.close()
