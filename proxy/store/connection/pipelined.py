"""A line to one server: every call of a worker goes over it, and nobody waits for an answer to send the next command.

Between the adapter and the network, where the store's URL is a plain one; the one door to hiredis. On the road of a
request redis-py's checkout of a connection, its encoders and its streams cost more than all the rest of a call. Here a
command is packed in C. One that finds no other on its way leaves at once; all others that are asked in one turn of the
event loop leave in one write. A server answers in order, so the n-th answer is the n-th command's.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections import deque
from collections.abc import Coroutine, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, cast

import hiredis

CONNECT_SECONDS = 1.5
"""Socket and handshake. Whoever waits for it gives up earlier; this bounds what is left behind. TCP asks for a
connection again after one second and then after two more, so a longer try would notice a network that is back later."""
_AT_ONCE = struct.pack("ii", 1, 0)
"""``struct linger``: what is not sent yet is thrown away when the connection is closed (socket(7))."""
OUTAGES = ("LOADING", "MASTERDOWN", "NOAUTH", "WRONGPASS")
"""First words of errors that every next call would meet as well (redis-py takes them for a lost connection)."""
_INCOMPLETE = object()

Argument = str | bytes | float


@dataclass(frozen=True, slots=True)
class StoreServer:
    """Where a server is, and how to log in. Either ``path`` or ``host`` and ``port``."""

    path: str | None = None
    host: str = "localhost"
    port: int = 6379
    db: int = 0
    username: str | None = None
    password: str | None = None

    def __repr__(self) -> str:
        return f"Server({self.path or f'{self.host}:{self.port}'}, db={self.db})"

    def handshake(self) -> list[tuple[Argument, ...]]:
        """The first commands on a new line."""
        named = self.username or self.password  # a user of an access list may need no password
        login = ("AUTH", self.username or "default", self.password or "") if named else ()
        hello = ("HELLO", 3, *login)
        return [hello, ("SELECT", self.db)] if self.db else [hello]


class CommandRefused(Exception):
    """The server's answer to a command is an error."""


class UnknownScript(CommandRefused):
    """``NOSCRIPT``: the server does not know a script by this name."""


_ERRORS = (CommandRefused, OSError)
"""A server's errors, which come as values."""
_PUSH = hiredis.PushNotification


class PipelinedConnection:
    """The connection to a server, made at the first call and again after a loss.

    Belongs to the event loop that uses it first. State: the wire that is in use, or the one that is being made, and
    whether all is over.
    """

    def __init__(self, server: StoreServer) -> None:
        self._server = server
        self._wire: _Socket | None = None
        self._making: asyncio.Task[_Socket] | None = None
        self._closed = False

    def call(self, *command: Argument) -> Coroutine[Any, Any, Any]:
        """Send one command and wait for its answer.

        Over a wire that is lost meanwhile it is sent once more, for a restart of the server may have closed it. The
        server may have done it before that: each command must bear to be done twice. Those that give something away
        say to whom (``flush_read.lua``, ``take_lease.lua``, ``start_turn.lua``), but for ``flush_claim.lua``: what that
        took over waits for the next claim. What counts may count twice, an attempt among it, and what deletes may find
        nothing the second time.

        :raises Refused: the server answered with an error
        :raises OSError: it is not there, or not ready
        """
        return self._call(hiredis.pack_command(command))  # type: ignore[arg-type]  # its stub says a tuple of one

    async def call_large(self, *command: Argument) -> Any:
        """The same of a command of megabytes, or of thousands of arguments, which is packed in a thread."""
        return await self._call(await asyncio.to_thread(packed, command))

    async def _call(self, packed: bytes) -> Any:
        wire = self._wire if self._wire is not None and self._wire.usable else None
        while True:
            fresh = wire is None
            if wire is None:
                wire = await self._made()
            try:
                answer = await wire.ask(packed)
            except asyncio.CancelledError:
                # Given up, by who asked or because time is over: of a server that hangs, the next ask over a new wire.
                self._doubt(wire)
                raise
            except _LostError:
                if fresh:
                    raise
                wire = None
            else:
                if isinstance(answer, _ERRORS):
                    raise answer
                return answer

    async def aclose(self) -> None:
        """Close the connection for good; whoever still waits for an answer gets none."""
        self._closed = True  # else who waits would open the next one
        if self._making is not None:
            self._making.cancel()
            await asyncio.gather(self._making, return_exceptions=True)
        if self._wire is not None:
            self._wire.abandon()
            self._wire = None

    def _doubt(self, wire: _Socket) -> None:
        if self._wire is wire:
            self._wire = None
        wire.retire()

    async def _made(self) -> _Socket:
        """A usable wire; of several callers, the first makes it and the others wait for the same one."""
        if self._closed:
            raise ConnectionError(f"{self._server}: closed on our side")
        if self._wire is not None and self._wire.usable:
            return self._wire
        if self._making is None:
            self._making = asyncio.create_task(self._make())
            self._making.add_done_callback(self._is_made)
        return await asyncio.shield(self._making)

    def _is_made(self, task: asyncio.Task[_Socket]) -> None:
        self._making = None
        if not task.cancelled() and task.exception() is None:  # asked for, so that nobody is told it was not
            self._wire = task.result()

    async def _make(self) -> _Socket:
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                wire = await self._opened()
                try:
                    await _greeted(wire, self._server.handshake())
                except BaseException:  # cancelled, too: nobody else has the half-made wire
                    wire.abandon()
                    raise
        except OSError as error:
            raise ConnectionError(f"{self._server}: {error!r}") from error
        return wire

    async def _opened(self) -> _Socket:
        server, loop = self._server, asyncio.get_running_loop()
        if server.path is not None:
            return (await loop.create_unix_connection(_Socket, server.path))[1]
        return (await loop.create_connection(_Socket, server.host, server.port))[1]


def packed(command: Sequence[Argument]) -> bytes:
    """The same bytes as hiredis makes of a command (RESP, "Sending commands"), copied once and not three times."""
    pieces = [b"*%d\r\n" % len(command)]
    for one in command:
        written = one if isinstance(one, bytes) else str(one).encode()
        pieces += (b"$%d\r\n" % len(written), written, b"\r\n")
    return b"".join(pieces)


class _LostError(ConnectionError):
    """The connection broke while an answer was waited for."""


class _Socket(asyncio.Protocol):
    """One connection. State: commands on their way out, and the answers that are waited for in their order."""

    def __init__(self) -> None:
        self.usable = False
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._leaving: list[bytes] = []
        self._reader = hiredis.Reader(protocolError=_LostError, replyError=_error, notEnoughData=_INCOMPLETE)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()

    def ask(self, packed: bytes) -> asyncio.Future[Any]:
        """Write a command; the future gets its answer, a server's error as a value."""
        answer: asyncio.Future[Any] = self._loop.create_future()
        if self._transport is None or not self.usable:
            answer.set_exception(_LostError("The connection is closed."))
        else:
            alone = not self._waiting
            self._waiting.append(answer)
            if alone:
                self._write(packed)  # a turn of the loop earlier: there is nobody to go with
            else:
                self._leaving.append(packed)
                if len(self._leaving) == 1:
                    self._loop.call_soon(self._leave)
        return answer

    def _leave(self) -> None:
        """Write what was asked in this turn of the loop, in one piece."""
        packed, self._leaving = self._leaving, []
        self._write(packed[0] if len(packed) == 1 else b"".join(packed))

    def _write(self, packed: bytes) -> None:
        if self._transport is not None and not self._transport.is_closing():  # uvloop's raises where it is closed
            self._transport.write(packed)

    def retire(self) -> None:
        """Take no more commands; close when nobody waits for an answer any more."""
        self.usable = False
        if all(answer.done() for answer in self._waiting):
            self.abandon()

    def abandon(self) -> None:
        """Close at once. A command that was given up and waits for a network that is cut is not sent any more."""
        self.usable = False
        if self._transport is not None and not self._transport.is_closing():
            sock = self._transport.get_extra_info("socket")
            if sock is not None and sock.family != socket.AF_UNIX:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _AT_ONCE)
            self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by the event loop."""
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are no subclass of it
        self.usable = True
        sock = transport.get_extra_info("socket")
        if sock is not None and sock.family != socket.AF_UNIX:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def data_received(self, data: bytes) -> None:
        """Called by the event loop: hand out the answers that are there in full."""
        reader, waiting = self._reader, self._waiting
        try:
            reader.feed(data)
            while (answer := reader.gets()) is not _INCOMPLETE:
                if isinstance(answer, _PUSH):
                    continue
                future = waiting.popleft()
                if not future.done():
                    future.set_result(answer)
        except (_LostError, IndexError):  # no protocol that we know
            self.abandon()
        if not self.usable and not waiting:
            self.abandon()

    def connection_lost(self, error: Exception | None) -> None:
        """Called by the event loop."""
        self.usable = False
        while self._waiting:
            future = self._waiting.popleft()
            if not future.done():
                future.set_exception(_LostError(f"The connection broke: {error}"))


async def _greeted(wire: _Socket, commands: Iterable[tuple[Argument, ...]]) -> None:
    asked = [wire.ask(hiredis.pack_command(command)) for command in commands]  # type: ignore[arg-type]
    for answer in await asyncio.gather(*asked):
        if isinstance(answer, Exception):
            raise ConnectionError(str(answer)) from answer


def _error(message: str) -> Exception:
    """A server's error as a value."""
    word = message.partition(" ")[0]
    if word == "NOSCRIPT":
        return UnknownScript(message)
    return ConnectionError(message) if word in OUTAGES else CommandRefused(message)
