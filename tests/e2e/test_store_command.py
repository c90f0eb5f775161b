"""The command ``tidemark store`` as users run it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from proxy.store.embedded.server import EmbeddedValkey

pytestmark = pytest.mark.e2e
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def valkey(tmp_path: Path) -> Iterator[EmbeddedValkey]:
    """A store of the test's own."""
    with EmbeddedValkey(tmp_path / "own") as running:
        yield running


@pytest.fixture
def run(tmp_path: Path, valkey: EmbeddedValkey) -> Run:
    """Runs the command on that store."""

    def tidemark(*words: str) -> subprocess.CompletedProcess[str]:
        environ = {"HOME": str(tmp_path), "TIDEMARK_STORE_URL": valkey.url}
        command = [sys.executable, "-m", "proxy", "store", *words]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60, check=False)

    return tidemark


def test_check_ends_with_1_where_a_record_cannot_be_read(run: Run, valkey: EmbeddedValkey) -> None:
    """It names the key and the reason; after a repair all is well."""
    assert run("check").returncode == 0
    with redis.Redis.from_url(valkey.url) as admin:
        admin.set("tm:{models}:s", "no settings")
    broken = run("check")
    assert broken.returncode == 1
    assert "unreadable: tm:{models}:s:" in broken.stdout
    listed = json.loads(run("check", "--json").stdout)
    assert (listed["ok"], listed["unreadable"]) == (False, 1)
    assert [record["key"] for record in listed["records_unreadable"]] == ["tm:{models}:s"]
    repaired = run("check", "--repair")
    assert (repaired.returncode, "1 of them moved aside" in repaired.stdout) == (0, True)
    assert run("check").returncode == 0


def test_a_store_of_a_newer_schema_is_refused_with_the_mend(run: Run, valkey: EmbeddedValkey) -> None:
    """Nothing is examined there."""
    with redis.Redis.from_url(valkey.url) as admin:
        admin.set("tm:schema", 2)
    refused = run("check")
    assert (refused.returncode, "Run the newer version" in refused.stderr) == (1, True)


def test_a_store_is_exported_and_imported(run: Run, valkey: EmbeddedValkey, tmp_path: Path) -> None:
    """Into the store that the environment names; the file is its owner's only."""
    with redis.Redis.from_url(valkey.url) as admin:
        admin.zadd("tm:i:all", {"a" * 48: 1.0})
        file = tmp_path / "backup.jsonl.zst"
        exported = json.loads(run("export", str(file), "--json").stdout)
        assert (exported["records"], exported["keys"], file.stat().st_mode & 0o777) == (1, 1, 0o600)
        assert not list(tmp_path.glob("*.part"))
        admin.flushall()
        assert run("import", str(file)).stdout.startswith("1 records: 1 added")
        assert admin.zscore("tm:i:all", "a" * 48) == 1.0
        assert json.loads(run("import", str(file), "--json").stdout)["unchanged"] == 1


def test_a_file_that_is_none_is_refused_in_words(run: Run, tmp_path: Path) -> None:
    """With exit code 1; a missing one is a wrong command line."""
    (tmp_path / "other").write_text("no export")
    refused = run("import", str(tmp_path / "other"))
    assert (refused.returncode, "is not complete at byte 0" in refused.stderr) == (1, True)
    assert run("import", str(tmp_path / "missing")).returncode == 2
