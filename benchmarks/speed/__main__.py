"""``python -m benchmarks.speed``: what Tidemark costs, beside a bare relay and its peers. See ``docs/benchmarks.md``."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from benchmarks.speed import figures, machine, table
from benchmarks.speed.peers import FLOOR, TIDEMARK, System
from benchmarks.speed.run import Bench, measure, open_bench
from benchmarks.speed.work import Work, works

COMMITTED = Path(__file__).with_name("ratios.json")


def import_seconds() -> float:
    """How long importing litellm takes in a fresh interpreter; Tidemark cannot forward before that."""
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "import litellm"], check=True, env={"LITELLM_LOCAL_MODEL_COST_MAP": "True"})
    return time.perf_counter() - began


def run(systems: Sequence[System], chosen: Sequence[Work], rounds: int) -> figures.Report:
    """Start, measure and stop everything."""
    facts = machine.facts()
    extra = {"litellm_import_seconds": import_seconds()}
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as folder, ExitStack() as stack:
        bench = open_bench(systems, Path(folder), stack)
        for line in measure(bench, chosen, rounds):
            print(line, file=sys.stderr, flush=True)
        after = {one.system.name: machine.memory_kb(one.pid) for one in bench.running}
        return report_of(bench, chosen, facts, rounds, after, extra)


def report_of(
    bench: Bench,
    chosen: Sequence[Work],
    facts: dict[str, str],
    rounds: int,
    after: dict[str, int],
    extra: dict[str, float],
) -> figures.Report:
    """What a bench found."""
    return figures.Report(
        machine=facts,
        rounds=rounds,
        works={work.name: work.title for work in chosen},
        systems=figures.of_systems(bench, after),
        figures=figures.all_figures(bench.rounds),
        skipped=bench.skipped,
        extra=extra,
    )


def main() -> int:
    """Measure as the arguments say; the exit code is 1 where something regressed."""
    parser = argparse.ArgumentParser(prog="benchmarks.speed", description=__doc__)
    parser.add_argument("--rounds", type=int, default=7, help="interleaved rounds (7)")
    parser.add_argument("--only", nargs="+", metavar="WORK", help="these works")
    parser.add_argument("--quick", action="store_true", help="three works, Tidemark and the floor")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was found")
    asked = parser.parse_args()
    chosen = [work for work in works(quick=asked.quick) if not asked.only or work.name in asked.only]
    report = run([FLOOR, TIDEMARK], chosen, asked.rounds)
    print(table.text(report))
    if asked.json:
        asked.json.write_text(json.dumps(report.plain(), indent=1), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
