"""The beginning of a form is kept until its model is known: in memory while it is short, else on disk."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from proxy.core.errors import BodyTooLarge, ServerBusy
from proxy.server.uploads import IN_MEMORY_BYTES, KeptBeginning

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    """The product is asyncio only."""
    return "asyncio"


async def read(kept: KeptBeginning, start: int, end: int, replacement: bytes) -> bytes:
    """What is sent of a beginning."""
    return b"".join([piece async for piece in kept.pieces(start, end, replacement)])


def is_empty(folder: Path) -> bool:
    """Whether a folder has no file."""
    return not any(folder.iterdir())


@pytest.mark.parametrize("size", [10, 3 * IN_MEMORY_BYTES], ids=["in memory", "on disk"])
async def test_what_was_kept_is_sent_with_other_bytes_in_one_place(size: int) -> None:
    """At its beginning, in its middle and at its end, by shorter and longer bytes."""
    body = bytes(range(10)) * (size // 10)
    kept = KeptBeginning(size)
    for place in range(0, len(body), 100_000):
        await kept.add(body[place : place + 100_000])
    for start, end, replacement in ((0, 2, b"longer"), (4, 9, b""), (len(body) - 1, len(body), b"x"), (0, 0, b"")):
        assert await read(kept, start, end, replacement) == body[:start] + replacement + body[end:]
    kept.close()


async def test_no_file_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even after a crash: it has no name from the beginning."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    kept = KeptBeginning(4 * IN_MEMORY_BYTES)
    await kept.add(b"x" * (2 * IN_MEMORY_BYTES))
    assert is_empty(tmp_path)
    kept.close()


async def test_more_than_the_bound_is_refused() -> None:
    """The message names the setting."""
    kept = KeptBeginning(10)
    await kept.add(b"x" * 10)
    with pytest.raises(BodyTooLarge, match="max_spool_mb"):
        await kept.add(b"x")
    kept.close()


async def test_a_disk_that_takes_no_more_is_no_disconnection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client hears what to do."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))
    kept = KeptBeginning(4 * IN_MEMORY_BYTES)
    with pytest.raises(ServerBusy, match="TMPDIR"):
        await kept.add(b"x" * (2 * IN_MEMORY_BYTES))
    kept.close()
