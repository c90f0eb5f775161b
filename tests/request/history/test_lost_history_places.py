"""What a worker remembers of stored conversations: a bounded number, in no turn's way."""

from __future__ import annotations

import asyncio
from typing import Any

from tidemark.pipeline.lost_histories import LostHistories


class SlowIdentity:
    """A store's identity that takes a moment to be read."""

    epoch = "one"

    async def renewed(self) -> str:
        """Return it after other turns had theirs."""
        await asyncio.sleep(0)
        return self.epoch


class EmptyStore:
    """A store that has no conversation."""

    async def find_by_name(self, owner: str, name: str) -> None:
        """Return nothing."""


class Started:
    """A turn that begins its conversation."""

    lost = ""


async def test_an_entry_that_left_meanwhile_is_no_error() -> None:
    """Two turns of one deleted conversation ask at once, after a lease was lost."""
    store: Any = EmptyStore()
    started: Any = Started()
    histories = LostHistories(store, SlowIdentity())
    histories.note("family")
    asked = [histories.count(started, "family", "owner", "name") for _ in range(2)]
    assert await asyncio.gather(*asked) == ["", ""]
