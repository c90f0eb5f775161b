"""Damaged files of the embedded store: what is whole is loaded, the rest is kept beside, and it is told."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import redis

from tests.support.waiting import wait_until
from tidemark.core.errors import StoreDamaged
from tidemark.store.embedded.append_only import FOLDER, damage_in, folders_aside
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.embedded.supervision import Supervised
from tidemark.store.embedded.whole_commands import whole_spans

BASE, NEWEST, MANIFEST = "appendonly.aof.2.base.rdb", "appendonly.aof.2.incr.aof", "appendonly.aof.manifest"
TURNS = 200
Change = Callable[[Path], None]


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a base of 50 keys and 200 transactions after it, each of which sets two keys."""
    folder = tmp_path_factory.mktemp("sound") / "store"
    with EmbeddedValkey(folder) as server, redis.Redis.from_url(server.url) as client:
        for number in range(50):
            client.set(f"tm:base{number}", "b" * 300)
        client.bgrewriteaof()
        wait_until(lambda: (folder / FOLDER / BASE).exists() and is_written(client), 30)
        for number in range(TURNS):
            with client.pipeline(transaction=True) as turn:
                turn.set(f"tm:turn{number}", "t" * 100).rpush("tm:list", str(number)).execute()
    return folder


def is_written(client: redis.Redis) -> bool:
    """Whether no snapshot is being written."""
    facts = client.info("persistence")
    return not facts["aof_rewrite_in_progress"]


@pytest.fixture
def folder(sound: Path, short_folder: Path) -> Path:
    """A copy of it that a test may damage."""
    shutil.copytree(sound / FOLDER, short_folder / FOLDER)
    return short_folder


def over(share: float, written: bytes, name: str = NEWEST) -> Change:
    """Write over a part of a file that begins at a share of its length."""

    def change(data: Path) -> None:
        content = bytearray((data / name).read_bytes())
        place = int(share * len(content))
        content[place : place + len(written)] = written
        (data / name).write_bytes(content)

    return change


def added(written: bytes, name: str = NEWEST) -> Change:
    """Append to a file."""

    def change(data: Path) -> None:
        with (data / name).open("ab") as file:
            file.write(written)

    return change


def cut(share: float, name: str = NEWEST) -> Change:
    """Leave the first part of a file."""

    def change(data: Path) -> None:
        content = (data / name).read_bytes()
        (data / name).write_bytes(content[: int(share * len(content))])

    return change


def removed(name: str) -> Change:
    """Delete a file."""
    return lambda data: (data / name).unlink()


def emptied(name: str) -> Change:
    """Leave nothing of a file."""
    return cut(0.0, name)


def replaced(data: Path, old: bytes, new: bytes) -> None:
    """Replace a text in the middle of the increment."""
    content = (data / NEWEST).read_bytes()
    middle = len(content) // 2
    (data / NEWEST).write_bytes(content[:middle] + content[middle:].replace(old, new, 1))


def digests(folder: Path) -> set[str]:
    """The content of all files of data below a folder."""
    files = [path for path in folder.rglob("*") if path.is_file() and (path.suffix in (".rdb", ".aof", ".manifest"))]
    return {hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


CASES: dict[str, tuple[Change, int, int]] = {
    "a zero at the end": (added(b"\0"), 50, TURNS),
    "64 zeros at the end": (added(b"\0" * 64), 50, TURNS),
    "4,096 zeros at the end": (added(b"\0" * 4096), 50, TURNS),
    "half a command and zeros at the end": (added(b"*3\r\n$3\r\nSET\r\n$7\r\ntm:" + b"\0" * 100), 50, TURNS),
    "half a transaction and zeros": (
        added(b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n\0"),
        50,
        TURNS,
    ),
    "a cut end": (cut(0.999), 50, TURNS - 1),
    "a cut half": (cut(0.5), 50, TURNS // 2),
    "a length beyond the end": (lambda data: replaced(data, b"$7\r\ntm:list", b"$999999\r\ntm"), 50, TURNS - 1),
    "a zero byte in the middle of a length": (over(0.5, b"\0" * 20), 50, TURNS - 1),
    "a block of zeros in the middle": (over(0.4, b"\0" * 4096), 50, TURNS - 21),
    "two damaged places": (
        lambda data: (over(0.3, b"\xff" * 150)(data), over(0.7, b"\0" * 150)(data))[0],
        50,
        TURNS - 3,
    ),
    "zeros at the head": (over(0, b"\0" * 30), 50, TURNS - 1),
    "an unknown command": (added(b"*2\r\n$5\r\nSETTT\r\n$1\r\nk\r\n"), 50, TURNS),
    "a command with too few words": (added(b"*2\r\n$3\r\nSET\r\n$1\r\nk\r\n"), 50, TURNS),
    "all zeros": (over(0, b"\0" * 1_000_000), 50, 0),
    "no increment": (removed(NEWEST), 50, 0),
    "no manifest": (removed(MANIFEST), 50, TURNS),
    "an empty manifest": (emptied(MANIFEST), 50, TURNS),
    "a manifest of zeros": (over(0, b"\0" * 200, MANIFEST), 50, TURNS),
    "no base": (removed(BASE), 0, TURNS),
    "an empty base": (emptied(BASE), 0, TURNS),
    "zeros after the base": (added(b"\0" * 64, BASE), 50, TURNS),
}


@pytest.mark.parametrize(("change", "bases", "turns"), CASES.values(), ids=CASES)
def test_what_is_whole_is_loaded_and_nothing_is_deleted(folder: Path, change: Change, bases: int, turns: int) -> None:
    """A transaction is whole or gone; the message names the folder with the files as they were; a restart is quiet."""
    change(folder / FOLDER)
    before, told = digests(folder), list[str]()
    server = EmbeddedValkey(folder, tell=told.append)
    with server, redis.Redis.from_url(server.url) as client:
        assert len(client.keys("tm:base*")) == bases
        assert turns - 3 <= len(client.keys("tm:turn*")) == client.llen("tm:list") <= turns + 3
    (aside,) = folders_aside(folder)
    assert len(told) == 1
    assert str(folder / aside) in told[0]
    assert damage_in(folder / aside) in told[0]
    assert before <= digests(folder)
    with server, redis.Redis.from_url(server.url) as client:
        client.set("tm:new", "1")
    with server, redis.Redis.from_url(server.url) as client:
        assert client.get("tm:new") == b"1"
        assert len(client.keys("tm:base*")) == bases
    assert (len(told), len(folders_aside(folder))) == (1, 1)


def test_an_increment_without_a_command_is_no_damage(folder: Path) -> None:
    """It is so after each snapshot."""
    emptied(NEWEST)(folder / FOLDER)
    with EmbeddedValkey(folder) as server, redis.Redis.from_url(server.url) as client:
        assert len(client.keys("tm:base*")) == 50
    assert folders_aside(folder) == []


@pytest.mark.parametrize("change", [over(0.5, b"\xff" * 20, BASE), cut(0.5, BASE)], ids=["in the middle", "cut"])
def test_a_damaged_snapshot_is_kept_beside(folder: Path, change: Change) -> None:
    """What came after it is loaded."""
    change(folder / FOLDER)
    before, told = digests(folder), list[str]()
    with EmbeddedValkey(folder, tell=told.append) as server, redis.Redis.from_url(server.url) as client:
        assert len(client.keys("tm:turn*")) == TURNS
    assert len(told) == len(folders_aside(folder)) == 1
    assert before <= digests(folder)


def test_several_damaged_increments_are_mended_at_once(folder: Path) -> None:
    """A snapshot that failed leaves more than one, and only a cut end of the last is the server's own to mend."""
    data = folder / FOLDER
    third = "appendonly.aof.3.incr.aof"
    (data / third).write_bytes(b"*3\r\n$3\r\nSET\r\n$7\r\ntm:late\r\n$1\r\n1\r\n" + b"\0" * 10)
    with (data / MANIFEST).open("a") as manifest:
        manifest.write(f"file {third} seq 3 type i\n")
    cut(0.999)(data)
    told: list[str] = []
    with EmbeddedValkey(folder, tell=told.append) as server, redis.Redis.from_url(server.url) as client:
        assert client.get("tm:late") == b"1"
        assert len(client.keys("tm:turn*")) == TURNS - 1
    assert NEWEST in told[0]
    assert third in told[0]


def test_without_a_mend_the_files_stay_as_they_are(folder: Path) -> None:
    """Other commands than ``serve`` and the repair say what to run, and change nothing."""
    for change in (added(b"\0" * 64), removed(MANIFEST)):
        change(folder / FOLDER)
        before = digests(folder)
        with pytest.raises(StoreDamaged, match="store check --repair"):
            EmbeddedValkey(folder).start()
        assert digests(folder) == before
    assert folders_aside(folder) == []


def test_a_server_that_cannot_start_does_not_end_the_command(short_folder: Path) -> None:
    """Requests work without the store; it is tried again, and the reason is told."""
    told: list[str] = []
    with Supervised(EmbeddedValkey(short_folder, options=("--no-such-option", "1")), told.append):
        wait_until(lambda: len(told) >= 3, 30)
    assert "no-such-option" in told[0]
    assert "without the store" in told[0]
    assert "is started again" in told[1]


def test_files_that_cannot_be_read_do_not_end_the_command(folder: Path) -> None:
    """A folder lies where a file was; requests go on without the store, as for any other start that failed."""
    (folder / FOLDER / NEWEST).unlink()
    (folder / FOLDER / NEWEST).mkdir()
    warnings: list[str] = []
    with Supervised(EmbeddedValkey(folder, tell=warnings.append), warnings.append):
        wait_until(lambda: any("cannot be read" in warning for warning in warnings))


def test_commands_after_damage_inside_a_transaction_are_left_out() -> None:
    """Up to its end: the rest of a transaction is no turn."""
    known = {b"set": -3, b"multi": 1, b"exec": 1}
    multi, end = b"*1\r\n$5\r\nMULTI\r\n", b"*1\r\n$4\r\nEXEC\r\n"
    one = b"*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\n1\r\n"
    damaged = multi + b"\0" * 9 + one + one + end
    assert whole_spans(one + damaged + one, known) == [(0, len(one)), (len(one + damaged), len(one + damaged + one))]
    alone = one + b"\0" * 9 + one + one
    assert whole_spans(alone, known) == [(0, len(one)), (len(one) + 9, len(alone))]
