"""What the operating system knows: the processor time and memory of a process and its children, and the machine.

Linux only: the figures come from ``/proc`` and from the processes' own clocks.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

STORE = "valkey-server"
"""The embedded store is a child of the proxy, and is counted apart."""
QUIET_SHARE = 0.03
"""A process that uses less of a core has nothing left to do."""


@dataclass(frozen=True)
class Usage:
    """What a proxy has used so far."""

    cpu_ms: float
    store_ms: float
    """The same of the embedded store, where it has one."""


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def family(pid: int) -> list[int]:
    """A process and all that descend from it."""
    found = [pid]
    for one in found:
        try:
            tasks = list(Path(f"/proc/{one}/task").iterdir())
            children = [(task / "children").read_text(encoding="utf-8").split() for task in tasks]
        except OSError:  # it has ended meanwhile
            continue
        found += [int(child) for listed in children for child in listed]
    return found


def _clock_ms(pid: int) -> float:
    """Milliseconds of processor time of a process, all its threads; ``clock_getcpuclockid(3)`` in nanoseconds.

    ``/proc/PID/stat`` says the same in hundredths of a second only.
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | 2) / 1e6
    except OSError:
        return 0.0


def usage(pid: int) -> Usage:
    """What a proxy, its children and its store have used."""
    cpu = store = 0.0
    for one in family(pid):
        if _name(one).startswith(STORE[:15]):
            store += _clock_ms(one)
        else:
            cpu += _clock_ms(one)
    return Usage(cpu, store)


def memory_kb(pid: int) -> int:
    """Resident memory of a process and its children, without its store."""
    return sum(_resident_kb(one) for one in family(pid) if not _name(one).startswith(STORE[:15]))


def _resident_kb(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def settled(pid: int, limit_seconds: float, step_seconds: float = 0.1) -> bool:
    """Wait until a process has nothing left to do; whether it came to that."""
    until = time.monotonic() + limit_seconds
    before = usage(pid).cpu_ms
    while time.monotonic() < until:
        time.sleep(step_seconds)
        now = usage(pid).cpu_ms
        if now - before < step_seconds * 1000 * QUIET_SHARE:
            return True
        before = now
    return False


def facts() -> dict[str, str]:
    """The machine and the day, as the reports name them."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")
    return {
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        "system": f"{platform.system()} {platform.machine()}",
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": model,
        "python": platform.python_version(),
        "load": f"{os.getloadavg()[0]:.1f}",
    }
