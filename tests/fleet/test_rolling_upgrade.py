"""Old and new workers share a store for the length of a rolling upgrade, and of the way back."""

from __future__ import annotations

import io
import os
import random
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack
from pathlib import Path

import httpx
import pytest

from tests.fleet.proxies import CONFIG, Proxy
from tests.fleet.talks import NAME, Talk, Witness, client
from tests.support.clusters import Valkey, free_ports, until
from tests.support.nginx import ROOT
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import Serving

pytestmark = pytest.mark.fleet
TALKS = 8
ROUNDS = 6
"""Turns of each talk between two steps; the summaries of all talks are made within them."""


@pytest.fixture(scope="module")
def old_code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The code of the commit before, or of the one that UPGRADE_FROM names."""
    folder, commit = tmp_path_factory.mktemp("old"), os.environ.get("UPGRADE_FROM", "HEAD~1")
    git = shutil.which("git") or "git"
    archived = subprocess.run([git, "archive", commit, "proxy", "config"], cwd=ROOT, capture_output=True, check=False)
    if archived.returncode:
        pytest.skip(f"this checkout has no commit {commit}: a clone with --depth 2 or more has it")
    with tarfile.open(fileobj=io.BytesIO(archived.stdout)) as archive:
        archive.extractall(folder, filter="data")
    return folder


class Site:
    """Two proxies on one store, of which each turn takes any."""

    def __init__(self, proxies: Sequence[Proxy], witness: Witness, https: Sequence[httpx.AsyncClient]) -> None:
        self.proxies, self.witness, self._https = proxies, witness, https
        self.talks = [
            Talk(number, https[0], is_stored=number % 4 == 3, streams=number % 2 == 0) for number in range(TALKS)
        ]
        self._chance = random.Random(11)

    async def go_on(self) -> None:
        """Some turns of every talk, each through either proxy."""
        for _ in range(ROUNDS):
            for talk in self.talks:
                talk.http = self._chance.choice(self._https)
                await talk.turn()

    async def exported(self, talk: Talk) -> str:
        """What is stored of a talk."""
        path = f"/tidemark/conversations/{talk.conversations[0]}/export"
        return (await self._chance.choice(self._https).get(path)).text


@pytest.fixture
def started(tmp_path: Path, old_code: Path) -> Iterator[tuple[list[Proxy], Witness]]:
    """Two old proxies, and the upstream that looks at every request."""
    with ExitStack() as stack:
        (port,) = free_ports(1)
        store = Valkey(tmp_path / "store", port, ["--save", "", "--appendonly", "no"])
        stack.callback(store.end)
        witness = Witness()
        served = stack.enter_context(Serving(ScriptedUpstream(witness)))
        (tmp_path / "tidemark.yaml").write_text(CONFIG.format(base=served.url, name=NAME))
        proxies = []
        for number in range(2):
            proxies.append(Proxy(tmp_path / f"proxy{number}", f"redis://127.0.0.1:{port}/0", old_code))
            stack.callback(proxies[-1].end)
        for proxy in proxies:
            until(proxy.is_ready)
        yield proxies, witness


async def test_nothing_is_lost_while_old_and_new_workers_share_a_store(
    started: tuple[list[Proxy], Witness], old_code: Path, anyio_backend: str
) -> None:
    """One after the other becomes new, then one goes back: no request is wrong, refused or degraded."""
    proxies, witness = started
    async with AsyncExitStack() as stack:
        https = [await stack.enter_async_context(client(proxy.url)) for proxy in proxies]
        site = Site(proxies, witness, https)
        await site.go_on()
        for place, code in ((0, ROOT), (1, ROOT), (0, old_code)):
            proxies[place].replace_code(code)
            until(proxies[place].is_ready)
            await site.go_on()
        for talk in site.talks:
            assert (talk.refusals, talk.degraded, len(talk.conversations)) == ([], 0, 1)
            stored = await site.exported(talk)
            assert [message["content"] in stored for message in talk.messages].count(False) == 0
            assert stored.count("\n") == len(talk.messages)
    assert (witness.faults, dict(witness.gaps)) == ([], {})
    assert len(witness.summaries) >= TALKS
    assert {len(texts) for texts in witness.summaries.values()} == {1}
