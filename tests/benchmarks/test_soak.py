"""What the soak and its spikes judge: a number that grows is named, and one that goes up and down is not."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from benchmarks.soak.__main__ import print_verdicts, report_spike, spike_verdicts
from benchmarks.soak.samples import BOUNDS, Sample, compared, judged, metric
from benchmarks.soak.spike import Spike, run_spike
from tests.support.clusters import free_ports

STEADY = Sample(
    worker_mb=300.0, store_mb=9.0, store_used_mb=2.0, descriptors=90, sockets=30, threads=27, tasks=11, keys=40
)


def sample_with_more(name: str, by: float) -> Sample:
    """Make a sample with more of one thing."""
    return replace(STEADY, **{name: getattr(STEADY, name) + by})


def test_a_steady_soak_passes() -> None:
    """Though single samples are higher."""
    samples = [sample_with_more("sockets", 9 if place % 5 == 0 else 0) for place in range(40)]
    assert not [verdict for verdict in judged(samples) if verdict.grows]


@pytest.mark.parametrize("name", BOUNDS)
def test_what_grows_slowly_and_steadily_is_named(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """By its name, with its numbers, in the table and in the list at the end."""
    samples = [sample_with_more(name, place) for place in range(80)]
    (wrong,) = print_verdicts("a soak", judged(samples))
    assert wrong.startswith(f"{name} grew from ")
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "GROWS" in line]
    assert line.startswith(name)


@pytest.mark.parametrize("name", BOUNDS)
def test_what_the_first_cycles_fill_is_not_judged(name: str) -> None:
    """Caches and pools fill, and then they stay."""
    samples = [replace(STEADY, **{name: 0}), *[sample_with_more(name, 50)] * 39]
    assert not [verdict for verdict in judged(samples) if verdict.grows]


@pytest.mark.parametrize("name", ["worker_mb", "store_mb"])
def test_resident_memory_after_a_spike_is_compared_with_that_after_another_one(name: str) -> None:
    """Allocators keep some of what the first one needed."""
    assert not [one for one in spike_verdicts(STEADY, sample_with_more(name, 80)) if one.grows]
    assert [one.name for one in compared([STEADY], [sample_with_more(name, 80)]) if one.grows] == [name]


@pytest.mark.parametrize("name", ["store_used_mb", "descriptors"])
def test_what_the_first_spike_leaves_in_use_is_named(name: str) -> None:
    """No second one has to show it."""
    assert [one.name for one in spike_verdicts(STEADY, sample_with_more(name, 80)) if one.grows] == [name]


def test_a_spike_without_a_bound_must_have_no_refusal_and_one_beyond_it_some() -> None:
    """Both would show that the bound does not do what it says."""
    whole, shed = Spike(2000, whole=2000), Spike(2000, whole=2000, refusals=1500)
    assert report_spike(whole, is_bounded=False) == report_spike(shed, is_bounded=True) == []
    assert report_spike(shed, is_bounded=False)
    assert report_spike(whole, is_bounded=True)


@pytest.mark.parametrize(
    ("answer", "cause"),
    [
        (b"HTTP/1.1 503 S\r\ncontent-length: 10\r\n\r\noverloaded", "status 503"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\ndata: half\n\n", "status 200"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 12\r\n\r\ndata:", "ConnectionError"),
    ],
    ids=["no Retry-After", "no end", "cut short"],
)
def test_a_stream_that_is_not_whole_is_broken(answer: bytes, cause: str) -> None:
    """And so is a refusal that does not say when to come back."""

    async def spike() -> Spike:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer)
            writer.close()

        (port,) = free_ports(1)
        async with await asyncio.start_server(serve, "127.0.0.1", port):
            return await run_spike(port, 1, 3, "chunks=1 pace=1")

    done = asyncio.run(spike())
    assert done.broken.total() == 3
    assert all(what.startswith(cause) for what in done.broken)


def test_a_metric_is_the_sum_of_its_series() -> None:
    """And not of those whose names begin alike."""
    page = 'a{x="1"} 2\na{x="2"} 3.5\na_total 7\n# a 9\n'
    assert metric(page, "a") == 5.5
    assert metric(page, "a_total") == 7
