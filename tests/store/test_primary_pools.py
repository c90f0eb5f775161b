"""Pools of a primary that Sentinels named: none is left open, whatever its first command came to."""

from __future__ import annotations

from pathlib import Path

import pytest
import redis

from tests.support.clusters import free_ports
from tidemark.store.connection.client import FAILURES, connect
from tidemark.store.connection.sentinel import LibraryPrimary, PrimaryFinder
from tidemark.store.connection.url import Place
from tidemark.store.embedded.server import EmbeddedValkey

USER = ["--user", "default", "on", "nopass", "~*", "+@all", "--user", "ada", "on", ">word", "~*", "+@all", "-role"]


class NamedPrimary(PrimaryFinder):
    """Names one place, as Sentinels do."""

    def __init__(self, place: Place) -> None:
        super().__init__([], "main")
        self._place = place

    async def find(self) -> Place:
        """Return the place."""
        return self._place


@pytest.fixture
def port() -> int:
    """A port where nobody listens."""
    return free_ports(1)[0]


async def test_a_server_that_does_not_tell_its_role_is_left(tmp_path: Path, port: int, anyio_backend: str) -> None:
    """The error reaches the caller, and no connection stays."""
    with EmbeddedValkey(tmp_path / "store", options=["--port", str(port), *USER]):
        place = f"redis://ada:word@127.0.0.1:{port}/0"
        primary = LibraryPrimary(NamedPrimary(("127.0.0.1", port)), lambda _: connect(place, library=True))
        with pytest.raises(FAILURES, match=r"(?i)noperm|no permission"):
            await primary.call("PING")
        await primary.aclose()
        with redis.Redis(port=port, decode_responses=True) as other:
            assert [line["user"] for line in other.client_list()] == ["default"]
