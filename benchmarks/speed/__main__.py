"""Measures what Tidemark costs beside a bare relay and its peers (``docs/benchmarks.md``).

``python -m benchmarks.speed`` runs it.
"""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import msgspec

from benchmarks.speed import figures, goals, load, machine, saved, shares, table
from benchmarks.speed.figures import Report
from benchmarks.speed.peers import PEERS, installed
from benchmarks.speed.run import measure, open_bench, suits
from benchmarks.speed.systems import FLOOR, SKETCH, TIDEMARK, TRANSLATED, System
from benchmarks.speed.work import COLD, Work, works


def import_seconds() -> float:
    """Return the seconds of importing litellm in a fresh interpreter; the translate lane needs it to answer."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import litellm"], check=True, env={"LITELLM_LOCAL_MODEL_COST_MAP": "True"})
    return time.perf_counter() - began


def parsing_ms(work: Work) -> float:
    """Return the processor time of decoding the JSON of a work's body alone."""
    bodies = work.make("parsing").measured[:5]
    times = []
    for body in bodies * 5:
        began = time.process_time_ns()
        msgspec.json.decode(body)
        times.append((time.process_time_ns() - began) / 1e6)
    return statistics.median(times)


def run(systems: Sequence[System], chosen: Sequence[Work], rounds: int, starts: int) -> Report:
    """Start, measure and stop everything."""
    facts = machine.facts()
    extra = {"litellm_import_seconds": statistics.median(import_seconds() for _ in range(starts))}
    extra |= {f"parsing_{work.name}_ms": parsing_ms(work) for work in chosen if work.name.startswith("history")}
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder, ExitStack() as stack:
        bench = open_bench(systems, Path(folder), stack, starts)
        for line in measure(bench, chosen, rounds):
            print(line, file=sys.stderr, flush=True)
        after = {system.system.name: machine.memory_kb(system.pid) for system in bench.running}
        upstream = f"http://{load.HOST}:{bench.upstream.port}"
        sampled = [system for system in systems if system in (TIDEMARK, TRANSLATED)]
        return Report(
            machine=facts,
            rounds=rounds,
            works={work.name: work.title for work in (COLD, *chosen)},
            systems=figures.of_systems(bench, after),
            figures=figures.all_figures(bench.rounds),
            alone=[work.name for work in chosen if work.concurrency == 1],
            skipped=bench.skipped,
            extra=extra,
            shares={
                system.name: shares.shares_of(
                    system,
                    [work for work in chosen if suits(work, system)],
                    upstream,
                    Path(folder) / f"{system.name}-shares",
                )
                for system in sampled
            },
        )


def surprises(report: Report, chosen: Sequence[Work]) -> list[str]:
    """List the works in which Tidemark failed or acted otherwise than expected; their figures mean nothing."""
    surprises_ = []
    for work in chosen:
        done = report.at(TIDEMARK.name, work.name)
        if done and (done.failed or set(done.actions) != {work.action} - {""}):
            surprises_.append(f"{work.name}: expected {work.action}, got {dict(done.actions)}, {done.failed} failed")
    return surprises_


def systems(*, quick: bool, peers: Sequence[str] | None) -> list[System]:
    """Return the measured systems."""
    if quick:
        return [FLOOR, TIDEMARK]
    there = [peer for peer in PEERS if installed(peer)]
    for peer in PEERS:
        if peer not in there:
            print(f"{peer.name} is not installed and left out; make bench-peers installs it", file=sys.stderr)
    return [FLOOR, SKETCH, TIDEMARK, TRANSLATED, *(peer for peer in there if peers is None or peer.name in peers)]


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(prog="benchmarks.speed", description=__doc__)
    parser.add_argument("--rounds", type=int, help="interleaved rounds (5, quickly 8)")
    parser.add_argument("--only", nargs="+", metavar="WORK", help="these works")
    parser.add_argument("--peers", nargs="*", metavar="PEER", help="these peers of those installed; none named: none")
    parser.add_argument("--quick", action="store_true", help="three works, Tidemark and the floor")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was found")
    parser.add_argument(
        "--from", type=Path, metavar="FILE", dest="kept", help="show what --json wrote; measure nothing"
    )
    parser.add_argument("--save", action="store_true", help="keep the ratios, the tables and the plots of this run")
    return parser


def main() -> int:
    """Measure as the arguments say; the exit code is 1 where a ratio regressed, 2 where the works went wrong."""
    options = arguments().parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C does: what was started is ended
    chosen = [work for work in works(quick=options.quick) if not options.only or work.name in options.only]
    if options.kept:
        report = figures.read(options.kept)
    else:
        rounds, starts = (8, 1) if options.quick else (5, 3)
        report = run(systems(quick=options.quick, peers=options.peers), chosen, options.rounds or rounds, starts)
        report = replace(report, kind="quick" if options.quick else "full")
    print(table.text(report))
    print("\n".join(["", *goals.lines(report)]))
    if options.json:
        options.json.write_text(json.dumps(report.plain(), indent=1), encoding="utf-8")
    wrong = surprises(report, chosen)
    print("\n".join(wrong), file=sys.stderr)
    if options.save and not wrong:
        saved.keep(report)
        return 0
    worse = saved.compared(report)
    print("\n".join(worse))
    return 2 if wrong else 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
