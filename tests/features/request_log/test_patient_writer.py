"""Figures of requests are written together: what comes during a write waits for the next pause."""

from __future__ import annotations

import asyncio

import pytest

from tests.support.waiting import until
from tidemark.worker.patient_writer import PatientWriter

pytestmark = pytest.mark.anyio
PAUSE_SECONDS = 0.05


@pytest.fixture
def anyio_backend() -> str:
    """As the server."""
    return "asyncio"


async def test_what_comes_during_a_write_waits_for_a_pause() -> None:
    """A busy worker would write each request by itself, since another one comes during every write."""
    loop, written, waiting = asyncio.get_running_loop(), list[float](), [3]

    async def write() -> None:
        written.append(loop.time())
        await asyncio.sleep(0)
        waiting[0] -= 1  # the others came meanwhile

    writer = PatientWriter(write, lambda: waiting[0] > 0, PAUSE_SECONDS)
    began = loop.time()
    writer.begin()
    await until(lambda: waiting[0] == 0)
    pauses = [later - earlier for earlier, later in zip([began, *written], written, strict=False)]
    assert len(pauses) == 3
    assert min(pauses) >= 0.9 * PAUSE_SECONDS
    await writer.aclose()
