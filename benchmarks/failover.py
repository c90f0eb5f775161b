"""Measures how long a cluster's conversations do without the store when a primary is killed, and what is lost.

``make bench-failover`` runs it: three primaries with a replica each on one machine, two stores as two
processes of Tidemark have them, and conversations whose clients send all their messages. A turn counts as lost where
it was acknowledged and the replica does not know it; the client's next turn brings it in. ``--wait-replicas 1``
measures each run twice: without waiting for replicas, and with the setting ``store.wait_replicas``.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.store.turns import Client, assistant, dialogue, user
from tests.support.clusters import Cluster, running_cluster
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import split_id
from tidemark.core.errors import StoreUnavailable
from tidemark.store import keys
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore

TALKS = 30
WAIT_SECONDS = 0.5
"""``store.wait_seconds``, as shipped."""


@dataclass
class Talk:
    """A conversation that goes on without a pause, its turns through two stores by turns."""

    clients: Sequence[Client]
    messages: list[Message] = field(default_factory=lambda: dialogue(3))
    conversation: str = ""
    turns: int = 0
    refused: int = 0
    lost_turns: int = 0
    served_at: float = 0.0

    async def turn(self) -> None:
        """One turn, or one refusal."""
        client = self.clients[(self.turns + self.refused) % len(self.clients)]
        reply = assistant(f"reply {len(self.messages)}")
        try:
            stored = await client.recall(self.messages)
            self.lost_turns += max(0, len(self.messages) - 1 - stored.stored_count) // 2 if self.turns else 0
            self.conversation = await client.finish(self.messages, reply, stored)
        except StoreUnavailable:
            self.refused += 1
            await asyncio.sleep(0.02)
            return
        self.messages += [reply, user(f"question {len(self.messages)}")]
        self.turns += 1
        self.served_at = time.monotonic()
        await asyncio.sleep(0.05)


def open_store(cluster: Cluster, wait_replicas: int) -> RedisStore:
    """A process's store; ``wait_replicas`` is the setting of that name."""
    return RedisStore(cluster.url(), Codec(), ttl_seconds=3600, wait_replicas=wait_replicas, wait_seconds=WAIT_SECONDS)


async def run(cluster: Cluster, seconds: float, wait_replicas: int) -> str:
    """Kill the primary of the first conversation, and return what became of all of them."""
    stores = [open_store(cluster, wait_replicas) for _ in range(2)]
    talks = [Talk([Client(store, uuid.uuid4().hex)] * 2) for store in stores for _ in range(TALKS // 2)]
    for talk in talks:
        talk.clients = [Client(store, talk.clients[0].tenant) for store in stores]
        await talk.turn()
    is_ended = False

    async def go_on(talk: Talk) -> None:
        while not is_ended:
            await talk.turn()

    tasks = [asyncio.create_task(go_on(talk)) for talk in talks]
    await asyncio.sleep(2)
    owner = {id(talk): cluster.owner(keys.family_prefix(split_id(talk.conversation)[0])) for talk in talks}
    victim = owner[id(talks[0])]
    before = sum(talk.turns for talk in talks)
    victim.signal(signal.SIGKILL)
    began = time.monotonic()
    concerned = [talk for talk in talks if owner[id(talk)] is victim]
    marks = {id(talk): talk.turns for talk in concerned}
    back: dict[int, float] = {}
    while time.monotonic() - began < seconds and len(back) < len(concerned):
        await asyncio.sleep(0.02)
        back |= {id(talk): talk.served_at - began for talk in concerned if talk.turns > marks[id(talk)] + 1}
    others = [talk for talk in talks if talk not in concerned]
    is_ended = True
    await asyncio.gather(*tasks)
    for store in stores:
        await store.close()
    return (
        f"wait_replicas {wait_replicas}: {len(concerned)} of {len(talks)} conversations, {return_of(back, concerned)}; "
        f"refused turns of others {sum(talk.refused for talk in others)}; turns before {before}, "
        f"lost {sum(talk.lost_turns for talk in talks)}"
    )


def return_of(back: Mapping[int, float], concerned: Sequence[Talk]) -> str:
    """Say after how many seconds the last conversation was back, or how many were not."""
    missing = len(concerned) - len(back)
    return f"{missing} not back" if missing else f"back after {max(back.values()):.1f} s"


def main() -> None:
    """Run it a few times, each with a cluster of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--node-timeout", type=int, default=15_000, help="milliseconds (15000, the servers' default)")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--full-coverage", choices=["yes", "no"], default="yes")
    parser.add_argument("--replicas", type=int, default=1, help="of each primary (1)")
    parser.add_argument("--wait-replicas", type=int, default=0, help="measure with this setting, too (0)")
    arguments = parser.parse_args()
    options = ["--cluster-node-timeout", str(arguments.node_timeout)]
    options += ["--cluster-require-full-coverage", arguments.full_coverage]
    settings = sorted({0, arguments.wait_replicas})
    for wait_replicas in settings * arguments.runs:
        with (
            tempfile.TemporaryDirectory() as folder,
            running_cluster(Path(folder), replicas=arguments.replicas, options=options) as cluster,
        ):
            seconds = 3 * arguments.node_timeout / 1000 + 20
            print(asyncio.run(run(cluster, seconds, wait_replicas)), flush=True)


if __name__ == "__main__":
    main()
