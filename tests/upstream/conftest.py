"""What all tests of the upstream room share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from proxy.upstream.wire import WireLane


@pytest.fixture
def anyio_backend() -> str:
    """The product is asyncio only."""
    return "asyncio"


@pytest.fixture
async def wire() -> AsyncIterator[WireLane]:
    """A wire lane that is closed at the end."""
    lane = WireLane()
    yield lane
    await lane.aclose()
