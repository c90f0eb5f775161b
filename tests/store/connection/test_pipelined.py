"""A line of our own to the server: answers find their callers, and a lost or hanging server is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import socket
from collections.abc import AsyncIterator
from pathlib import Path
from types import MethodType
from typing import cast

import hiredis
import pytest
import redis
import uvloop
from redis.asyncio import Redis

from tests.store.turns import Client, dialogue
from tests.support.waiting import settled, until
from tidemark import __version__
from tidemark.core.errors import StoreUnavailable
from tidemark.store.codec import Codec
from tidemark.store.connection.client import connect
from tidemark.store.connection.pipelined import (
    CommandRefused,
    PipelinedConnection,
    StoreServer,
    UnknownScript,
    pack_large,
)
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey


class Scripted:
    """A server that answers each connection as it is told, and keeps what it was sent."""

    def __init__(self, *answers: bytes | None) -> None:
        self.received: list[bytes] = []
        self.connections = 0
        self._answers = list(answers)

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one connection: the handshake, then each piece that comes with the next answer; None hangs up."""
        self.connections += 1
        with contextlib.closing(writer):
            await self._answer(reader, writer)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(f"{__version__}\r\n".encode())
        writer.write(b"%0\r\n+OK\r\n+OK\r\n")  # HELLO and twice CLIENT SETINFO
        while piece := await reader.read(65_536):
            self.received.append(piece)
            answer = self._answers.pop(0) if self._answers else b"+OK\r\n"
            if answer is None:
                break
            writer.write(answer)


@contextlib.asynccontextmanager
async def serving(script: Scripted, folder: Path) -> AsyncIterator[PipelinedConnection]:
    """A line to a scripted server."""
    server = await asyncio.start_unix_server(script, folder / "s")
    line = PipelinedConnection(StoreServer(path=str(folder / "s")))
    try:
        yield line
    finally:
        await line.aclose()
        server.close()
        await settled()


@pytest.fixture
def socket_path(server: EmbeddedValkey) -> str:
    """Where the real server listens."""
    return server.url.removeprefix("unix://")


async def test_of_many_callers_at_once_each_gets_its_own_answer(socket_path: str) -> None:
    """Large and small answers, errors and nothing come back in the order of the commands, over one connection."""
    line = PipelinedConnection(StoreServer(path=socket_path))
    await line.call("SET", "line:large", b"x" * 300_000)

    async def asked(number: int) -> bool:
        if number % 7 == 0:
            return len(await line.call("GET", "line:large")) == 300_000
        if number % 7 == 1:
            with pytest.raises(CommandRefused):
                await line.call("NONSENSE", number)
            return True
        if number % 7 == 2:
            return await line.call("GET", "line:nobody") is None
        return bool(await line.call("ECHO", f"{number}") == str(number).encode())

    assert all(await asyncio.gather(*(asked(number) for number in range(2000))))
    clients = await line.call("CLIENT", "LIST")
    assert clients.decode().count("cmd=client") == 1
    await line.aclose()


async def test_commands_of_one_moment_leave_together(tmp_path: Path) -> None:
    """One write for a hundred callers: the server reads far fewer pieces than commands."""
    script = Scripted(b"+OK\r\n" * 100)
    async with serving(script, tmp_path) as line:
        assert await asyncio.gather(*(line.call("PING") for _ in range(100))) == [b"OK"] * 100
        assert script.received == [b"*1\r\n$4\r\nPING\r\n" * 100]


async def test_answers_in_pieces_and_pushes_between_them_are_read(tmp_path: Path) -> None:
    """The bytes may end anywhere; what a server says unasked is nobody's answer."""
    script = Scripted(b">2\r\n$4\r\nnews\r\n$1\r\nx\r\n$6\r\nwho", b"le!\r\n+OK\r\n")
    async with serving(script, tmp_path) as line:
        waiting = asyncio.create_task(line.call("GET", "a"))
        await until(lambda: script.received)
        await settled()
        assert not waiting.done()
        second = asyncio.create_task(line.call("GET", "b"))
        assert await asyncio.gather(waiting, second) == [b"whole!", b"OK"]  # type: ignore[comparison-overlap]


async def test_a_connection_lost_while_an_answer_is_waited_for_is_replaced(tmp_path: Path) -> None:
    """The command is repeated, and bears it: nobody who waited hears of a restart."""
    script = Scripted(b"+OK\r\n", None)
    async with serving(script, tmp_path) as line:
        assert await line.call("PING") == b"OK"
        assert await line.call("PING") == b"OK"
        assert script.connections == 2


async def test_a_server_that_hangs_up_on_everybody_is_an_outage(tmp_path: Path) -> None:
    """Once more, and no more than that."""
    script = Scripted(b"+OK\r\n", None, None, None, None)
    async with serving(script, tmp_path) as line:
        assert await line.call("PING") == b"OK"
        with pytest.raises(ConnectionError):
            await line.call("PING")
        assert script.connections == 2


async def test_what_is_no_answer_is_an_outage(tmp_path: Path) -> None:
    """Bytes of another protocol, a map with a list as a key, and answers that nobody asked for."""
    for answer in (b"HTTP/1.1 400 Bad Request\r\n\r\n", b"%1\r\n*1\r\n:1\r\n+a\r\n"):
        async with serving(Scripted(answer, answer), tmp_path) as line:
            with pytest.raises(ConnectionError):
                await line.call("PING")
    script = Scripted(b"+OK\r\n+OK\r\n")
    async with serving(script, tmp_path) as line:
        assert await line.call("PING") == b"OK"
        assert await line.call("PING") == b"OK"
        assert script.connections == 2


async def test_a_slow_server_keeps_nobody_else_waiting_on_the_next_connection(short_folder: Path) -> None:
    """A call that is given up takes the next ones to a new connection, and no late answer is taken for another's."""
    with EmbeddedValkey(short_folder) as server:
        line = PipelinedConnection(StoreServer(path=server.url.removeprefix("unix://")))
        assert await line.call("ECHO", "before") == b"before"
        blocked = asyncio.create_task(line.call("BLPOP", "nothing", 0))
        await settled()
        behind = asyncio.create_task(line.call("ECHO", "behind"))
        await settled()
        blocked.cancel()
        assert await asyncio.wait_for(line.call("ECHO", "after"), 5) == b"after"
        assert not behind.done()
        await line.call("RPUSH", "nothing", "at last")
        assert await asyncio.wait_for(behind, 5) == b"behind"
        assert await line.call("LLEN", "nothing") == 0

        async def is_closed() -> bool:
            return b"cmd=echo" not in await line.call("CLIENT", "LIST")

        await until(is_closed)  # what nobody waits for any more
        await line.aclose()


async def recall_at_last(client: Client) -> None:
    """Recall until the store answers: on a busy machine, it may miss so short a time."""

    async def is_there() -> bool:
        with contextlib.suppress(StoreUnavailable):
            await client.recall(dialogue(2))
            return True
        return False

    await until(is_there, 60)


async def test_a_server_that_stands_still_is_told_in_time_and_used_again(short_folder: Path) -> None:
    """It is there and says nothing: every call ends by its own patience."""
    with EmbeddedValkey(short_folder) as server:
        store = RedisStore(server.url, Codec(), ttl_seconds=None, recall_timeout_seconds=0.2)
        client = Client(store, "ab")
        await recall_at_last(client)
        pid = (await store.ask("INFO", "server")).decode().partition("process_id:")[2].split()[0]
        os.kill(int(pid), signal.SIGSTOP)
        try:
            with pytest.raises(StoreUnavailable):
                await client.recall(dialogue(2))
        finally:
            os.kill(int(pid), signal.SIGCONT)
        await recall_at_last(client)
        await store.close()


async def test_who_waits_when_the_line_is_closed_opens_no_other(tmp_path: Path) -> None:
    """The call ends, and nothing is left behind that nobody would close."""
    script = Scripted(b"+OK\r\n", b"")
    async with serving(script, tmp_path) as line:
        assert await line.call("PING") == b"OK"
        waiting = asyncio.create_task(line.call("PING"))
        await until(lambda: len(script.received) == 2)
        await line.aclose()
        with pytest.raises(ConnectionError):
            await asyncio.wait_for(waiting, 5)
        with pytest.raises(ConnectionError):
            await line.call("PING")
        assert script.connections == 1


def test_a_connection_that_breaks_before_a_command_is_out_is_no_error_of_ours(tmp_path: Path) -> None:
    """The command goes over the next one. uvloop raises where something is written to a closed transport."""
    told: list[object] = []

    async def asked() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(context))
        async with serving(Scripted(), tmp_path) as line:
            assert await line.call("PING") == b"OK"
            wire = line._socket  # noqa: SLF001 - the moment cannot be met from outside
            assert wire is not None
            waiting = asyncio.create_task(line.call("PING"))
            assert wire._transport is not None  # noqa: SLF001
            wire._transport.abort()  # noqa: SLF001
            assert await waiting == b"OK"
            await settled()

    uvloop.run(asked())
    assert told == []


async def test_a_password_and_a_database_are_given_at_the_beginning(socket_path: str) -> None:
    """As the URL says; without the right one there is no store, and the message holds no password."""
    line = PipelinedConnection(StoreServer(path=socket_path))
    await line.call("ACL", "SETUSER", "guarded", "on", ">s3cret", "~*", "+@all")
    second = PipelinedConnection(StoreServer(path=socket_path, username="guarded", password="s3cret", db=2))
    await second.call("SET", "here", 1)
    assert await second.call("ACL", "WHOAMI") == b"guarded"
    assert await second.call("DBSIZE") == 1
    assert await line.call("GET", "here") is None
    wrong = PipelinedConnection(StoreServer(path=socket_path, username="guarded", password="wr0ng"))
    with pytest.raises(ConnectionError) as told:
        await wrong.call("PING")
    assert "wr0ng" not in str(told.value)
    for one in (line, second, wrong):
        await one.aclose()


async def test_a_user_without_a_password_is_not_taken_for_the_default_one(socket_path: str) -> None:
    """The URL names who it is; the access list lets it in as that."""
    line = PipelinedConnection(StoreServer(path=socket_path))
    await line.call("ACL", "SETUSER", "open", "on", "nopass", "~*", "+@all")
    second = connect(f"unix://open@{socket_path}")
    assert isinstance(second, PipelinedConnection)
    assert await second.call("ACL", "WHOAMI") == b"open"
    for one in (line, second):
        await one.aclose()


async def test_a_script_that_is_not_known_is_told_apart(socket_path: str) -> None:
    """The adapter then sends the source."""
    line = PipelinedConnection(StoreServer(path=socket_path))
    with pytest.raises(UnknownScript):
        await line.call("EVALSHA", "0" * 40, 0)
    await line.aclose()


@pytest.mark.parametrize(
    ("url", "kind"),
    [
        ("redis://localhost", PipelinedConnection),
        ("redis://me:pw@host:7000/3", PipelinedConnection),
        ("unix:///run/valkey.sock?db=1", PipelinedConnection),
        ("rediss://host", Redis),
        ("redis://host?health_check_interval=5", Redis),
    ],
)
async def test_plain_addresses_only_are_spoken_to_by_a_line(url: str, kind: type) -> None:
    """TLS and options are redis-py's."""
    carrier = connect(url)
    assert isinstance(cast("MethodType", carrier.call).__self__, kind)
    await carrier.aclose()


async def test_the_library_speaks_to_a_plain_address_where_the_switch_says_so() -> None:
    """``transport.store: library``."""
    client = connect("unix:///run/valkey.sock?db=1", library=True)
    assert isinstance(cast("MethodType", client.call).__self__, Redis)
    await client.aclose()


@pytest.mark.parametrize(
    ("library", "lib"),
    [(False, ("tidemark", __version__)), (True, (f"redis-py(tidemark_v{__version__})", redis.__version__))],
    ids=["own", "redis-py"],
)
async def test_an_operator_sees_who_is_connected(socket_path: str, *, library: bool, lib: tuple[str, str]) -> None:
    """Name, library and version in ``CLIENT LIST``: machine and process by the name, Tidemark by the library.

    Servers have a place for the library from Redis 7.2 on.
    """
    admin, client = (
        PipelinedConnection(StoreServer(path=socket_path)),
        connect(f"unix://{socket_path}", library=library),
    )
    try:
        line = await client.call("CLIENT", "INFO")
        facts = dict(fact.split("=", 1) for fact in (line if isinstance(line, str) else line.decode()).split())
        assert facts["name"] == f"tidemark-{socket.gethostname()}-{os.getpid()}"
        version = re.search(rb"redis_version:(\d+)\.(\d+)", await admin.call("INFO", "server"))
        assert version is not None
        has_place = tuple(map(int, version.groups())) >= (7, 2)
        assert (facts.get("lib-name"), facts.get("lib-ver")) == (lib if has_place else (None, None))
    finally:
        await client.aclose()
        await admin.aclose()


@pytest.mark.parametrize("library", [False, True], ids=["own", "redis-py"])
async def test_a_user_without_the_right_to_say_so_is_served(socket_path: str, *, library: bool) -> None:
    """As one of Redis before 7.2, which does not know ``CLIENT SETINFO``."""
    admin = PipelinedConnection(StoreServer(path=socket_path))
    await admin.call("ACL", "SETUSER", "silent", "on", ">s3cret", "~*", "+@all", "-client")
    client = connect(f"unix://silent:s3cret@{socket_path}?db=1", library=library)
    try:
        assert await client.call("SET", "silent", 1) in (b"OK", True)
        (line,) = [line for line in (await admin.call("CLIENT", "LIST")).splitlines() if b"user=silent" in line]
        assert (b"lib-name=tidemark" in line, b"db=1" in line) == (False, True)
    finally:
        await client.aclose()
        await admin.aclose()


def test_a_server_shows_no_password() -> None:
    """Its repr goes into errors."""
    assert "pw" not in repr(StoreServer(host="host", username="me", password="pw"))


def test_a_large_command_is_packed_as_any_other() -> None:
    """Texts, numbers and bytes; what hiredis makes of them is the measure."""
    command = ("EVALSHA", "é" * 300, 1, 1700000000.25, -3, b"", b"\r\n\x00" * 5_000)
    assert pack_large(command) == hiredis.pack_command(command)  # type: ignore[arg-type]
