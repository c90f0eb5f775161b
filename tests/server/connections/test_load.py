"""What all clients together may take: connections, with descriptors left for the upstreams, and bytes of bodies."""

from __future__ import annotations

import logging
import resource
from contextlib import ExitStack

import pytest

from tests.server.connections.served import GET, Client, Served, Slow, hello
from tests.support.waiting import wait_until
from tidemark.server.connections import Bounds, allowed_connections, raise_descriptor_limit
from tidemark.server.connections.bounds import (
    LEAST_CONNECTIONS,
    MOST_CONNECTIONS,
    OWN_DESCRIPTORS,
    REFUSING_CONNECTIONS,
)
from tidemark.server.connections.load import QUIET_SECONDS, Notices

MB = 1024 * 1024


def half_a_body(size: int) -> bytes:
    """A request whose body lacks its last byte."""
    return b"POST / HTTP/1.1\r\nhost: x\r\ncontent-length: %d\r\n\r\n" % (size + 1) + b"a" * size


def test_the_largest_of_too_many_bodies_is_refused() -> None:
    """A small request is never refused for another one's body."""
    with Served(hello, Bounds(bodies_bytes=3 * MB)) as served, ExitStack() as stack:
        small, large, last = (stack.enter_context(served.client()) for _ in range(3))
        small.send(half_a_body(500_000))
        wait_until(lambda: served.server.load.bodies.total >= 500_000)
        large.send(half_a_body(2 * MB))
        wait_until(lambda: served.server.load.bodies.total >= 2 * MB + 500_000)
        last.send(half_a_body(MB))
        status, lines, _ = large.answer()
        assert (status, lines["retry-after"]) == (503, "1")
        for client, size in ((small, 500_001), (last, MB + 1)):
            client.send(b"a")
            assert client.answer()[2] == b"%d" % size
        wait_until(lambda: served.server.load.bodies.total == 0)


def test_bodies_that_are_whole_or_given_up_are_not_counted() -> None:
    """The bound is on what is being read."""
    with Served(hello, Bounds(bodies_bytes=2 * MB)) as served:
        with served.client() as client:
            for _ in range(5):
                client.send(half_a_body(MB) + b"a")
                assert client.answer()[0] == 200
        for _ in range(5):
            with served.client() as client:
                client.send(half_a_body(MB))
                wait_until(lambda: served.server.load.bodies.total >= MB)
            wait_until(lambda: served.server.load.bodies.total == 0)


def connected(served: Served, stack: ExitStack, count: int) -> list[Client]:
    """Connections that say nothing."""
    return [stack.enter_context(served.client()) for _ in range(count)]


def test_the_idlest_connection_makes_room_for_a_new_one(caplog: pytest.LogCaptureFixture) -> None:
    """Whatever has been connected: each new client is served, at most so many are open, and the log says why."""
    with Served(hello, Bounds(connections=16)) as served, ExitStack() as stack, caplog.at_level(logging.WARNING):
        kept = connected(served, stack, 16)
        for client in kept:
            client.send(GET)
            assert client.answer()[0] == 200
        for _ in range(50):
            with served.client() as client:
                client.send(GET)
                assert client.answer()[0] == 200
                assert served.server.load.open <= 16 + REFUSING_CONNECTIONS
        assert kept[0].ended
        connected(served, stack, 50)
        with served.client() as client:
            client.send(GET)
            assert client.answer()[0] == 200
    line = next(one.getMessage() for one in caplog.records if one.name == "tidemark.serving")
    assert "All 16 connections of this worker are in use" in line
    assert "ulimit -n" in line


def test_where_no_connection_is_idle_new_clients_are_told_so() -> None:
    """In words and with a time; what is under way is not touched, and served to its end."""
    slow = Slow()
    with Served(slow, Bounds(connections=3)) as served, ExitStack() as stack:
        busy = connected(served, stack, 3)
        for client in busy:
            client.send(GET)
        wait_until(lambda: slow.waiting == 3)
        for _ in range(3 * REFUSING_CONNECTIONS):
            with served.client() as client:
                client.send(GET)
                status, lines, body = client.answer()
                assert (status, lines["retry-after"]) == (503, "1")
                assert b'"server_busy"' in body
        slow.free.set()
        for client in busy:
            assert client.answer()[2] == b"late"
        with served.client() as client:
            client.send(GET)
            assert client.answer()[2] == b"late"


def test_surplus_clients_that_say_nothing_do_not_keep_others_from_being_told() -> None:
    """The oldest of them is closed, while all places are busy."""
    slow = Slow()
    with Served(slow, Bounds(connections=2)) as served, ExitStack() as stack:
        for client in connected(served, stack, 2):
            client.send(GET)
        wait_until(lambda: slow.waiting == 2)
        connected(served, stack, 3 * REFUSING_CONNECTIONS)
        with served.client() as client:
            client.send(GET)
            assert client.answer()[0] == 503
        assert served.server.load.open <= 2 + REFUSING_CONNECTIONS
        slow.free.set()


def test_who_has_connected_before_the_end_is_answered() -> None:
    """Its request may come a moment later; it is served, and told that the connection ends."""
    with Served(hello) as served, served.client() as fresh, served.client() as half, served.client() as idle:
        idle.send(GET)
        assert idle.answer()[0] == 200
        half.send(GET[:10])
        wait_until(lambda: served.server.load.open == 3)
        served.server.should_exit = True
        assert idle.ended
        fresh.send(GET)
        half.send(GET[10:])
        for client in (fresh, half):
            status, lines, _ = client.answer()
            assert (status, lines["connection"]) == (200, "close")
        with pytest.raises(ConnectionRefusedError), served.client():
            pass


def test_a_client_that_says_nothing_does_not_keep_the_server_from_ending() -> None:
    """It has a moment."""
    served = Served(hello)
    with served, served.client():
        wait_until(lambda: served.server.load.open == 1)
        served.end()


@pytest.mark.parametrize(
    ("descriptors", "configured", "connections"),
    [
        (64, None, 12),
        (1024, None, 492),
        (20_000, None, 9980),
        (65_536, None, MOST_CONNECTIONS),
        (65_536, 20_000, 20_000),
        (64, 100, 12),
        (64, 5, 5),
        (10, None, LEAST_CONNECTIONS),
    ],
)
def test_half_of_the_descriptors_are_kept_for_upstreams(
    descriptors: int, configured: int | None, connections: int
) -> None:
    """Each request that is forwarded needs one as well, and the worker some of its own."""
    assert allowed_connections(descriptors, configured) == connections
    if connections > LEAST_CONNECTIONS:
        assert 2 * connections + REFUSING_CONNECTIONS + OWN_DESCRIPTORS <= descriptors


@pytest.mark.parametrize(
    ("soft", "hard", "wanted", "then"),
    [
        (1024, 4096, None, 4096),
        (1024, 1_000_000, None, 20_040),
        (1024, 1_000_000, 400, 1024),
        (1024, 1_000_000, 1000, 2040),
        (4096, 4096, None, 4096),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None, 20_040),
    ],
)
def test_the_soft_limit_is_raised_as_far_as_needed_and_allowed(
    monkeypatch: pytest.MonkeyPatch, soft: int, hard: int, wanted: int | None, then: int
) -> None:
    """Not to millions: programs that are started close each possible descriptor."""
    limits = [(soft, hard)]
    monkeypatch.setattr(resource, "getrlimit", lambda _: limits[-1])
    monkeypatch.setattr(resource, "setrlimit", lambda _, given: limits.append(given))
    assert raise_descriptor_limit(wanted) == then
    assert limits[-1][0] in (then, resource.RLIM_INFINITY)


def test_notices_of_a_kind_are_few_and_count_the_others(caplog: pytest.LogCaptureFixture) -> None:
    """Clients cannot fill the log."""
    now = [0.0]
    notices = Notices(lambda: now[0])
    for _ in range(100):
        notices.warn("a", "All is full.")
    notices.warn("b", "Nonsense.")
    now[0] = QUIET_SECONDS
    notices.warn("a", "All is full.")
    assert [one.getMessage() for one in caplog.records] == [
        "All is full.",
        "Nonsense.",
        "All is full. (99 more since the last such line)",
    ]
