"""The command ``tidemark store`` as users run it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from tests.cli.test_terminal_output import in_terminal
from tests.support.waiting import wait_until
from tidemark.store.embedded.server import EmbeddedValkey

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
        command = [sys.executable, "-m", "tidemark", "store", *words]
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
        admin.set("tm:schema", 99)
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


LISTS = 20_000
"""Keys of a store whose export and import take seconds."""
SOME = 100
"""Keys that show that an import has begun."""


@pytest.fixture
def large(valkey: EmbeddedValkey) -> Iterator[redis.Redis]:
    """A store with many lists of conversations, and a connection to it."""
    with redis.Redis.from_url(valkey.url) as admin:
        batch = admin.pipeline(transaction=False)
        for number in range(LISTS):
            batch.zadd(f"tm:i:{number:048x}", {f"{member:048x}": 1.0 for member in range(number, number + 4)})
        batch.execute()
        yield admin


@contextmanager
def interrupted(valkey: EmbeddedValkey, folder: Path, begun: Callable[[], bool], *words: str) -> Iterator[str]:
    """Press Ctrl-C while the store keeps a command waiting in the midst of its work; yield what it says.

    :param begun: whether the command has come as far as it should
    """
    environ = {"HOME": str(folder), "TIDEMARK_STORE_URL": valkey.url}
    command = [sys.executable, "-m", "tidemark", "store", *words]
    with redis.Redis.from_url(valkey.url) as admin:
        server = int(admin.info("server")["process_id"])
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: begun() or process.poll() is not None)
        assert process.poll() is None, process.communicate()
        os.kill(server, signal.SIGSTOP)
        try:
            process.send_signal(signal.SIGINT)
            said, error = process.communicate(timeout=50)
        finally:
            os.kill(server, signal.SIGCONT)
        assert process.returncode == 130, error
        assert (said, "Traceback" in error) == ("", False), error
        yield error


def test_ctrl_c_in_an_export_leaves_the_file_alone_and_the_same_command_goes_on(
    run: Run, large: redis.Redis, valkey: EmbeddedValkey, tmp_path: Path
) -> None:
    """An earlier backup of that name stays whole until the new one is."""
    file, part = tmp_path / "backup.zst", tmp_path / "backup.zst.part"
    file.write_text("the earlier backup")
    begun = lambda: part.exists() and part.stat().st_size > 0  # noqa: E731 - reads as the condition that it is
    with interrupted(valkey, tmp_path, begun, "export", str(file)) as error:
        assert error == f"tidemark: interrupted. {part} has what was exported; the same command goes on with it.\n"
    assert file.read_text() == "the earlier backup"
    assert part.exists()
    done = json.loads(run("export", str(file), "--json").stdout)
    assert done["records"] == LISTS
    assert not part.exists()
    large.flushall()
    assert json.loads(run("import", str(file), "--json").stdout)["added"] == done["records"]


def test_ctrl_c_in_an_import_keeps_what_was_imported_and_the_same_command_goes_on(
    run: Run, large: redis.Redis, valkey: EmbeddedValkey, tmp_path: Path
) -> None:
    """Each record is whole, or is not there yet."""
    file = tmp_path / "backup.zst"
    assert run("export", str(file)).returncode == 0
    large.flushall()
    begun = lambda: len(list(large.scan_iter("tm:i:*", count=1000))) >= SOME  # noqa: E731 - reads as the condition that it is
    with interrupted(valkey, tmp_path, begun, "import", str(file)) as error:
        assert error == "tidemark: interrupted. What was imported stays; the same command goes on after it.\n"
    names = list(large.scan_iter("tm:i:*", count=1000))
    assert SOME <= len(names) <= LISTS
    assert {large.zcard(name) for name in names} == {4}
    assert run("import", str(file)).returncode == 0
    assert len(list(large.scan_iter("tm:i:*", count=1000))) == LISTS


def test_ctrl_c_in_a_check_changes_nothing(valkey: EmbeddedValkey, large: redis.Redis, tmp_path: Path) -> None:
    """And the command says so."""
    begun = lambda: int(large.info("commandstats").get("cmdstat_scan", {}).get("calls", 0)) > 0  # noqa: E731
    with interrupted(valkey, tmp_path, begun, "check") as error:
        assert error == "tidemark: interrupted. Nothing was changed; the command begins anew.\n"
    assert len(list(large.scan_iter("tm:i:*", count=1000))) == LISTS
    assert list(large.scan_iter("tm:aside*", count=1000)) == []


@pytest.mark.parametrize("shown", [("check", "examining"), ("export", "exporting"), ("import", "importing")])
def test_long_work_shows_a_bar_on_a_terminal_only(
    run: Run, large: redis.Redis, valkey: EmbeddedValkey, tmp_path: Path, shown: tuple[str, str]
) -> None:
    """Neither a pipe nor JSON gets one."""
    work, label = shown
    file = tmp_path / "backup.zst"
    assert run("export", str(file)).returncode == 0
    words = (work,) if work == "check" else (work, str(file))
    own = {"HOME": str(tmp_path), "TIDEMARK_STORE_URL": valkey.url}
    code, written = in_terminal("store", *words, given=b"", **own)
    assert (code, label in written) == (0, True), written
    code, written = in_terminal("store", *words, "--json", given=b"", **own)
    assert (code, label in written, "\x1b" in written) == (0, False, False)
    assert isinstance(json.loads(written), dict)
    piped = run(*words)
    assert (piped.returncode, piped.stderr) == (0, "")
    assert label not in piped.stdout
    assert large.dbsize() >= LISTS
