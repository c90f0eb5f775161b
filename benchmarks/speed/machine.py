"""Reads the processor time and memory of a process and its children, and describes the machine.

It works on Linux only: the figures come from ``/proc`` and from the processes' own clocks.
"""

from __future__ import annotations

import datetime as dt
import os
import platform
import time
from dataclasses import dataclass
from pathlib import Path

STORE = "valkey-server"
"""The name of the embedded store's process, a child of the proxy that is counted apart."""
QUIET_SHARE = 0.03
"""The share of a core below which a process counts as idle."""


@dataclass(frozen=True)
class Usage:
    """The resources that a proxy has used so far."""

    cpu_ms: float
    store_ms: float
    """The processor time of the embedded store, where there is one."""


def _name(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def family(pid: int) -> list[int]:
    """Return a process and all its descendants."""
    pids = [pid]
    for member in pids:
        try:
            tasks = list(Path(f"/proc/{member}/task").iterdir())
            children = [(task / "children").read_text(encoding="utf-8").split() for task in tasks]
        except OSError:  # it has ended meanwhile
            continue
        pids += [int(child) for listed in children for child in listed]
    return pids


def _clock_ms(pid: int) -> float:
    """Return the processor time of a process with all its threads, in milliseconds (``clock_getcpuclockid(3)``).

    ``/proc/PID/stat`` has the same in hundredths of a second only.
    """
    try:
        return time.clock_gettime_ns((~pid << 3) | 2) / 1e6
    except OSError:
        return 0.0


def usage(pid: int) -> Usage:
    """Return the resources of a proxy, its children and its store."""
    cpu = store = 0.0
    for member in family(pid):
        if _name(member).startswith(STORE[:15]):
            store += _clock_ms(member)
        else:
            cpu += _clock_ms(member)
    return Usage(cpu, store)


def memory_kb(pid: int) -> int:
    """Return the resident memory of a process and its children, without its store."""
    return sum(_resident_kb(member) for member in family(pid) if not _name(member).startswith(STORE[:15]))


def _resident_kb(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="utf-8").split()[1])
    except (OSError, IndexError):
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1024


def settled(pid: int, limit_seconds: float, step_seconds: float = 0.1) -> bool:
    """Wait until a process is idle, and return whether it became idle."""
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
    """Return the machine and the day for the report."""
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
