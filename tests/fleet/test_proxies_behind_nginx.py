"""Four proxies behind nginx on a cluster of six: slots move, servers and proxies die, a cable is cut, talks go on."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.fleet.proxies import Proxy, running_proxies
from tests.fleet.talks import MARKER, Talk, Witness, client, content_of, text_of
from tests.scenarios.talks import is_summary_call
from tests.support.clusters import WAIT_SECONDS, Cluster, Valkey, running_cluster, until
from tests.support.networks import Machine, private_network
from tests.support.scripted import ScriptedUpstream
from tests.support.serving import Serving
from tidemark.core.conversation.prefix import split_id
from tidemark.store import keys

pytestmark = [
    pytest.mark.fleet,
    pytest.mark.skipif(os.getuid() != 0, reason="networks of the test's own take root"),
    pytest.mark.timeout(300),
]
OPTIONS = ["--cluster-node-timeout", "2000", "--cluster-require-full-coverage", "no", "--repl-diskless-sync-delay", "0"]
TALKS = 16


@dataclass
class Fleet:
    """All of it, in a network of its own; the cluster's first primary is behind a cable."""

    cluster: Cluster
    machine: Machine
    proxies: list[Proxy]
    url: str
    upstream: ScriptedUpstream
    witness: Witness


@pytest.fixture
def fleet(tmp_path: Path) -> Iterator[Fleet]:
    """Three primaries and three replicas, four proxies, nginx, and an upstream that looks at each request."""
    with ExitStack() as stack:
        stack.enter_context(private_network())
        machine = Machine()
        stack.callback(machine.end)
        places = [machine.inside, machine.outside]
        cluster = stack.enter_context(running_cluster(tmp_path / "store", replicas=1, options=OPTIONS, places=places))
        witness = Witness()
        upstream = ScriptedUpstream(witness)
        served = stack.enter_context(Serving(upstream))
        proxies, url = stack.enter_context(running_proxies(tmp_path, cluster.url(), served.url))
        yield Fleet(cluster, machine, proxies, url, upstream, witness)


class RunningTalks:
    """Talks that go on by themselves."""

    def __init__(self, cluster: Cluster, talks: list[Talk]) -> None:
        self.cluster, self.talks = cluster, talks
        self._tasks = [asyncio.create_task(talk.run()) for talk in talks]

    async def on(self, turns: int = 3) -> None:
        """Wait until every talk has gone on by some turns; an error of one ends the wait."""
        goals = [talk.turns + turns for talk in self.talks]
        async with asyncio.timeout(WAIT_SECONDS):
            while not all(talk.turns >= goal for talk, goal in zip(self.talks, goals, strict=True)):
                await asyncio.sleep(0.05)
                for task in self._tasks:
                    if task.done():
                        task.result()

    async def leave(self) -> None:
        """Stop in the middle of whatever they do."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def end(self) -> None:
        """Let each end its turn."""
        for talk in self.talks:
            talk.is_ended = True
        await asyncio.gather(*self._tasks)
        for talk in self.talks:
            while len(talk.messages) % 2:
                await talk.turn()


@asynccontextmanager
async def run_talks(fleet: Fleet, count: int = TALKS) -> AsyncIterator[RunningTalks]:
    """Talks of all kinds: every fourth sends new messages only, every second streams."""
    async with client(fleet.url) as http:
        talks = [Talk(place, http, is_stored=place % 4 == 3, streams=place % 2 == 0) for place in range(count)]
        running = RunningTalks(fleet.cluster, talks)
        try:
            await running.on()
            yield running
        finally:
            await running.leave()


def key_of(talk: Talk) -> str:
    """The key whose slot a talk is in."""
    return keys.family_prefix(split_id(talk.conversations[0])[0])


def talks_of(running: RunningTalks, node: Valkey) -> set[int]:
    """The numbers of the talks that a primary has."""
    return {talk.number for talk in running.talks if running.cluster.owner(key_of(talk)) is node}


def move_slots(cluster: Cluster, names: list[str]) -> None:
    """Move the slots of these keys to the next primary, key by key."""
    for name in names:
        slot, source = cluster.slot(name), cluster.owner(name)
        primaries = [node for node in cluster.nodes if not node.is_frozen and node.say("ROLE")[0] == b"master"]
        target = primaries[(primaries.index(source) + 1) % len(primaries)]
        cluster.begin_move(slot, source, target)
        while cluster.move_keys(slot, source, target, 2):
            pass
        cluster.end_move(slot, source, target)


def is_replaced(cluster: Cluster, primary: Valkey) -> Callable[[], bool]:
    """Whether the others are enough primaries without this one, which nobody hears."""
    others = [node for node in cluster.nodes if node is not primary]
    return lambda: [node.say("ROLE")[0] for node in others].count(b"master") == len(cluster.primaries)


def is_replica(node: Valkey) -> Callable[[], bool]:
    """Whether a server follows another one."""
    return lambda: node.say("ROLE")[0] == b"slave"


async def test_a_fleet_goes_on_through_moves_deaths_and_a_cut(fleet: Fleet, anyio_backend: str) -> None:
    """No request is answered wrongly, no acknowledged turn is lost, each prefix has one summary, in all proxies."""
    cluster, machine = fleet.cluster, fleet.machine
    async with run_talks(fleet) as running:
        talks = running.talks
        await asyncio.to_thread(move_slots, cluster, [key_of(talk) for talk in talks])
        await running.on()
        assert [talk.refusals for talk in talks] == [[] for _ in talks]
        killed = cluster.primaries[1]
        concerned = talks_of(running, killed)
        killed.signal(signal.SIGKILL)
        await asyncio.to_thread(until, is_replaced(cluster, killed))
        await running.on()
        killed.start()
        await asyncio.to_thread(until, is_replica(killed))

        kill_began_at = time.monotonic()
        fleet.proxies[0].kill()
        killed_at = time.monotonic()
        await running.on()
        fleet.proxies[0].start()
        await asyncio.to_thread(until, fleet.proxies[0].is_ready)

        concerned |= talks_of(running, cluster.nodes[0])
        machine.cut()
        await asyncio.to_thread(until, is_replaced(cluster, cluster.nodes[0]))
        await running.on()
        machine.join()
        await asyncio.to_thread(until, is_replica(cluster.nodes[0]))
        await running.on()
        await settle(running)
        await running.end()
    witness = fleet.witness
    assert witness.faults == []
    assert set(witness.gaps) <= concerned, "a turn that its primary acknowledged and had not replicated yet"
    for (talk_number, _), times in witness.calls.items():
        was_lost = talk_number in concerned or times[0] <= killed_at <= times[-1]
        assert len(times) == 1 or was_lost, "made once, where its server and its proxy lived to store it"
    assert {len(texts) for texts in witness.summaries.values()} == {1}
    for talk in talks:  # an answer that was stored and never arrived is asked for again: another branch
        assert len(talk.conversations) <= 1 + len(talk.refusals), talk.number
    for talk in talks:
        codes = {refusal.split()[0] for refusal in talk.refusals} - {"cut"}
        assert codes <= ({"503", "502"} if talk.is_stored else {"502"})
        # An answer whose head had gone out when its proxy was killed can only end early.
        assert all(began_at <= killed_at and kill_began_at <= ended_at for began_at, ended_at in talk.cuts)
        # A busy machine may take longer for a lookup than a request waits for it.
        assert talk.number in concerned or talk.degraded <= talk.turns / 20
    await assert_all_alike(fleet, talks)


async def settle(running: RunningTalks) -> None:
    """Wait until a round of turns passes without an outage."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            before = [(len(talk.refusals), talk.degraded) for talk in running.talks]
            await running.on()
            if before == [(len(talk.refusals), talk.degraded) for talk in running.talks]:
                return


async def assert_all_alike(fleet: Fleet, talks: list[Talk]) -> None:
    """Ask each proxy by itself: it forwards the same bytes and tells the same history."""
    for talk in talks:
        conversation, length = talk.conversations[-1], len(talk.messages)
        forwarded, histories = set(), set()
        talk.messages.append({"role": "user", "content": text_of(talk.number, length)})
        for proxy in fleet.proxies:
            async with client(proxy.url) as http:
                histories.add(" ".join((await texts_of(http, conversation))[:length]))
                if not talk.is_stored:  # there the same question is another one each time
                    answer = await http.post("/v1/chat/completions", json=talk.body())
                    assert answer.headers["x-tidemark-store"] == "ok"
                    forwarded.add(forwarded_of(fleet.upstream, talk))
        assert len(histories) == 1
        assert len(forwarded) == 1 - talk.is_stored
        places = [int(place) for _, place in MARKER.findall(histories.pop())]
        assert places == list(range(length)) or talk.number in fleet.witness.gaps


def forwarded_of(upstream: ScriptedUpstream, talk: Talk) -> bytes:
    """The newest request of a talk that the upstream got, but for those of the summarizer."""
    marker = f"t{talk.number:02}m".encode()
    received = reversed(upstream.received)
    return next(request.body for request in received if marker in request.body and not is_summary_call(request))


async def texts_of(http: httpx.AsyncClient, conversation: str) -> list[str]:
    """The text of each stored message of a conversation, from all pages."""
    texts, cursor = [], ""
    while True:
        answer = await http.get(f"/tidemark/conversations/{conversation}?limit=200{cursor}")
        page = answer.raise_for_status().json()
        texts += [content_of(message["message"]) for message in page["data"]]
        if not page["next_cursor"]:
            return texts
        cursor = f"&cursor={page['next_cursor']}"
