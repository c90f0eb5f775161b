"""One pipelined connection to a server. It stands in for redis-py, if the store's URL is a plain one.

Every call of a worker goes over it, and no call waits for the answer of another one. The adapter is above, the
network below; no other module imports hiredis, which packs commands and parses answers in C. A command that finds no
other under way is written at once; all others of one turn of the event loop go out in one write. A server answers in
order, so the n-th answer belongs to the n-th command.

It saves 676,000 of the 1,739,000 instructions that a small request takes with redis-py, 39 %: redis-py checks a
connection out, encodes in Python and reads through streams. ``transport.store: library`` uses redis-py instead
(``docs/adr/0008-a-line-to-the-store.md``).
"""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from typing import Any, cast

import hiredis

from tidemark import __version__
from tidemark.core.frozen import frozen

CONNECT_SECONDS = 1.5
"""For socket and handshake. Calls that wait for it end earlier; this bounds the attempt that they leave behind. TCP
sends its first packet again after one second and then after two more, so a longer attempt would notice later that the
network is back."""
_NO_LINGER = struct.pack("ii", 1, 0)
"""``struct linger``: closing the connection drops bytes that are not sent yet (socket(7))."""
OUTAGES = ("CLUSTERDOWN", "LOADING", "MASTERDOWN", "NOAUTH", "WRONGPASS")
"""First words of errors that the next calls would get as well (redis-py treats them as a lost connection)."""
_INCOMPLETE = object()
_ASKING = b"*1\r\n$6\r\nASKING\r\n"

Argument = str | bytes | float


@frozen
class StoreServer:
    """The address of a server and its login: either ``path`` or ``host`` and ``port``."""

    path: str | None = None
    host: str = "localhost"
    port: int = 6379
    db: int = 0
    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"Server({self.path or f'{self.host}:{self.port}'}, db={self.db})"

    def handshake(self) -> list[tuple[Argument, ...]]:
        """Return the first commands on a new connection, which the server must accept."""
        has_login = self.username or self.password  # a user of an access list may need no password
        login = ("AUTH", self.username or "default", self.password or "") if has_login else ()
        hello = ("HELLO", 3, *login, "SETNAME", client_name())
        return [hello, ("SELECT", self.db)] if self.db else [hello]


_LIBRARY = (("CLIENT", "SETINFO", "LIB-NAME", "tidemark"), ("CLIENT", "SETINFO", "LIB-VER", __version__))
"""Tells ``CLIENT LIST`` what is connected. Redis has it from 7.2 on, and a user may lack the right, so a refusal means
nothing."""


def client_name() -> str:
    """Return the name by which ``CLIENT LIST`` tells an operator who is connected: machine and process."""
    machine = "".join(letter for letter in socket.gethostname() if letter.isascii() and letter.isprintable())
    return f"tidemark-{machine.replace(' ', '-')}-{os.getpid()}"


class CommandRefused(Exception):
    """The server answered a command with an error."""


class UnknownScript(CommandRefused):
    """``NOSCRIPT``: the server does not know a script by this name."""


_ERRORS = (CommandRefused, OSError)
"""The server's errors, which the parser returns as values."""
_PUSH = hiredis.PushNotification


class PipelinedConnection:
    """The connection to a server, opened at the first call and again after a loss.

    Belongs to the event loop that uses it first. Mutable: the socket in use, the one that is being opened, and whether
    the connection is closed for good.
    """

    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self._socket: StoreSocket | None = None
        self._opening: asyncio.Task[StoreSocket] | None = None
        self._closed = False

    def call(self, *command: Argument) -> Coroutine[Any, Any, Any]:
        """Send one command and wait for its answer.

        A command whose connection is lost is sent once more, because a restart of the server may have closed it. The
        server may have run it before that, so running a command twice must do no harm. Scripts that give an entry or a
        lease away record its taker (``flush_read.lua``, ``take_lease.lua``, ``begin_turn.lua``). ``flush_claim.lua``
        does not: entries that it took over wait for the next claim. A counter may count twice, of attempts too, and a
        deletion may find nothing the second time.

        :raises CommandRefused: the server answered with an error
        :raises OSError: the server is away, or not ready
        """
        return self._call(hiredis.pack_command(command))  # type: ignore[arg-type]  # its stub says a tuple of one

    async def call_large(self, *command: Argument) -> Any:
        return await self._call(await asyncio.to_thread(pack_large, command))

    def call_asking(self, *command: Argument) -> Coroutine[Any, Any, Any]:
        """Send ``ASKING`` and a command, one directly behind the other: the first holds for the second one only."""
        return self._call(hiredis.pack_command(command), is_asking=True)  # type: ignore[arg-type]  # the same

    async def _call(self, data: bytes, *, is_asking: bool = False) -> Any:
        connected = self._socket if self._socket is not None and self._socket.is_usable else None
        while True:
            fresh = connected is None
            if connected is None:
                connected = await self._open()
            try:
                if is_asking:
                    connected.send(_ASKING).add_done_callback(_ignore)
                answer = await connected.send(data)
            except asyncio.CancelledError:
                # The caller gave up, or its time is over. A server may hang, so the next call gets a new connection.
                self._replace(connected)
                raise
            except _LostError:
                if fresh:
                    raise
                connected = None
            else:
                if isinstance(answer, _ERRORS):
                    raise answer
                return answer

    async def aclose(self) -> None:
        """Close the connection for good; calls that still wait for an answer fail."""
        self._closed = True  # else a waiting call would open the next one
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.gather(self._opening, return_exceptions=True)
        if self._socket is not None:
            self._socket.abandon()
            self._socket = None

    def _replace(self, connected: StoreSocket) -> None:
        if self._socket is connected:
            self._socket = None
        connected.retire()

    async def _open(self) -> StoreSocket:
        """Return a usable socket; of several callers, the first opens it and the others wait for the same one."""
        if self._closed:
            raise ConnectionError(f"{self._server}: closed on our side")
        if self._socket is not None and self._socket.is_usable:
            return self._socket
        if self._opening is None:
            self._opening = asyncio.create_task(self._connect())
            self._opening.add_done_callback(self._on_opened)
        return await asyncio.shield(self._opening)

    def _on_opened(self, task: asyncio.Task[StoreSocket]) -> None:
        self._opening = None
        if not task.cancelled() and task.exception() is None:  # asyncio logs an exception that no code reads
            self._socket = task.result()

    async def _connect(self) -> StoreSocket:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                connected = await self._create_socket()
                try:
                    await _greet(connected, self._server.handshake())
                except BaseException:  # cancelled, too: no other code has the half-open socket
                    connected.abandon()
                    raise
        except OSError as error:
            raise ConnectionError(f"{self._server}: {error!r}") from error
        return connected

    async def _create_socket(self) -> StoreSocket:
        server, loop = self._server, asyncio.get_running_loop()
        if server.path is not None:
            return (await loop.create_unix_connection(StoreSocket, server.path))[1]
        return (await loop.create_connection(StoreSocket, server.host, server.port))[1]


def pack(command: Sequence[Argument]) -> bytes:
    """Pack a command (RESP, "Sending commands")."""
    packed: bytes = hiredis.pack_command(tuple(command))  # type: ignore[arg-type]  # its stub says a tuple of one
    return packed


def pack_large(command: Sequence[Argument]) -> bytes:
    """Pack a command to the same bytes as hiredis does (RESP, "Sending commands"), copying once and not three times."""
    pieces = [b"*%d\r\n" % len(command)]
    for argument in command:
        encoded = argument if isinstance(argument, bytes) else str(argument).encode()
        pieces += (b"$%d\r\n" % len(encoded), encoded, b"\r\n")
    return b"".join(pieces)


class _LostError(ConnectionError):
    """The connection broke before the answer came."""


class StoreSocket(asyncio.Protocol):
    """One open socket. Mutable: commands that wait to be written, and the futures of their answers, in order."""

    def __init__(self) -> None:
        self.is_usable = False
        self._answers: deque[asyncio.Future[Any]] = deque()
        self._unwritten: list[bytes] = []
        self._reader = hiredis.Reader(protocolError=_LostError, replyError=_error, notEnoughData=_INCOMPLETE)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    def send(self, data: bytes) -> asyncio.Future[Any]:
        """Write a packed command, and return the future of its answer; a server's error comes as a value."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self._transport is None or not self.is_usable:
            answer.set_exception(_LostError("The connection is closed."))
        else:
            alone = not self._answers
            self._answers.append(answer)
            if alone:
                self._write(data)  # a turn of the loop earlier: there is no other command to join
            else:
                self._unwritten.append(data)
                if len(self._unwritten) == 1:
                    self._loop.call_soon(self._flush)
        return answer

    def _flush(self) -> None:
        """Write the commands of this turn of the loop in one piece."""
        unwritten, self._unwritten = self._unwritten, []
        self._write(unwritten[0] if len(unwritten) == 1 else b"".join(unwritten))

    def _write(self, data: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():  # uvloop's raises if it is closed
            self._transport.write(data)

    def retire(self) -> None:
        """Take no more commands; close when no call waits for an answer any more."""
        self.is_usable = False
        if all(answer.done() for answer in self._answers):
            self.abandon()

    def abandon(self) -> None:
        """Close at once. A command that was given up, and waits for a broken network, is then never sent."""
        self.is_usable = False
        if self._transport is not None and not self._transport.is_closing():
            sock = self._transport.get_extra_info("socket")
            if sock is not None and sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it
        self.is_usable = True
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop: hand out the answers that are complete."""
        reader, answers = self._reader, self._answers
        try:
            reader.feed(data)
            while (answer := reader.gets()) is not _INCOMPLETE:
                if isinstance(answer, _PUSH):
                    continue
                future = answers.popleft()
                if not future.done():
                    future.set_result(answer)
        except (_LostError, IndexError, TypeError):  # this is not RESP3, or a map of lists, which no command answers
            self.abandon()
        if not self.is_usable and not answers:
            self.abandon()

    def connection_lost(self, error: Exception | None) -> None:
        self.is_usable = False
        while self._answers:
            future = self._answers.popleft()
            if not future.done():
                future.set_exception(_LostError(f"The connection broke: {error}"))


def _ignore(answer: asyncio.Future[Any]) -> None:
    """Read an answer that nobody waits for: asyncio logs an exception that no code reads."""
    if not answer.cancelled():
        answer.exception()


async def _greet(connected: StoreSocket, commands: Iterable[tuple[Argument, ...]]) -> None:
    """Send the first commands, all before any answer; raises ``OSError`` if a necessary one is refused."""
    answers = [connected.send(pack(command)) for command in commands]
    beside = [connected.send(pack(command)) for command in _LIBRARY]
    for answer in (await asyncio.gather(*answers, *beside))[: len(answers)]:
        if isinstance(answer, Exception):
            raise ConnectionError(str(answer)) from answer


def _error(message: str) -> Exception:
    """Return the server's error as a value."""
    word = message.partition(" ")[0]
    if word == "NOSCRIPT":
        return UnknownScript(message)
    return ConnectionError(message) if word in OUTAGES else CommandRefused(message)
