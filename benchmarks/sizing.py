"""Reckons what a fleet needs: memory of the store, servers of its cluster, cores of Tidemark.

``python -m benchmarks.sizing`` prints it for the workload that its options describe. The inputs are measured, each by
the command that its comment names; nothing is contacted, and nothing is simulated beyond the arithmetic.
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from math import ceil

CONVERSATION_BYTES = 950
"""Of the store's memory, for a conversation without its messages (``make bench-scale``)."""
MESSAGE_BYTES = 40
"""The same for a message beside its own bytes."""
COMPRESSED_SHARE = 0.52
"""What is left of a message of 1,000 to 4,000 characters of prose; program text 0.47, log lines 0.17."""
REQUEST_MS = 0.7
"""Of a core, for a request that goes on with a conversation of 20 to 50 messages (``make bench-replicas``)."""
UNSEEN_MS = 0.5
"""More of a core where another replica had the conversation's last turns, with turns of 400 characters."""
CHUNK_MS = 0.065
"""Of a core, for a chunk of a stream (``make bench``: 100 chunks at 20 ms)."""
STORE_MS = 0.3
"""Of a store's thread, for a request with its answer (``make bench-replicas``)."""
STREAM_BYTES = 33_000
"""Of a worker's memory, for an open stream."""
WORKER_BYTES = 200_000_000
"""Of memory, for a worker that holds nothing yet."""
PEAK = 3.0
"""The busiest hour as a multiple of the day's average."""
FILL = 0.6
"""The share of memory and cores that is planned for; the rest is for a server that is away."""
DAY_SECONDS = 86_400


@dataclass(frozen=True, kw_only=True)
class Workload:
    """What the fleet is for.

    :param characters: of a message, on average
    :param days: how long an unused conversation is stored (``store.ttl_days``)
    :param chunks: events of a stream in a second
    """

    conversations_a_day: int
    turns: int
    characters: int
    days: float
    streams: int
    chunks: float
    replicas: int
    server_gb: int


@dataclass(frozen=True)
class Needs:
    """What it takes."""

    conversation_bytes: float
    store_gb: float
    primaries: int
    requests_a_second: float
    request_cores: float
    stream_cores: float
    stream_gb: float
    workers: int


def needs_of(load: Workload) -> Needs:
    """Reckon what a workload takes, each limit by itself; the larger number of servers decides."""
    share = COMPRESSED_SHARE if load.characters >= 1000 else 1.0
    conversation = CONVERSATION_BYTES + 2 * load.turns * (MESSAGE_BYTES + load.characters * share)
    store_gb = load.conversations_a_day * load.days * conversation / 1e9
    requests = load.conversations_a_day * load.turns / DAY_SECONDS * PEAK
    unseen = UNSEEN_MS * (1 - 1 / load.replicas)
    request_cores = requests * (REQUEST_MS + unseen) / 1000
    stream_cores = load.streams * load.chunks * CHUNK_MS / 1000
    by_memory = store_gb / (load.server_gb * FILL)
    by_time = requests * STORE_MS / 1000 / FILL
    return Needs(
        conversation,
        store_gb,
        max(1, ceil(by_memory), ceil(by_time)),
        requests,
        request_cores,
        stream_cores,
        load.streams * STREAM_BYTES / 1e9,
        max(1, ceil((request_cores + stream_cores) / FILL)),
    )


def lines_of(load: Workload) -> list[str]:
    """Write the result, a line for each need."""
    needs = needs_of(load)
    by_memory, by_time = needs.store_gb / (load.server_gb * FILL), needs.requests_a_second * STORE_MS / 1000 / FILL
    reasons = f"memory {by_memory:,.1f}, time {by_time:,.1f}"
    return [
        f"a stored conversation      {needs.conversation_bytes:,.0f} bytes",
        f"all that are stored        {needs.store_gb:,.0f} GB",
        f"requests at the peak       {needs.requests_a_second:,.0f} a second",
        f"primaries of the store     {needs.primaries:,} with a replica each ({reasons})",
        f"cores for the requests     {needs.request_cores:,.1f}",
        f"cores for the streams      {needs.stream_cores:,.1f}",
        f"workers of one core each   {needs.workers:,}",
        f"memory of the workers      {needs.stream_gb + needs.workers * WORKER_BYTES / 1e9:,.1f} GB",
    ]


def main() -> None:
    """Print what the options' workload takes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--conversations-a-day", type=int, default=10_000)
    parser.add_argument("--turns", type=int, default=10, help="questions with their answers, of a conversation")
    parser.add_argument("--characters", type=int, default=500, help="of a message")
    parser.add_argument("--days", type=float, default=30, help="store.ttl_days")
    parser.add_argument("--streams", type=int, default=100, help="that are open at the peak")
    parser.add_argument("--chunks", type=float, default=10, help="events of a stream in a second")
    parser.add_argument("--replicas", type=int, default=1, help="that a conversation's requests go through")
    parser.add_argument("--server-gb", type=int, default=64, help="memory of a server of the store")
    print("\n".join(lines_of(Workload(**vars(parser.parse_args())))))


if __name__ == "__main__":
    main()
