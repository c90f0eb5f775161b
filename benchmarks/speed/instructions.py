"""The instructions of a small request, counted one by one: what no other program on the machine can disturb.

``make bench-instructions``. Valgrind runs the bare relay, the sketch and Tidemark on a processor of its own making,
some fifty times slower, and counts what each does in user space; the kernel's share and the store are not in it. The
same code gives the same figure within about two hundredths, so a change of three shows, where a measured time would
hide it.
"""

from __future__ import annotations

import argparse
import asyncio
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.speed import load, work
from benchmarks.speed.systems import FLOOR, LIBRARIES, PATH, SKETCH, TIDEMARK, UPSTREAM, System, start

COUNTED: Sequence[System] = (FLOOR, SKETCH, TIDEMARK)
WARM_REQUESTS = 200
"""Python specializes its bytecode, and connections and caches come to be, before anything is counted."""
LIMIT_SECONDS = 400.0
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


def counted(system: System, valgrind: str, folder: Path) -> System:
    """A system that counts its instructions into ``folder`` while it is told to."""
    tool = [valgrind, "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counted"]
    return replace(system, command=lambda place: [*tool, *system.command(place)])


def instructions(system: System, valgrind: str, upstream: str, folder: Path, requests: int) -> float:
    """Instructions of one small request in user space.

    :raises RuntimeError: the system did not come up
    """
    running = start(counted(system, valgrind, folder), upstream, folder)
    try:
        _drive(running.port, "warm", WARM_REQUESTS)
        _count(running.pid, "on")
        _drive(running.port, "counted", requests)
        _count(running.pid, "off")
    finally:
        running.stop()
    found = _TOTAL.findall((folder / "counted").read_text(encoding="utf-8"))
    return max(map(int, found)) / requests


def _drive(port: int, tag: str, requests: int) -> None:
    bodies = work.small(requests)(tag).measured
    asyncio.run(load.drive(port, [load.request(PATH, body) for body in bodies], 1, LIMIT_SECONDS))


def _count(pid: int, switch: str) -> None:
    subprocess.run(["callgrind_control", "-i", switch, str(pid)], check=True, capture_output=True)  # noqa: S607


def main() -> None:
    """Count and print, a line a system."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=200, help="how many are counted (default: 200)")
    parser.add_argument("--libraries", action="store_true", help="Tidemark, and with each library in place of our code")
    given = parser.parse_args()
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        sys.exit("This needs valgrind: apt-get install valgrind")
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        upstream = start(UPSTREAM, "", folder / "upstream")
        try:
            floor = 0.0
            for system in (TIDEMARK, *LIBRARIES) if given.libraries else COUNTED:
                url = f"http://{load.HOST}:{upstream.port}"
                found = instructions(system, valgrind, url, folder / system.name, given.requests)
                floor = floor or found
                print(f"{system.name:<12}{found / 1000:>8,.0f} thousand{found / floor:>8.2f} x", flush=True)
        finally:
            upstream.stop()


if __name__ == "__main__":
    main()
