"""Counts the instructions of a small request, which no other program on the machine disturbs.

``make bench-instructions`` runs it. Valgrind runs the bare relay, the sketch and Tidemark on a simulated processor,
some fifty times slower, and counts their instructions in user space, without the kernel and the store. The same code
gives the same figure within about 2 %, so a change of 3 % is visible, where a measured time would hide it.
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
"""The requests before the counted ones: Python specialises its bytecode, connections open and caches fill."""
LIMIT_SECONDS = 400.0
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


def counted(system: System, valgrind: str, folder: Path) -> System:
    """Return a system that counts its instructions into ``folder`` while counting is switched on."""
    tool = [valgrind, "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counted"]
    return replace(system, command=lambda place: [*tool, *system.command(place)])


def instructions(system: System, valgrind: str, upstream: str, folder: Path, requests: int) -> float:
    """Return the instructions of one small request in user space.

    :raises RuntimeError: the system did not start
    """
    running = start(counted(system, valgrind, folder), upstream, folder)
    try:
        _drive(running.port, "warm", WARM_REQUESTS)
        _count(running.pid, "on")
        _drive(running.port, "counted", requests)
        _count(running.pid, "off")
    finally:
        running.stop()
    totals = _TOTAL.findall((folder / "counted").read_text(encoding="utf-8"))
    return max(map(int, totals)) / requests


def _drive(port: int, tag: str, requests: int) -> None:
    bodies = work.small(requests)(tag).measured
    asyncio.run(load.drive(port, [load.request(PATH, body) for body in bodies], 1, LIMIT_SECONDS))


def _count(pid: int, switch: str) -> None:
    subprocess.run(["callgrind_control", "-i", switch, str(pid)], check=True, capture_output=True)  # noqa: S607


def main() -> None:
    """Count and print a line for each system."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=200, help="how many are counted (default: 200)")
    parser.add_argument("--libraries", action="store_true", help="Tidemark, and with each library in place of our code")
    options = parser.parse_args()
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        sys.exit("This needs valgrind: apt-get install valgrind")
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        upstream = start(UPSTREAM, "", folder / "upstream")
        try:
            floor = 0.0
            for system in (TIDEMARK, *LIBRARIES) if options.libraries else COUNTED:
                url = f"http://{load.HOST}:{upstream.port}"
                count = instructions(system, valgrind, url, folder / system.name, options.requests)
                floor = floor or count
                print(f"{system.name:<12}{count / 1000:>8,.0f} thousand{count / floor:>8.2f} x", flush=True)
        finally:
            upstream.stop()


if __name__ == "__main__":
    main()
