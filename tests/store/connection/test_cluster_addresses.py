"""What the addresses of clusters and Sentinels say, and what a cluster says about its slots."""

from __future__ import annotations

import pytest
from redis.crc import key_slot

from tidemark.store.connection.slots import Redirection, SlotRange, keys_of, read_ranges, read_redirection, slot_of
from tidemark.store.connection.url import at_place, read_login, read_places, read_sentinels


def test_an_address_names_any_number_of_servers() -> None:
    """Each with its port or without; the login belongs to all of them."""
    url = "redis://me:p%40w@a:7000,b,[::1]:7002/0?health_check_interval=5"
    assert read_places(url) == [("a", 7000), ("b", 6379), ("::1", 7002)]
    assert at_place(url, ("::1", 7002)) == "redis://me:p%40w@[::1]:7002/0?health_check_interval=5"
    assert read_login(url) == ("me", "p@w")
    assert read_login("redis://:pw@a") == ("default", "pw")
    assert read_login("redis://a") is None


def test_an_address_of_sentinels_names_a_service_and_two_logins() -> None:
    """That of the primary stands before the hosts, that of the Sentinels among the options."""
    address = read_sentinels("rediss+sentinel://me:pw@a,b:7000/my%20main/3?sentinel_password=other&ssl_cert_reqs=none")
    assert address.places == [("a", 26379), ("b", 7000)]
    assert address.service == "my main"
    assert address.primary == "rediss://me:pw@localhost/3?ssl_cert_reqs=none"
    assert address.sentinel == "rediss://:other@localhost?ssl_cert_reqs=none"


@pytest.mark.parametrize("key", ["a", "tm:{F}:h:1", "{}x", "x{", "x{y", "{{y}}", "a{b}{c}", "tm:{00ff}", "\x00é"])
def test_a_key_has_the_slot_that_redis_py_computes(key: str) -> None:
    """By the text in its first braces, where that is not empty."""
    assert slot_of(key) == slot_of(key.encode()) == key_slot(key.encode())


def test_a_script_declares_its_keys_and_another_command_its_first() -> None:
    """What has no key may go to any server."""
    assert keys_of(("EVALSHA", "sha", 2, "a", "b", "argument")) == ("a", "b")
    assert keys_of(("HSET", "a", "b", "c")) == ("a",)
    assert keys_of(("INFO", "memory")) == ()


def test_a_place_without_a_host_is_at_the_server_that_says_it() -> None:
    """As the specification says of an unknown endpoint."""
    assert read_redirection("MOVED 3999 :6381", "here") == Redirection("MOVED", ("here", 6381))
    assert read_redirection("ASK 3999 ::1:6381", "here") == Redirection("ASK", ("::1", 6381))
    assert read_redirection("TRYAGAIN Multiple keys", "here") == Redirection("TRYAGAIN", ("here", 0))
    assert read_redirection("ERR no", "here") is None
    answer = [[0, 9, [None, 1, b"id"], [b"", 2, b"id"]], [10, 16383, [b"there", 3, b"id", []]]]
    assert read_ranges(answer, "here") == [
        SlotRange(0, 9, ("here", 1), [("here", 2)]),
        SlotRange(10, 16383, ("there", 3), []),
    ]
