"""The beginning of a form is kept until its model is known: in memory while it is short, else on disk."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tidemark.codings.sealing import Box
from tidemark.core.errors import BodyTooLarge, RequestTimedOut, ServerBusy
from tidemark.server.spools import IN_MEMORY_BYTES, KeptBeginning, SpoolBounds, Spools

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The product is asyncio only."""
    return "asyncio"


def spools(
    all_bytes: int = 8 * IN_MEMORY_BYTES, *, form: int | None = None, first: int | None = None, seconds: float = 60
) -> Spools:
    """The budget for the forms of one worker."""
    form = all_bytes if form is None else form
    first = form if first is None else first
    return Spools(SpoolBounds(all_bytes=all_bytes, form_bytes=form, file_first_bytes=first, seconds=seconds))


def kept_in(budget: Spools, tenant: bytes = b"alice") -> KeptBeginning:
    """The beginning of a form of somebody."""
    return KeptBeginning(budget, tenant)


async def read(kept: KeptBeginning, start: int, end: int, replacement: bytes) -> bytes:
    """What is sent of a beginning."""
    return b"".join([piece async for piece in kept.pieces(start, end, replacement)])


def is_empty(folder: Path) -> bool:
    """Whether a folder has no file."""
    return not any(folder.iterdir())


@pytest.mark.parametrize("box", [None, Box(b"k" * 32)], ids=["plain", "sealed"])
@pytest.mark.parametrize("size", [10, 3 * IN_MEMORY_BYTES], ids=["in memory", "on disk"])
async def test_what_was_kept_is_sent_with_other_bytes_in_one_place(size: int, box: Box | None) -> None:
    """At its beginning, in its middle and at its end, by shorter and longer bytes."""
    body = bytes(range(10)) * (size // 10)
    kept = kept_in(Spools(spools(size).bounds, box))
    for place in range(0, len(body), 100_000):
        await kept.add(body[place : place + 100_000])
    for start, end, replacement in ((0, 2, b"longer"), (4, 9, b""), (len(body) - 1, len(body), b"x"), (0, 0, b"")):
        assert await read(kept, start, end, replacement) == body[:start] + replacement + body[end:]
    kept.close()


async def test_a_sealed_form_is_not_in_its_file() -> None:
    """The blocks of a file without a name stay on the disk after a crash."""
    kept = kept_in(Spools(spools().bounds, Box(b"k" * 32)))
    for number in range(40):
        await kept.add(b"zebra %d " % number * 500)
    file: Any = kept._file  # noqa: SLF001 - nobody else can see a file without a name
    file.seek(0)
    assert b"zebra" not in file.read()
    kept.close()


async def test_no_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even after a crash: it has no name from the beginning."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = kept_in(spools())
    await kept.add(b"x" * (2 * IN_MEMORY_BYTES))
    assert is_empty(tmp_path)
    kept.close()


async def test_more_than_the_bound_is_refused() -> None:
    """The message names the setting."""
    kept = kept_in(spools(100, form=10))
    await kept.add(b"x" * 10)
    with pytest.raises(BodyTooLarge, match="max_spool_mb"):
        await kept.add(b"x")
    kept.close()


async def test_a_form_with_files_alone_has_a_smaller_bound() -> None:
    """Until its first field; nearly all clients send that first, or a file that is short."""
    kept = kept_in(spools(100, first=10))
    await kept.add(b"x" * 10, has_field=False)
    with pytest.raises(BodyTooLarge, match="max_file_first_mb"):
        await kept.add(b"x", has_field=False)
    kept.close()
    with_field = kept_in(spools(100, first=10))
    await with_field.add(b"x" * 90, has_field=True)
    with_field.close()


async def collect(kept: KeptBeginning, size: int) -> None:
    """Keep so much of a form, and wait for more of it that does not come."""
    try:
        async with kept.collecting():
            await kept.add(b"x" * size)
            await asyncio.Event().wait()
    finally:
        kept.close()


async def begin_form(kept: KeptBeginning, size: int) -> asyncio.Task[None]:
    """A form whose client has sent so much, and nothing more."""
    task = asyncio.create_task(collect(kept, size))
    await asyncio.sleep(0)
    return task


async def end(*tasks: asyncio.Task[None]) -> None:
    """Let clients leave."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_who_keeps_most_loses_the_largest_form_where_the_budget_is_full() -> None:
    """Many forms of one credential leave a share for another; the refusal names the setting."""
    budget = spools(100)
    sizes = (10, 40, 30)
    forms = [kept_in(budget, b"mallory") for _ in sizes]
    tasks = [await begin_form(form, size) for form, size in zip(forms, sizes, strict=True)]
    victim = await begin_form(kept_in(budget, b"alice"), 30)
    with pytest.raises(ServerBusy, match="max_spools_mb"):
        await tasks[1]
    assert budget.total == 70
    await asyncio.sleep(0)
    assert [task.done() for task in (tasks[0], tasks[2], victim)] == [False, False, False]
    greedy = await begin_form(kept_in(budget, b"mallory"), 50)
    with pytest.raises(ServerBusy, match="Send the field 'model' before the file"):
        await greedy
    assert budget.total == 70
    await end(tasks[0], tasks[2], victim)


async def test_a_form_that_is_being_sent_is_not_refused() -> None:
    """Its model is known, and its share comes back soon."""
    budget = spools(100)
    sent = kept_in(budget, b"mallory")
    async with sent.collecting():
        await sent.add(b"x" * 90)
    with pytest.raises(ServerBusy):
        await collect(kept_in(budget, b"alice"), 20)
    sent.close()
    sent.close()
    assert budget.total == 0
    await end(await begin_form(kept_in(budget, b"alice"), 20))


async def test_a_form_has_a_time_for_its_model() -> None:
    """One drop in a minute would keep its file for ever."""
    with pytest.raises(RequestTimedOut, match=r"server\.form_seconds"):
        await collect(kept_in(spools(seconds=0.01)), 10)


async def test_a_disk_that_takes_no_more_is_no_disconnection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client hears what to do."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    kept = kept_in(spools())
    with pytest.raises(ServerBusy, match="TMPDIR"):
        await kept.add(b"x" * (2 * IN_MEMORY_BYTES))
    kept.close()
