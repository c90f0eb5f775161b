"""Takes samples of what Tidemark uses between the cycles of a soak, and judges whether anything grows.

Memory, descriptors, sockets and threads come from ``/proc``, of all processes that the command has started; tasks from
the metrics; keys from the store itself.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import redis

from benchmarks.speed.machine import STORE, family

PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6
WARM_SHARE = 0.25
"""The first samples are not judged: caches and pools fill."""
PART = 3
"""The first and the last of so many parts are compared, by their least values.

Pools and lists go up and down, and what leaks raises the least as well.
"""
SHORT_LIVED = (b"tm:{traffic}:", b"tm:probe", b"tm:uw:", b"tm:up:")
"""Keys that come and go with the minutes, not with the load: figures, and marks with a short life."""
_FORGOTTEN = re.compile(rb"tm:\{[^}]*\}:x:")
"""Marks that a conversation was deleted; they live for ten minutes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """What everything of Tidemark uses at one moment."""

    worker_mb: float
    store_mb: float
    """Resident memory of the store, with the pages that its allocator keeps for what comes next."""
    store_used_mb: float
    """What the store holds in its memory, as it counts this itself."""
    descriptors: int
    sockets: int
    threads: int
    """Without those of the event loops' pools. A pool starts one whenever all are busy, up to its bound."""
    tasks: int
    keys: int
    """Without those that live for some minutes in any case."""


@dataclass(frozen=True, slots=True)
class Bound:
    """How much a number may grow: the larger of a share and an amount."""

    share: float
    amount: float


BOUNDS = {
    "worker_mb": Bound(0.05, 10.0),
    "store_mb": Bound(0.05, 5.0),
    "store_used_mb": Bound(0.05, 2.0),  # marks of 2,000 deleted conversations take 1.2 MB for ten minutes
    "descriptors": Bound(0.0, 8),
    "sockets": Bound(0.0, 8),
    "threads": Bound(0.0, 2),
    "tasks": Bound(0.0, 4),
    "keys": Bound(0.0, 2),
}


@dataclass(frozen=True, slots=True)
class Verdict:
    """How one number went over a soak."""

    name: str
    first: float
    """The least of the first samples after the warm-up."""
    last: float
    """The least of the last ones."""
    most: float
    grows: bool


def judged(samples: Sequence[Sample]) -> list[Verdict]:
    """Compare the first samples after the warm-up with the last ones, number by number.

    :param samples: four at least
    """
    warm = samples[int(len(samples) * WARM_SHARE) :]
    size = max(1, len(warm) // PART)
    return compared(warm[:size], warm[-size:], warm)


def compared(first: Sequence[Sample], last: Sequence[Sample], between: Sequence[Sample] = ()) -> list[Verdict]:
    """Compare samples with later ones, number by number, by the least of each.

    :param between: of which the largest is shown as well
    """
    verdicts = []
    for name, bound in BOUNDS.items():
        old, new = (min(float(getattr(sample, name)) for sample in part) for part in (first, last))
        most = max(float(getattr(sample, name)) for sample in (*first, *between, *last))
        verdicts.append(Verdict(name, old, new, most, new - old > max(bound.share * old, bound.amount)))
    return verdicts


class Sampler:
    """Takes samples of one running Tidemark.

    :param pid: of the command's first process
    :param folder: of its data
    """

    def __init__(self, pid: int, folder: Path) -> None:
        self._pid = pid
        self._store = redis.Redis(unix_socket_path=str(folder / "store" / "valkey.sock"))

    def sample(self, metrics: str) -> Sample:
        """Return what everything uses now.

        :param metrics: the page of ``/metrics``
        """
        pids = family(self._pid)
        store = [pid for pid in pids if STORE.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
        workers = [pid for pid in pids if pid not in store]
        opened = [target for pid in workers for target in _opened(pid)]
        return Sample(
            worker_mb=sum(map(_resident_mb, workers)),
            store_mb=sum(map(_resident_mb, store)),
            store_used_mb=self._store.info("memory")["used_memory"] / 1e6,
            descriptors=len(opened),
            sockets=sum(target.startswith("socket:") for target in opened),
            threads=_threads(workers) - int(metric(metrics, "tidemark_pool_threads")),
            tasks=int(metric(metrics, "tidemark_tasks")),
            keys=sum(1 for key in self._store.scan_iter(count=1000) if not _is_short_lived(key)),
        )

    def close(self) -> None:
        """Close the connection to the store."""
        self._store.close()


def metric(page: str, name: str) -> float:
    """Return the sum of a metric's series."""
    lines = [line for line in page.splitlines() if line.startswith((f"{name} ", f"{name}{{"))]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def _is_short_lived(key: bytes) -> bool:
    return key.startswith(SHORT_LIVED) or _FORGOTTEN.match(key) is not None


def _threads(pids: Sequence[int]) -> int:
    return sum(len(list(Path(f"/proc/{pid}/task").iterdir())) for pid in pids)


def _resident_mb(pid: int) -> float:
    return int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1]) * PAGE_MB


def _opened(pid: int) -> list[str]:
    targets = []
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        try:
            targets.append(str(entry.readlink()))
        except OSError:  # closed meanwhile
            continue
    return targets
