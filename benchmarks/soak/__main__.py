"""Runs Tidemark under a mixed load for an hour, and shows whether anything grows that should not; then spikes.

``make soak`` runs it; ``--quick`` takes a minute and a half, for CI. Tidemark runs as its users run it: two workers and
the embedded Valkey, before the benchmark's scripted upstream. ``clients`` makes the load in equal cycles, ``samples``
looks at memory, descriptors, sockets, threads, tasks and keys between them, and ``spike`` opens 2,000 streams at once
on one worker: without a bound, again, and with ``limits.max_streams``. The exit code is 1 where anything grows, a
request was answered wrongly, or a spike broke a stream or left something behind; the last lines name it.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.soak.clients import MODEL, Clients, headers_of
from benchmarks.soak.samples import Sample, Sampler, Verdict, compared, judged, metric
from benchmarks.soak.spike import Spike, run_spike
from benchmarks.speed.load import HOST
from benchmarks.speed.systems import UPSTREAM, Place, Running, System, start

WORKERS = 2
BOUNDED_STREAMS = 500
"""``limits.max_streams`` of the last spike."""
LONG_PACE, SHORT_PACE = "chunks=20 pace=500", "chunks=10 pace=200"
"""A stream of ten seconds, so that all are open at once, and one of two."""
LEAST_CYCLES = 12
SETTLE_SECONDS = 1.5
"""The workers show their state once a second."""
CALM_SECONDS = 30.0
"""The longest time after a spike until nothing of it is left."""
IN_PROGRESS = ("tidemark_requests_in_flight", "tidemark_streams_in_flight", "tidemark_preparations_in_flight")
SPIKE_KEY = "sk-bench"
"""The key of the spike's streams (``speed/load.py``)."""


def _system(workers: int, most_streams: int | None = None) -> System:
    def command(place: Place) -> list[str]:
        entry = "- model_name: {name}\n  litellm_params: {{model: openai/{name}, api_base: {base}/v1}}\n"
        lines = ["model_list:"]
        for name, window in {MODEL: 6_000, f"{MODEL}-wide": 1_000_000, "bench": 1_000_000}.items():
            lines.append(entry.format(name=name, base=place.upstream))
            lines.append(f"  model_info: {{max_input_tokens: {window}, max_output_tokens: 500}}")
        lines += [
            f"data_dir: {place.folder}",
            f"server: {{workers: {workers}}}",
            f"limits: {{max_streams: {most_streams or 'null'}}}",
            "compaction: {defaults: {strategy: extractive}}",
            "request_log: {entries: 200}",  # full before the first measurement, so that its filling is no growth
        ]
        config = place.folder / "tidemark.yaml"
        config.write_text("\n".join(lines), encoding="utf-8")
        return [sys.executable, "-m", "tidemark", "serve", "--config", str(config), "--port", str(place.port)]

    return System("tidemark", "Tidemark", command)


class Soak:
    """A running Tidemark with its clients. Mutable: what the clients counted.

    :param tidemark: the running command
    """

    def __init__(self, tidemark: Running) -> None:
        self.tidemark = tidemark
        self.clients = Clients(tidemark.port)
        self._sampler = Sampler(tidemark.pid, tidemark.place.folder)

    async def aclose(self) -> None:
        """Close all connections."""
        await self.clients.http.aclose()
        self._sampler.close()

    async def run(self, seconds: float) -> list[Sample]:
        """Run cycles for so long, and return a sample after each."""
        samples: list[Sample] = []
        until = time.monotonic() + seconds
        while time.monotonic() < until or len(samples) < LEAST_CYCLES:
            await self.clients.cycle()
            await self._settle()  # else a client that left may still get its conversation stored
            await self.clients.forget()
            samples.append(await self._sample())
            if len(samples) % 50 == 0:
                print(f"{len(samples)} cycles, {self.clients.answers.total():,} answers: {samples[-1]}", flush=True)
        return samples

    async def spike(self, streams: int, pace: str) -> tuple[Spike, Sample, Sample]:
        """Run a spike, delete its conversations, and return what was used before and after it."""
        await self._settle()
        before = await self._sample()
        spike = await run_spike(self.tidemark.port, self.tidemark.pid, streams, pace)
        await self._settle()
        until = time.monotonic() + CALM_SECONDS
        while True:
            await self.clients.forget_tenant(headers_of(SPIKE_KEY))  # again, since a conversation may be listed late
            after = await self._sample()
            if time.monotonic() > until or not any(verdict.grows for verdict in spike_verdicts(before, after)):
                return spike, before, after
            await asyncio.sleep(SETTLE_SECONDS)

    async def _settle(self) -> None:
        """Wait until no request is in progress."""
        while True:
            await asyncio.sleep(SETTLE_SECONDS)
            page = await self._metrics()
            if not any(metric(page, name) for name in IN_PROGRESS):
                return

    async def _sample(self) -> Sample:
        await self.clients.disconnect()
        return self._sampler.sample(await self._metrics())

    async def _metrics(self) -> str:
        return (await self.clients.http.get("/metrics")).text


def spike_verdicts(before: Sample, after: Sample) -> list[Verdict]:
    """Compare what was used before and after a spike.

    Python and the store's allocator keep some of the memory that the streams needed, for the next ones, and Python the
    threads of its pools. Whether that grows, a second spike shows. What the store itself holds is judged here.
    """
    verdicts = compared([before], [after])
    return [verdict for verdict in verdicts if verdict.name not in {"worker_mb", "store_mb", "threads"}]


def report_spike(spike: Spike, *, is_bounded: bool) -> list[str]:
    """Print what became of a spike's streams, and return what is wrong with it."""
    bound = f"limits.max_streams {BOUNDED_STREAMS}" if is_bounded else "no bound"
    print(f"spike of {spike.streams:,} streams on one worker, {bound}, {spike.seconds:.1f} s:")
    print(
        f"  {spike.whole:,} whole, {spike.broken.total():,} broken, {spike.refusals:,} answers of 503 with Retry-After"
    )
    print(f"  {spike.stream_kb:.0f} KB of memory a stream more than before")
    wrong = [f"{number} streams of a spike broken: {what}" for what, number in spike.broken.items()]
    if bool(spike.refusals) != (is_bounded and spike.streams > BOUNDED_STREAMS):
        wrong.append(f"{spike.refusals} refusals of a spike with {bound}")
    return wrong


def print_verdicts(title: str, verdicts: list[Verdict]) -> list[str]:
    """Print how each number went, and return what grew."""
    print(f"{title:36} {'first':>9} {'last':>9} {'most':>9}")
    for verdict in verdicts:
        mark = "  GROWS" if verdict.grows else ""
        print(f"{verdict.name:36} {verdict.first:9.1f} {verdict.last:9.1f} {verdict.most:9.1f}{mark}")
    growing = [verdict for verdict in verdicts if verdict.grows]
    return [f"{verdict.name} grew from {verdict.first:.1f} to {verdict.last:.1f}: {title}" for verdict in growing]


async def soaked(tidemark: Running, minutes: float) -> list[str]:
    """Run the cycles, print how each number went, and return what is wrong."""
    soak = Soak(tidemark)
    try:
        samples = await soak.run(60 * minutes)
    finally:
        await soak.aclose()
    wrong = print_verdicts(f"{len(samples)} cycles, {minutes:g} minutes", judged(samples))
    print(f"answered as they should be: {dict(soak.clients.answers)}")
    return wrong + [f"{number} answers: {what}" for what, number in soak.clients.failures.items()]


async def spiked_twice(tidemark: Running, streams: int) -> list[str]:
    """Run a spike without a bound, and a second one, which must leave nothing more; return what is wrong."""
    soak = Soak(tidemark)
    try:
        first, before, between = await soak.spike(streams, LONG_PACE)
        second, _, after = await soak.spike(streams, LONG_PACE)
    finally:
        await soak.aclose()
    wrong = report_spike(first, is_bounded=False) + report_spike(second, is_bounded=False)
    wrong += print_verdicts("before and after a spike", spike_verdicts(before, between))
    return wrong + print_verdicts("after one spike and after two", compared([between], [after]))


async def spiked_beyond(tidemark: Running, streams: int) -> list[str]:
    """Run a spike beyond the bound, and return what is wrong."""
    soak = Soak(tidemark)
    try:
        spike, before, after = await soak.spike(streams, SHORT_PACE)
    finally:
        await soak.aclose()
    wrong = report_spike(spike, is_bounded=True)
    return wrong + print_verdicts("before and after it", spike_verdicts(before, after))


@contextmanager
def _running(system: System, upstream: Running, folder: Path) -> Iterator[Running]:
    tidemark = start(system, f"http://{HOST}:{upstream.port}", folder)
    try:
        yield tidemark
    finally:
        tidemark.stop()


def run(options: argparse.Namespace, folder: Path) -> list[str]:
    """Start everything, soak and spike, and return what is wrong."""
    upstream = start(UPSTREAM, "", folder / "upstream")
    steps: list[tuple[System, Callable[[Running], list[str]]]] = [
        (_system(WORKERS), lambda tidemark: asyncio.run(soaked(tidemark, options.minutes))),
        (_system(1), lambda tidemark: asyncio.run(spiked_twice(tidemark, options.streams))),
        (_system(1, BOUNDED_STREAMS), lambda tidemark: asyncio.run(spiked_beyond(tidemark, options.streams))),
    ]
    wrong = []
    try:
        for number, (system, step) in enumerate(steps):
            with _running(system, upstream, folder / f"tidemark-{number}") as tidemark:
                wrong += step(tidemark)
            print(flush=True)
    finally:
        upstream.stop()
    return wrong


def main() -> int:
    """Soak, print what grew or went wrong, and return whether anything did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0, help="of the mixed load (60)")
    parser.add_argument("--streams", type=int, default=2000, help="of each spike (2000)")
    parser.add_argument("--quick", action="store_true", help="half a minute of the mixed load")
    options = parser.parse_args()
    if options.quick:
        options.minutes = 0.5
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard < 2 * options.streams + 200:
        parser.error(
            f"{options.streams} streams need {2 * options.streams + 200} open files, and `ulimit -Hn` is {hard}"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with tempfile.TemporaryDirectory(prefix="tidemark-soak-") as folder:
        wrong = run(options, Path(folder))
    print("\n".join(wrong) if wrong else "Nothing grew, and every request was answered as it should be.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
