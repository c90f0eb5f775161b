"""Real Valkeys with one fault each, as operators meet them; TLS is ended before a server that has none itself."""

from __future__ import annotations

import contextlib
import select
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from tests.support.certificates import Authority
from tests.support.clusters import Valkey, free_ports, running_cluster

FaultyStore = Callable[[Path], AbstractContextManager[str]]
"""Runs a store with a fault while the block runs, and yields its address."""
PASSWORD = "right-4711"
FRESH = ("--save", "", "--appendonly", "no")


@contextlib.contextmanager
def valkey(folder: Path, *options: str) -> Iterator[Valkey]:
    """A Valkey on a port of its own."""
    (port,) = free_ports(1)
    running = Valkey(folder, port, [*FRESH, *options])
    try:
        yield running
    finally:
        running.end()


@contextlib.contextmanager
def wrong_password(folder: Path) -> Iterator[str]:
    """The address has another password than the server's user."""
    with valkey(folder, "--user", "ada", "on", f">{PASSWORD}", "~*", "+@all") as server:
        yield f"redis://ada:wrong-0815@127.0.0.1:{server.port}/0"


@contextlib.contextmanager
def no_password(folder: Path) -> Iterator[str]:
    """The server wants a password, and the address has none."""
    with valkey(folder) as server:
        server.say("CONFIG", "SET", "requirepass", PASSWORD)
        yield f"redis://127.0.0.1:{server.port}/0"


@contextlib.contextmanager
def replica(folder: Path) -> Iterator[str]:
    """The address names a read-only replica, whose primary is elsewhere."""
    with valkey(folder / "primary") as primary, valkey(folder / "replica") as server:
        server.say("REPLICAOF", "127.0.0.1", primary.port)
        yield f"redis://127.0.0.1:{server.port}/0"


@contextlib.contextmanager
def full(folder: Path) -> Iterator[str]:
    """The server's memory is full, and it evicts nothing."""
    with valkey(folder, "--maxmemory", "1", "--maxmemory-policy", "noeviction") as server:
        yield f"redis://127.0.0.1:{server.port}/0"


@contextlib.contextmanager
def of_newer_schema(folder: Path) -> Iterator[str]:
    """A newer version of Tidemark wrote it."""
    with valkey(folder) as server:
        server.say("SET", "tm:schema", "99")
        yield f"redis://127.0.0.1:{server.port}/0"


@contextlib.contextmanager
def without_rights(folder: Path) -> Iterator[str]:
    """The user may read everything, and write nothing."""
    rights = ["--user", "ada", "on", f">{PASSWORD}", "~*", "+@all", "-@write"]
    with valkey(folder, *rights) as server:
        yield f"redis://ada:{PASSWORD}@127.0.0.1:{server.port}/0"


@contextlib.contextmanager
def with_uncovered_slot(folder: Path) -> Iterator[str]:
    """A cluster that serves all slots but one, which no server has."""
    with running_cluster(folder, primaries=1, options=["--cluster-require-full-coverage", "no"]) as cluster:
        cluster.nodes[0].say("CLUSTER", "DELSLOTS", 12_345)
        yield cluster.url()


@contextlib.contextmanager
def covered_by_half(folder: Path) -> Iterator[str]:
    """A cluster that serves the lower half of the slots."""
    with running_cluster(folder, primaries=1, options=["--cluster-require-full-coverage", "no"]) as cluster:
        cluster.nodes[0].say("CLUSTER", "DELSLOTSRANGE", 8192, 16_383)
        yield cluster.url()


@contextlib.contextmanager
def of_another_name(folder: Path) -> Iterator[str]:
    """Its certificate is for another name than the address has."""
    with _behind_tls(folder, "store.example") as (port, authority):
        yield f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority}"


@contextlib.contextmanager
def of_unknown_authority(folder: Path) -> Iterator[str]:
    """The address names no CA, and the system knows none that signed the certificate."""
    with _behind_tls(folder, "127.0.0.1") as (port, _):
        yield f"rediss://127.0.0.1:{port}/0"


@contextlib.contextmanager
def without_tls(folder: Path) -> Iterator[str]:
    """The address wants TLS, and the server speaks none."""
    with valkey(folder) as server:
        yield f"rediss://127.0.0.1:{server.port}/0"


@contextlib.contextmanager
def evicting(folder: Path) -> Iterator[str]:
    """A cache: it loses conversations once its memory is full."""
    with valkey(folder, "--maxmemory", "100mb", "--maxmemory-policy", "volatile-lru") as server:
        yield f"redis://127.0.0.1:{server.port}/0"


@contextlib.contextmanager
def over_tls(folder: Path) -> Iterator[str]:
    """A store without a fault, whose certificate is for its address."""
    with _behind_tls(folder, "127.0.0.1") as (port, authority):
        yield f"rediss://127.0.0.1:{port}/0?ssl_ca_certs={authority}"


@contextlib.contextmanager
def _behind_tls(folder: Path, name: str) -> Iterator[tuple[int, Path]]:
    """A Valkey whose TLS a thread ends; yield its port, and the file of the CA that signed its certificate."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = Authority(folder)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server", host=name))
    with valkey(folder / "server") as server, socket.create_server(("127.0.0.1", 0)) as listener:
        threading.Thread(target=_accept, args=(listener, context, server.port), daemon=True).start()
        yield listener.getsockname()[1], authority.file


def _accept(listener: socket.socket, context: ssl.SSLContext, port: int) -> None:
    with contextlib.suppress(OSError):  # the test is over
        while True:
            accepted, _ = listener.accept()
            threading.Thread(target=_carry, args=(accepted, context, port), daemon=True).start()


def _carry(accepted: socket.socket, context: ssl.SSLContext, port: int) -> None:
    """Carry bytes both ways until one side closes."""
    with (
        contextlib.suppress(OSError),
        accepted,
        context.wrap_socket(accepted, server_side=True) as client,
        socket.create_connection(("127.0.0.1", port)) as server,
    ):
        while True:
            ready = [client] if client.pending() else select.select([client, server], [], [])[0]
            for source, target in ((client, server), (server, client)):
                if source in ready:
                    data = source.recv(65_536)
                    if not data:
                        return
                    target.sendall(data)
