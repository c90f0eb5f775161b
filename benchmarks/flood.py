"""Measures how long one tenant's small requests take while another tenant floods the same worker.

``make bench-flood`` runs it. A process of its own keeps many large requests under way with one key; this process
sends small requests with another key, one after another. Three states take turns: idle, a flood of another Tidemark
beside this one, and a flood of this one. The second state is the machine's own share: clients, upstream and store need
its cores as well. A second table shows where the cores' time went, and how long the event loops waited for a core, by
the kernel's own count. The exit code is 1 where the p99 under the flood is more than ``MOST_RATIO`` times that of the
second state.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing.sharedctypes import Synchronized
from pathlib import Path
from typing import Any

from benchmarks.speed.figures import percentile
from benchmarks.speed.load import HOST
from benchmarks.speed.machine import STORE, family, usage
from benchmarks.speed.systems import TIDEMARK, UPSTREAM, Running, start
from benchmarks.speed.work import CHAT_PATH, WIDE, WORDS

MOST_RATIO = 2.0
STATES = ("idle", "another one flooded", "flooded")
MESSAGE_BYTES = 4_000
"""Of each message of a large request, as an agent's history has them."""
PAUSE_SECONDS = 0.005
"""Between two small requests."""
SETTLE_SECONDS = 1.0
"""Between two states, so that the first one's requests have ended."""
TAG = b"@@@@@@@@@@@@"
"""Stands in each message of a large request, and is replaced: no cache has any of them."""


@dataclass(frozen=True, slots=True)
class Load:
    """What the flood consists of."""

    streams: int
    """Requests at once."""
    kilobytes: int
    """Of each one's body."""
    is_new: bool = True
    """Whether no cache has any of its messages; else all requests are one conversation's."""


@dataclass(slots=True)
class Waits:
    """What small requests took in one state, in milliseconds, and how the flood went."""

    milliseconds: list[float] = field(default_factory=list)
    answered: int = 0
    failed: int = 0
    seconds: float = 0.0
    spent: Counter[str] = field(default_factory=Counter)
    """Milliseconds of processor time by part, and what Tidemark's event loops ran, and waited for a core."""

    @property
    def p50(self) -> float:
        """Return the median."""
        return percentile(self.milliseconds, 0.5)

    @property
    def p99(self) -> float:
        """Return the time that 99 % of the requests did not exceed."""
        return percentile(self.milliseconds, 0.99)


@dataclass(frozen=True, slots=True)
class Parts:
    """The processes whose time is counted."""

    flooded: Running
    """The Tidemark that answers the small requests."""
    other: Running
    upstream: Running

    def spent(self, flood_pid: int | None) -> Counter[str]:
        """Return what each has spent so far, in milliseconds."""
        this, other = usage(self.flooded.pid), usage(self.other.pid)
        loops = [scheduling(pid) for pid in family(self.flooded.pid)]
        return Counter(
            {
                "Tidemark": this.cpu_ms,
                "its store": this.store_ms,
                "the other one": other.cpu_ms + other.store_ms,
                "upstream": usage(self.upstream.pid).cpu_ms,
                "flood": usage(flood_pid).cpu_ms if flood_pid else 0.0,
                "probe": 1000 * time.process_time(),
                "loop ran": sum(ran for ran, _ in loops),
                "loop waited": sum(waited for _, waited in loops),
            }
        )


def scheduling(pid: int) -> tuple[float, float]:
    """Return the milliseconds that a process's main thread ran, and waited for a core; (0, 0) for a store.

    That is ``/proc/PID/task/PID/schedstat`` (Linux, Documentation/scheduler/sched-stats). A worker's event loop runs in
    its main thread.
    """
    if STORE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
        return 0.0, 0.0
    ran, waited, _ = Path(f"/proc/{pid}/task/{pid}/schedstat").read_text(encoding="ascii").split()
    return int(ran) / 1e6, int(waited) / 1e6


def large_body(kilobytes: int) -> bytes:
    """Make a long conversation, with a tag in each message."""
    words = " ".join(WORDS * (MESSAGE_BYTES // 100))[:MESSAGE_BYTES]
    messages = [
        {"role": ("user", "assistant")[place % 2], "content": f"{TAG.decode()} {place} {words}"}
        for place in range(kilobytes * 1000 // MESSAGE_BYTES | 1)
    ]
    return json.dumps({"model": WIDE, "messages": messages}).encode()


def small_body(tag: str) -> bytes:
    """Make a question that no cache has."""
    return json.dumps({"model": WIDE, "messages": [{"role": "user", "content": f"What is {tag}?"}]}).encode()


def encoded(key: str, body: bytes) -> bytes:
    """Make a request with the key of a tenant."""
    lines = f"POST {CHAT_PATH} HTTP/1.1\r\nhost: {HOST}\r\ncontent-type: application/json\r\n"
    return f"{lines}authorization: Bearer {key}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


def status_of(wire: socket.socket, data: bytes) -> int:
    """Send a request, read its whole answer, and return the status; 0 where there is none."""
    wire.sendall(data)
    got = b""
    while b"\r\n\r\n" not in got:
        piece = wire.recv(65_536)
        if not piece:
            return 0
        got += piece
    head, _, body = got.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    missing = int(lengths[0].split(b":")[1]) - len(body)
    while missing > 0:
        piece = wire.recv(65_536)
        if not piece:
            return 0
        missing -= len(piece)
    return int(head.split(b" ", 2)[1])


def flood(port: int, load: Load, over: Any, counts: Sequence[Synchronized[int]]) -> None:
    """Keep so many large requests under way until it is over, and count those that were answered and that failed."""
    template = large_body(load.kilobytes)
    lock = threading.Lock()

    def send(number: int) -> None:
        round_number = 0
        while not over.is_set():
            try:
                with socket.create_connection((HOST, port), timeout=120) as wire:
                    while not over.is_set():
                        tag = b"%04d%08d" % (number, (round_number + time.time_ns() // 1000) % 100_000_000)
                        round_number += 1
                        status = status_of(
                            wire, encoded("flood", template.replace(TAG, tag) if load.is_new else template)
                        )
                        with lock:
                            counts[0 if status == 200 else 1].value += 1
            except OSError:
                with lock:
                    counts[1].value += 1

    threads = [threading.Thread(target=send, args=(number,), daemon=True) for number in range(load.streams)]
    for thread in threads:
        thread.start()
    over.wait()
    for thread in threads:
        thread.join(30)


@contextmanager
def flooding(port: int | None, load: Load, waits: Waits) -> Iterator[int | None]:
    """Flood a port from another process, whose id it gives, and note how its requests went; None floods nothing."""
    if port is None:
        yield None
        return
    context = multiprocessing.get_context("spawn")
    over, counts = context.Event(), (context.Value("i", 0), context.Value("i", 0))
    process = context.Process(target=flood, args=(port, load, over, counts), daemon=True)
    process.start()
    try:
        until = time.monotonic() + 60
        while not counts[0].value and time.monotonic() < until:
            time.sleep(0.05)
        yield process.pid
    finally:
        over.set()
        process.join(60)
        if process.is_alive():
            process.kill()
        waits.answered += counts[0].value
        waits.failed += counts[1].value


def probe(port: int, seconds: float, waits: Waits) -> None:
    """Send small requests one after another, and note what each took."""
    until = time.monotonic() + seconds
    with socket.create_connection((HOST, port), timeout=60) as wire:
        while time.monotonic() < until:
            data = encoded("probe", small_body(str(time.time_ns())))
            began = time.perf_counter()
            status = status_of(wire, data)
            waits.milliseconds.append(1000 * (time.perf_counter() - began))
            if status != 200:
                raise RuntimeError(f"a small request was answered with {status}")
            time.sleep(PAUSE_SECONDS)


def measured(options: argparse.Namespace, folder: Path) -> dict[str, Waits]:
    """Measure all states in turn, so often as asked."""
    upstream = start(UPSTREAM, "", folder / "upstream")
    tidemark = replace(TIDEMARK, command=lambda place: [*TIDEMARK.command(place), "--workers", str(options.workers)])
    systems = [start(tidemark, f"http://{HOST}:{upstream.port}", folder / name) for name in ("this", "other")]
    parts = Parts(systems[0], systems[1], upstream)
    load = Load(options.streams, options.kilobytes, is_new=not options.same)
    ports = dict(zip(STATES, (None, systems[1].port, systems[0].port), strict=True))
    waits_by_state = {state: Waits() for state in STATES}
    try:
        probe(systems[0].port, 1.0, Waits())
        for _ in range(options.rounds):
            for state, waits in waits_by_state.items():
                with flooding(ports[state], load, waits) as flood_pid:
                    before, began = parts.spent(flood_pid), time.monotonic()
                    probe(systems[0].port, options.seconds, waits)
                    waits.seconds += time.monotonic() - began
                    waits.spent.update(parts.spent(flood_pid))
                    waits.spent.subtract(before)
                time.sleep(SETTLE_SECONDS)
    finally:
        for system in (*systems, upstream):
            system.stop()
    return waits_by_state


def print_spent(waits_by_state: dict[str, Waits]) -> None:
    """Print the cores that each part took, and how many event loops ran, and waited for one, at a moment."""
    names = [*waits_by_state["flooded"].spent]
    print(f"\n{'cores':22} " + " ".join(f"{name:>13}" for name in names))
    for state, waits in waits_by_state.items():
        cores = (waits.spent[name] / 1000 / waits.seconds for name in names)
        print(f"{state:22} " + " ".join(f"{number:13.2f}" for number in cores))


def main() -> int:
    """Measure, print the states side by side, and return whether the flood stays within the ratio."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="of each state in each round")
    parser.add_argument("--streams", type=int, default=200, help="large requests at once")
    parser.add_argument("--kilobytes", type=int, default=400, help="of a large request")
    parser.add_argument("--workers", type=int, default=1, help="of each Tidemark")
    parser.add_argument("--same", action="store_true", help="send one conversation again and again, not new ones")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="tidemark-flood-") as folder:
        waits_by_state = measured(options, Path(folder))
    base = {"p50": waits_by_state["idle"].p50, "p99": waits_by_state["idle"].p99}
    print(f"{'state':22} {'small':>6} {'p50 ms':>8} {'p99 ms':>8} {'worst':>8} {'x p99':>6} {'large':>6} {'failed':>6}")
    for state, waits in waits_by_state.items():
        row = f"{waits.p50:8.2f} {waits.p99:8.2f} {max(waits.milliseconds):8.1f} {waits.p99 / base['p99']:6.2f}"
        print(f"{state:22} {len(waits.milliseconds):6} {row} {waits.answered:6} {waits.failed:6}")
    print_spent(waits_by_state)
    share = waits_by_state["flooded"].p99 / waits_by_state["another one flooded"].p99
    print(f"p99 flooded / idle {waits_by_state['flooded'].p99 / base['p99']:.2f}, / another one flooded {share:.2f}")
    return 1 if share > MOST_RATIO else 0


if __name__ == "__main__":
    sys.exit(main())
