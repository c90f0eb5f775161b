"""Entry points: whatever a function does, it is its own failure, and the server goes on."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.features.memory_flush.conftest import entry
from tests.support.waiting import until
from tidemark.core.errors import ConfigError, FlushNotTaken, FlushRefused
from tidemark.features.memory_flush.entry_points import MAX_BLOCKED_THREADS, EntryPointConsumer, installed_consumers

Make = Callable[[Any], EntryPointConsumer]


@pytest.fixture
async def make(anyio_backend: str) -> AsyncIterator[Make]:
    """Makes consumers of functions, with a third of a second for each call."""
    made: list[EntryPointConsumer] = []

    def consumer(function: Any) -> EntryPointConsumer:
        made.append(EntryPointConsumer("test", lambda: function, timeout_seconds=0.3))
        return made[-1]

    yield consumer
    for one in made:
        await one.aclose()


@pytest.mark.parametrize("answer", [None, True])
async def test_a_function_is_given_the_document_in_a_thread_of_its_own(make: Make, answer: object) -> None:
    """It takes the entry by returning nothing, or True."""
    got: list[Any] = []

    async def hook(flush: dict[str, Any]) -> object:
        got.append((flush["number"], threading.current_thread().name))
        flush.clear()
        return answer

    consumer = make(hook)
    await consumer.deliver(entry(7), 1)
    await consumer.deliver(entry(7), 2)
    assert got == [(7, "entry:test"), (7, "entry:test")]


async def test_its_calls_share_one_event_loop(make: Make) -> None:
    """So that it may keep connections."""
    loops: list[Any] = []

    async def hook(_: Any) -> None:
        loops.append(asyncio.get_running_loop())

    consumer = make(hook)
    for number in range(3):
        await consumer.deliver(entry(number), 1)
    assert len(set(loops)) == 1
    assert loops[0] is not asyncio.get_running_loop()


@pytest.mark.parametrize("answer", [False, 0, "", "ok", {}, [True]])
async def test_nonsense_is_refused_for_good(make: Make, answer: object) -> None:
    """Anything but None and True: nobody can say whether the entry was taken."""

    async def hook(_: Any) -> object:
        return answer

    with pytest.raises(FlushRefused, match=type(answer).__name__):
        await make(hook).deliver(entry(1), 1)


async def test_what_is_no_coroutine_function_is_refused(make: Make) -> None:
    """A plain function that returns something."""
    with pytest.raises(FlushRefused, match="coroutine"):
        await make(lambda _: None).deliver(entry(1), 1)


@pytest.mark.parametrize(
    "error", [ValueError("secret words"), SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError()], ids=repr
)
async def test_what_it_raises_is_not_taken(make: Make, error: BaseException) -> None:
    """Even what would end a process; of its words nothing is told, as they may quote a conversation."""

    async def hook(_: Any) -> None:
        raise error

    consumer = make(hook)
    for attempt in (1, 2):
        with pytest.raises(FlushNotTaken, match=type(error).__name__) as failed:
            await consumer.deliver(entry(1), attempt)
        assert "secret" not in str(failed.value)


async def test_a_task_of_its_own_that_ends_the_loop_is_its_own_failure(make: Make) -> None:
    """``SystemExit`` in a task ends an event loop: the next call gets another one, and closing goes on."""

    async def hook(_: Any) -> None:
        await asyncio.create_task(child())

    async def child() -> None:
        raise SystemExit(3)

    consumer = make(hook)
    for attempt in (1, 2):
        with pytest.raises(FlushNotTaken):
            await consumer.deliver(entry(1), attempt)


async def test_one_that_cannot_be_loaded_is_not_taken(anyio_backend: str) -> None:
    """The package may be mended meanwhile."""

    def load() -> Any:
        raise ImportError("no such thing")

    consumer = EntryPointConsumer("test", load, timeout_seconds=1)
    with pytest.raises(FlushNotTaken, match="ImportError"):
        await consumer.deliver(entry(1), 1)
    await consumer.aclose()


async def test_one_that_hangs_is_cancelled(make: Make) -> None:
    """And asked again in the same loop."""
    seen: list[str] = []

    async def hook(flush: dict[str, Any]) -> None:
        seen.append("called")
        try:
            await asyncio.sleep(60 if flush["number"] == 1 else 0)
        except asyncio.CancelledError:
            seen.append("cancelled")
            raise

    consumer = make(hook)
    with pytest.raises(FlushNotTaken, match="did not end within"):
        await consumer.deliver(entry(1), 1)
    await consumer.deliver(entry(2), 1)
    assert seen == ["called", "cancelled", "called"]


async def test_one_that_blocks_its_thread_blocks_nobody_else(make: Make) -> None:
    """The server's loop turns all the while; after a few such calls no thread is given it any more."""
    release = threading.Event()
    turned = 0

    async def hook(_: Any) -> None:
        release.wait(30)

    def turn() -> bool:
        nonlocal turned
        turned += 1
        return False

    turning = asyncio.create_task(until(turn))
    consumer = make(hook)
    for number in range(MAX_BLOCKED_THREADS):
        before = turned
        with pytest.raises(FlushNotTaken, match="did not end within"):
            await consumer.deliver(entry(number), 1)
        assert turned > before + 10
    with pytest.raises(FlushNotTaken, match="blocked"):
        await consumer.deliver(entry(9), 1)
    release.set()

    async def is_taken() -> bool:
        with suppress(FlushNotTaken):
            await consumer.deliver(entry(9), 2)
            return True
        return False

    await until(is_taken)
    turning.cancel()


def install(folder: Path, package: str) -> None:
    """Leave a package with the function ``remember`` as pip does."""
    module = package.replace("-", "_")
    (folder / f"{module}.py").write_text("seen = []\nasync def remember(flush):\n    seen.append(flush['number'])\n")
    about = folder / f"{module}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(f"[tidemark.memory_flush]\nremember = {module}:remember\n")


def test_two_packages_with_one_name_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would share one place in the queue; the error names both packages and the mend."""
    install(tmp_path, "their-hooks")
    install(tmp_path, "our-hooks")
    monkeypatch.syspath_prepend(str(tmp_path))
    with pytest.raises(ConfigError, match="'remember', of the packages our-hooks and their-hooks"):
        installed_consumers()


async def test_installed_packages_are_found_by_their_group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As ``pip install`` leaves them."""
    install(tmp_path, "their-hooks")
    monkeypatch.syspath_prepend(str(tmp_path))
    (found,) = [one for one in installed_consumers() if one.name == "remember"]
    consumer = EntryPointConsumer(found.name, found.load, timeout_seconds=5)
    assert consumer.name == "entry:remember"
    await consumer.deliver(entry(5), 1)
    await consumer.aclose()
    assert sys.modules["their_hooks"].seen == [5]
