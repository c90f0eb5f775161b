"""A memory with a bound: a dict whose oldest entry goes when one too many comes in.

Used throughout the upstream room, where names, servers and credentials come from clients.
"""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


def remember(memory: dict[K, V], key: K, value: V, *, most: int) -> None:
    """Put an entry in as the newest; of more than ``most`` entries the oldest goes."""
    memory.pop(key, None)
    memory[key] = value
    if len(memory) > most:
        del memory[next(iter(memory))]
