"""Measures what a request costs where 1, 2 and 4 Tidemarks share one store.

``make bench-replicas`` runs it. On a machine with few cores four replicas are not faster than one, so the figure is
processor time: where a request costs the same at any number of replicas, their throughput adds up. The requests of each
conversation go through all replicas in turn, the worst case, since each replica hashes and counts what it has not seen
itself, and through one replica, as behind a load balancer that keeps them together. The client, the upstream and the
store are processes of their own; only Tidemark's and the store's time is counted. What a replica needs while nobody
asks is measured first, and taken off.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

from benchmarks.counting import machine
from benchmarks.speed import load
from benchmarks.speed.machine import usage
from benchmarks.speed.systems import TIDEMARK, UPSTREAM, Running, start
from benchmarks.speed.work import CHAT_PATH, Work, history
from tidemark.store.embedded.server import EmbeddedValkey

REPLICAS = (1, 2, 4)
LIMIT_SECONDS = 300.0
IDLE_SECONDS = 5.0
CONCURRENT = 8
"""Requests at a time at each replica. Fewer cost more each, because less is done in one round of its loop."""


async def drive(ports: list[int], bodies: Sequence[bytes], run: int = 1) -> None:
    """Send the requests through the replicas in turn.

    :param run: how many requests go to one replica before the next one has its turn
    """
    requests = [load.request(CHAT_PATH, body) for body in bodies]
    shares: list[list[bytes]] = [[] for _ in ports]
    for place, data in enumerate(requests):
        shares[place // run % len(ports)].append(data)
    outcomes = await asyncio.gather(
        *(load.drive(port, share, CONCURRENT, LIMIT_SECONDS) for port, share in zip(ports, shares, strict=True))
    )
    answers = [answer for outcome in outcomes for answer in outcome.answers]
    if len(answers) < len(requests) or not all(answer.good for answer in answers):
        raise RuntimeError("not every request was answered")


def idle(running: list[Running]) -> float:
    """Return the milliseconds of processor time that a replica needs in a second without a request."""
    before = sum(usage(replica.pid).cpu_ms for replica in running)
    time.sleep(IDLE_SECONDS)
    return (sum(usage(replica.pid).cpu_ms for replica in running) - before) / IDLE_SECONDS / len(running)


def measured(running: list[Running], tag: str, work: Work, idle_ms: float, run: int) -> tuple[float, float]:
    """Return milliseconds of processor time for each request: of all replicas, and of the store."""
    batch, store = work.make(tag), os.getpid()
    asyncio.run(drive([replica.port for replica in running], batch.before))
    before, store_before = sum(usage(replica.pid).cpu_ms for replica in running), usage(store).store_ms
    began = time.perf_counter()
    asyncio.run(drive([replica.port for replica in running], batch.measured, run))
    used = sum(usage(replica.pid).cpu_ms for replica in running) - before
    used -= idle_ms * len(running) * (time.perf_counter() - began)
    return used / len(batch.measured), (usage(store).store_ms - store_before) / len(batch.measured)


def main() -> None:
    """Print a line for each number of replicas."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--talks", type=int, default=50, help="conversations in each round, of 20 messages at first")
    parser.add_argument("--turns", type=int, default=16, help="requests of each conversation")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    print(machine())
    with tempfile.TemporaryDirectory() as folder_name, ExitStack() as stack:
        folder = Path(folder_name)
        upstream = start(UPSTREAM, "", folder / "upstream")
        stack.callback(upstream.stop)
        server = stack.enter_context(EmbeddedValkey(folder / "store"))
        shared = {"TIDEMARK_STORE_URL": server.url, "TIDEMARK_SECRET": "s" * 40}
        system = replace(TIDEMARK, environ=lambda _: shared)
        running = []
        for number in range(max(REPLICAS)):
            running.append(start(system, f"http://{load.HOST}:{upstream.port}", folder / f"replica{number}"))
            stack.callback(running[-1].stop)
        work = Work("history", "conversations", history(20, 400, arguments.talks, arguments.turns))
        measured(running, "warm", work, 0.0, 1)
        idle_ms = idle(running)
        print(f"{idle_ms:.1f} ms a second for an idle replica")
        kinds = [(count, run) for count in REPLICAS for run in (1, arguments.turns)]
        figures: dict[tuple[int, int], list[tuple[float, float]]] = {kind: [] for kind in kinds}
        for number in range(arguments.rounds):
            for count, run in kinds:
                tag = f"{number}-{count}-{run}"
                figures[count, run].append(measured(running[:count], tag, work, idle_ms, run))
        print(f"{'replicas':>8} {'conversations':16} {'ms':>6} {'ratio':>6} {'a second':>9} {'store ms':>9}")
        floor = min(cost for cost, _ in figures[kinds[0]])
        for (count, run), costs in figures.items():
            cost, store = min(costs)
            name = "through all" if run == 1 else "through one each"
            print(f"{count:>8} {name:16} {cost:>6.3f} {cost / floor:>6.2f} {1000 / cost:>9,.0f} {store:>9.3f}")


if __name__ == "__main__":
    main()
