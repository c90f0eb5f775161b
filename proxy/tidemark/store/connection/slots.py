"""Reads what a cluster says about its hash slots: who has which, and where a command must go instead.

``cluster.py`` sends commands by it. The rules are those of the Redis Cluster specification
(https://valkey.io/topics/cluster-spec): a key's slot is the CRC16 of its hash tag modulo 16384.
"""

from __future__ import annotations

import binascii
from collections.abc import Iterable, Sequence
from typing import Any

from tidemark.core.frozen import frozen
from tidemark.store.connection.pipelined import Argument
from tidemark.store.connection.url import Place

SLOTS = 16_384
_SCRIPTS = frozenset({"EVAL", "EVALSHA"})
_KEYLESS = frozenset({"ACL", "CLUSTER", "CONFIG", "INFO", "PING", "TIME"})
_WORDS = frozenset({"MOVED", "ASK", "TRYAGAIN"})


@frozen
class Redirection:
    """What a server says instead of an answer: ``MOVED``, ``ASK``, or ``TRYAGAIN``, whose place is its own."""

    word: str
    place: Place


@frozen
class SlotRange:
    """Slots ``first`` to ``last`` and the servers that have them."""

    first: int
    last: int
    primary: Place
    replicas: Sequence[Place]


def slot_of(key: str | bytes) -> int:
    """Return the hash slot of a key, by the text in its first braces if that is not empty."""
    data = key.encode() if isinstance(key, str) else key
    start = data.find(b"{")
    if start >= 0:
        end = data.find(b"}", start + 1)
        if end > start + 1:
            data = data[start + 1 : end]
    return binascii.crc_hqx(data, 0) % SLOTS


def keys_of(command: Sequence[Argument]) -> Sequence[Argument]:
    """Return the keys that a command declares: all of a script's, and the first of any other."""
    if command[0] in _SCRIPTS:
        return command[3 : 3 + int(command[2])]
    return () if command[0] in _KEYLESS else command[1:2]


def is_script(command: Sequence[Argument]) -> bool:
    """Whether a command runs a script, which may touch every key that begins with a declared one."""
    return command[0] in _SCRIPTS


def read_redirection(error: str, host: str) -> Redirection | None:
    """Return what an error says about the slot; None if it is about something else.

    :param error: the server's words
    :param host: of the server that said it, which an address without a host means
    """
    word, _, rest = error.partition(" ")
    if word not in _WORDS:
        return None
    if word == "TRYAGAIN":
        return Redirection(word, (host, 0))
    name, _, port = rest.rpartition(" ")[2].rpartition(":")
    return Redirection(word, (name or host, int(port)))


def read_ranges(answer: Iterable[Sequence[Any]], host: str) -> list[SlotRange]:
    """Return what ``CLUSTER SLOTS`` answered.

    :param host: of the server that said it, which an address without a host means
    """

    def place(server: Sequence[Any]) -> Place:
        name = server[0].decode() if isinstance(server[0], bytes) else server[0]
        return (name if name and name != "?" else host, int(server[1]))

    return [
        SlotRange(int(first), int(last), place(primary), [place(replica) for replica in replicas])
        for first, last, primary, *replicas in answer
    ]
