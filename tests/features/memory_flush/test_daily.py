"""The daily tier: a line for each entry and once, whatever is killed in between, in files that are rotated."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.features.memory_flush.conftest import TENANT, entry
from tidemark.core.ports import FlushEntry
from tidemark.features.memory_flush.daily import DailyFiles

NOON = 1_700_000_000.0  # 2023-11-14, 22:13 UTC
DAY = 86_400.0


@pytest.fixture
def anyio_backend() -> str:
    """Files are written in threads of asyncio."""
    return "asyncio"


def files(folder: Path, *, keep_days: int | None = None, now: float = NOON) -> DailyFiles:
    """The consumer, as a process that was just started has it."""
    return DailyFiles(folder, keep_days=keep_days, clock=lambda: now)


def numbers(path: Path) -> list[int]:
    """Which entries stand in a file."""
    return [json.loads(line)["number"] for line in path.read_bytes().splitlines()]


async def test_there_is_a_file_for_each_day_and_tenant(tmp_path: Path) -> None:
    """By the time at which the messages left, in UTC; nobody but its owner may read it."""
    writing = files(tmp_path)
    await writing.deliver(entry(1, at=NOON), 1)
    await writing.deliver(entry(2, at=NOON + DAY), 1)
    await writing.deliver(entry(3, at=NOON), 1)
    other = entry(4, at=NOON)
    await writing.deliver(FlushEntry(other.key, "cd" * 16, "c", other.body, NOON), 1)
    assert numbers(tmp_path / TENANT / "2023-11-14.jsonl") == [1, 3]
    assert numbers(tmp_path / TENANT / "2023-11-15.jsonl") == [2]
    assert numbers(tmp_path / ("cd" * 16) / "2023-11-14.jsonl") == [4]
    assert (tmp_path / TENANT).stat().st_mode & 0o077 == 0
    assert (tmp_path / TENANT / "2023-11-14.jsonl").stat().st_mode & 0o077 == 0


async def test_the_folders_around_the_files_are_their_owners_alone(tmp_path: Path) -> None:
    """``data_dir`` and ``flush/`` too, where they are made here: their names tell tenants."""
    await files(tmp_path / "data" / "flush").deliver(entry(1, at=NOON), 1)
    made = (tmp_path / "data", tmp_path / "data" / "flush", tmp_path / "data" / "flush" / TENANT)
    assert [folder.stat().st_mode & 0o777 for folder in made] == [0o700] * 3


async def test_an_entry_that_comes_again_is_not_written_again(tmp_path: Path) -> None:
    """By its key: in the same process, in the next one, and where another one wrote it meanwhile."""
    first, second = files(tmp_path), files(tmp_path)
    await first.deliver(entry(1, at=NOON), 1)
    await first.deliver(entry(1, at=NOON), 2)
    await second.deliver(entry(1, at=NOON), 3)
    await second.deliver(entry(2, at=NOON), 1)
    await first.deliver(entry(2, at=NOON), 2)
    assert numbers(tmp_path / TENANT / "2023-11-14.jsonl") == [1, 2]


async def test_half_a_line_that_a_crash_left_is_cut_off(tmp_path: Path) -> None:
    """Its entry was not taken, so it comes again."""
    path = tmp_path / TENANT / "2023-11-14.jsonl"
    await files(tmp_path).deliver(entry(1, at=NOON), 1)
    path.write_bytes(path.read_bytes() + entry(2).body[:30])
    await files(tmp_path).deliver(entry(3, at=NOON), 1)
    await files(tmp_path).deliver(entry(2, at=NOON), 2)
    assert numbers(path) == [1, 3, 2]


async def test_what_cannot_be_written_is_raised_and_leaves_nothing(tmp_path: Path) -> None:
    """So the entry is offered again."""
    await files(tmp_path).deliver(entry(1, at=NOON), 1)
    path = tmp_path / TENANT / "2023-11-14.jsonl"
    path.rename(path.with_suffix(".kept"))
    path.mkdir()
    with pytest.raises(OSError, match=r"2023-11-14"):
        await files(tmp_path).deliver(entry(2, at=NOON), 1)
    path.rmdir()
    path.with_suffix(".kept").rename(path)
    await files(tmp_path).deliver(entry(2, at=NOON), 2)
    assert numbers(path) == [1, 2]


async def test_files_that_are_too_old_are_removed(tmp_path: Path) -> None:
    """``keep_days``; and what lies beside them is not touched."""
    await files(tmp_path).deliver(entry(1, at=NOON), 1)
    beside = tmp_path / TENANT / "notes.txt"
    beside.write_text("mine")
    later = NOON + 10 * DAY
    await files(tmp_path, keep_days=10, now=later).deliver(entry(2, at=later), 1)
    assert sorted(one.name for one in (tmp_path / TENANT).glob("*.jsonl")) == ["2023-11-14.jsonl", "2023-11-24.jsonl"]
    await files(tmp_path, keep_days=9, now=later).deliver(entry(3, at=later), 1)
    assert sorted(one.name for one in (tmp_path / TENANT).glob("*.jsonl")) == ["2023-11-24.jsonl"]
    assert beside.read_text() == "mine"


async def test_a_tenant_never_becomes_a_path(tmp_path: Path) -> None:
    """What is no fingerprint goes into a folder of its own."""
    odd = entry(1, at=NOON)
    await files(tmp_path / "in").deliver(FlushEntry(odd.key, "../../out", "c", odd.body, NOON), 1)
    assert numbers(tmp_path / "in" / "unknown" / "2023-11-14.jsonl") == [1]
    assert not (tmp_path / "out").exists()


async def test_a_conversations_lines_can_be_forgotten(tmp_path: Path) -> None:
    """Really gone from all days; the others' stay, also where they quote its id."""
    writing = files(tmp_path)
    for number, conversation in enumerate(["c1", "c2", "c1"]):
        await writing.deliver(entry(number, conversation, at=NOON + number * DAY), 1)
    assert writing.forget(TENANT, {"c1"}) == 2
    left = [number for path in sorted((tmp_path / TENANT).glob("*.jsonl")) for number in numbers(path)]
    assert left == [1]
    await writing.deliver(entry(9, "c2", at=NOON), 1)
    assert numbers(tmp_path / TENANT / "2023-11-14.jsonl") == [9]
