"""The command ``tidemark store rotate`` as operators run it, on an embedded store that does not run."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.features.upkeep.stored import fill
from tidemark.store.embedded.server import EmbeddedValkey

pytestmark = pytest.mark.e2e
Run = Callable[..., subprocess.CompletedProcess[str]]
KEY = "ab" * 32


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Runs a command on a store that was filled without encryption."""
    with EmbeddedValkey(tmp_path / "data" / "store") as server:
        asyncio.run(fill(server.url))

    def tidemark(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
        environ = {name: os.environ[name] for name in ("PYTHONPATH",) if name in os.environ}
        environ |= {"HOME": str(tmp_path), "TIDEMARK_DATA_DIR": str(tmp_path / "data"), **variables}
        command = [sys.executable, "-m", "tidemark", "store", *words]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)

    return tidemark


def test_after_it_no_plain_message_is_in_the_stores_files(run: Run, tmp_path: Path) -> None:
    """An append-only file keeps what was written before, so it is written anew."""
    done = run("rotate", "--json", TIDEMARK_ENCRYPTION_KEY=KEY)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["sealed"] > 10
    written = b"".join(path.read_bytes() for path in (tmp_path / "data" / "store").rglob("*") if path.is_file())
    assert [word for word in (b"Be brief.", b"and so on", b"my talk", b"talk 0") if word in written] == []
    assert run("check", TIDEMARK_ENCRYPTION_KEY=KEY).returncode == 0


def test_without_a_key_or_its_server_it_is_refused_with_the_mend(run: Run, tmp_path: Path) -> None:
    """And nothing is changed; a check would otherwise call every record lost."""
    assert "Set TIDEMARK_ENCRYPTION_KEY" in run("rotate").stderr
    away = {"TIDEMARK_ENCRYPTION_KEY": KEY, "TIDEMARK_KEYS_URL": f"unix://{tmp_path}/nobody"}
    for word in ("rotate", "check"):
        refused = run(word, **away)
        assert (refused.returncode, "Check encryption.keys_url" in refused.stderr) == (1, True), refused.stderr
        assert "lost" not in refused.stdout
