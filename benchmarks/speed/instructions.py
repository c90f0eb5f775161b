"""Counts the instructions of a small request, which no other program on the machine disturbs.

``make bench-instructions`` runs it. Valgrind runs the bare relay, the sketch and Tidemark on a simulated processor,
some fifty times slower, and counts their instructions in user space, without the kernel and the store. The same code
gives the same figure within 0.5 % on a quiet machine, and up to 8 % more on a busy one, where timers and threads run
more often for each request. So the least of several counts is compared (``ratchet.py``).
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from benchmarks.speed import load, ratchet
from benchmarks.speed.systems import ENCRYPTED, FLOOR, LIBRARIES, SKETCH, TIDEMARK, UPSTREAM, System, start
from benchmarks.speed.work import Work, dialects, small

CHAT = Work("small", "small request", small(100))
COUNTED: Sequence[System] = (FLOOR, SKETCH, TIDEMARK)
WARM_REQUESTS = 200
"""The requests before the counted ones: Python specialises its bytecode, connections open and caches fill."""
LIMIT_SECONDS = 400.0
_TOTAL = re.compile(r"^(?:totals|summary): (\d+)", re.MULTILINE)


def counted(system: System, valgrind: str, folder: Path) -> System:
    """Return a system that counts its instructions into ``folder`` while counting is switched on."""
    tool = [valgrind, "--tool=callgrind", "--instr-atstart=no", f"--callgrind-out-file={folder}/counted"]
    return replace(system, command=lambda place: [*tool, *system.command(place)])


def instructions(system: System, valgrind: str, upstream: str, folder: Path, kind: Work, *, requests: int) -> float:
    """Return the instructions of one small request in user space.

    :param kind: makes the requests, in one format
    :raises RuntimeError: the system did not start
    """
    running = start(counted(system, valgrind, folder), upstream, folder)
    try:
        _drive(running.port, "warm", WARM_REQUESTS, kind)
        _count(running.pid, "on")
        _drive(running.port, "counted", requests, kind)
        _count(running.pid, "off")
    finally:
        running.stop()
    totals = _TOTAL.findall((folder / "counted").read_text(encoding="utf-8"))
    return max(map(int, totals)) / requests


def _drive(port: int, tag: str, requests: int, kind: Work) -> None:
    bodies: list[bytes] = []
    while len(bodies) < requests:
        bodies += kind.make(f"{tag}-{len(bodies)}").measured
    asyncio.run(load.drive(port, [load.request(kind.path, body) for body in bodies[:requests]], 1, LIMIT_SECONDS))


def _count(pid: int, switch: str) -> None:
    subprocess.run(["callgrind_control", "-i", switch, str(pid)], check=True, capture_output=True)  # noqa: S607


def _counted(options: argparse.Namespace) -> list[tuple[System, Work]]:
    """Return what is counted; all are compared with the first."""
    if options.dialects:
        kinds = dialects()
        return [(TIDEMARK, CHAT), *((TIDEMARK, kind) for kind in kinds), (FLOOR, kinds[-1])]
    if options.encryption:
        return [(system, CHAT) for _ in range(options.encryption) for system in (TIDEMARK, ENCRYPTED)]
    return [(system, CHAT) for system in ((TIDEMARK, *LIBRARIES) if options.libraries else COUNTED)]


def _hold(options: argparse.Namespace, valgrind: str, upstream: int, folder: Path) -> None:
    """Check the figure of Tidemark, or accept it."""
    places = itertools.count()

    def count() -> float:
        url, place = f"http://{load.HOST}:{upstream}", folder / f"held-{next(places)}"
        return instructions(TIDEMARK, valgrind, url, place, CHAT, requests=options.requests) / 1000

    if options.accept:
        accepted = ratchet.accept(count, options.accept)
        print(f"{accepted.thousands:,.0f} thousand instructions are accepted: {accepted.why}")
    elif problem := ratchet.check(count, ratchet.history()):
        sys.exit(problem)


def main() -> None:
    """Count and print a line for each system."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=200, help="how many are counted (default: 200)")
    parser.add_argument("--libraries", action="store_true", help="Tidemark, and with each library in place of our code")
    parser.add_argument(
        "--dialects", action="store_true", help="Tidemark in each dialect, and the relay and Tidemark carrying"
    )
    parser.add_argument(
        "--encryption", type=int, metavar="N", help="Tidemark without and with encryption, N times in turn"
    )
    parser.add_argument("--check", action="store_true", help="fail at more than 1 %% above what was accepted last")
    parser.add_argument("--accept", metavar="WHY", help="accept what a request takes now, with the reason")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw all accepted figures as SVG, and count nothing")
    options = parser.parse_args()
    if options.plot:
        options.plot.write_text(ratchet.plot(ratchet.history()), encoding="utf-8")
        return
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        sys.exit("This needs valgrind: apt-get install valgrind")
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        upstream = start(UPSTREAM, "", folder / "upstream")
        try:
            if options.check or options.accept:
                _hold(options, valgrind, upstream.port, folder)
                return
            floor, places = 0.0, itertools.count()
            for system, kind in _counted(options):
                url = f"http://{load.HOST}:{upstream.port}"
                place = folder / f"{next(places)}-{system.name}-{kind.name}"
                count = instructions(system, valgrind, url, place, kind, requests=options.requests)
                floor = floor or count
                name = system.name if kind is CHAT else f"{system.name} {kind.name}"
                print(f"{name:<28}{count / 1000:>8,.0f} thousand{count / floor:>8.2f} x", flush=True)
        finally:
            upstream.stop()


if __name__ == "__main__":
    main()
