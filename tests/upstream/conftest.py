"""Fixtures that all tests of the upstream share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from tests.support.scripted import ScriptedUpstream, says
from tests.support.serving import Serving
from tidemark.upstream.wire import WireLane


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


@pytest.fixture(params=["own", "library"])
async def each_wire(request: pytest.FixtureRequest) -> AsyncIterator[WireLane]:
    """The same over Tidemark's own client and over aiohttp."""
    lane = WireLane(library=request.param == "library")
    yield lane
    await lane.aclose()


@pytest.fixture
def server() -> ScriptedUpstream:
    """An upstream of OpenAI's format."""
    return ScriptedUpstream(says("Hello."))


@pytest.fixture
def base(server: ScriptedUpstream) -> Iterator[str]:
    """Its address."""
    with Serving(server) as served:
        yield f"{served.url}/v1"
