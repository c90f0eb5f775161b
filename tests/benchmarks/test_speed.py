"""The parts of the benchmark of speed: a tiny run of the floor and Tidemark, and what is made of figures."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.speed import figures, goals, load, plot, saved, shares, table, upstream, work
from benchmarks.speed.__main__ import arguments
from benchmarks.speed.figures import Figures, Report
from benchmarks.speed.peers import DONE, PEERS, REQUIREMENTS, installed
from benchmarks.speed.run import Bench, Measured, measure, open_bench, suits
from benchmarks.speed.systems import FLOOR, TIDEMARK, TRANSLATED
from benchmarks.speed.work import NARROW, Work
from tests.docs.pages import names_in

MACHINE = {
    "date": "2026-11-22",
    "system": "Linux x86_64",
    "cores": "2",
    "processor": "made up",
    "python": "3.11",
    "load": "0.1",
}
TINY = [
    Work("small", "small request", work.small(3)),
    Work("history-10", "10 messages", work.history(10, 400, 1, 2)),
    Work("stream", "5 chunks", work.streams(4, 5, 1), 2),
    Work("reused", "a stored summary", work.history(700, 467, 1, 2, NARROW), action="reused", ours=True),
    Work("crossing", "a prepared summary", work.crossing(1), action="compacted", ours=True),
]


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    """The floor and Tidemark, one round of each tiny work done."""
    with ExitStack() as stack:
        made = open_bench([FLOOR, TIDEMARK], tmp_path_factory.mktemp("bench"), stack)
        assert made.skipped == {}
        assert list(measure(made, TINY, 1))
        yield made


def made_up(cpu: float = 1.0, first: float = 1.0) -> Figures:
    """Figures of a work."""
    round_ = Measured(cpu_ms=cpu, first_ms=[first] * 20, whole_ms=[first] * 20, per_second=10)
    floor = Measured(cpu_ms=0.5, first_ms=[0.5] * 3, whole_ms=[0.5] * 3, per_second=20)
    ours = Measured(cpu_ms=1.0)
    return figures.of_work([round_], [floor], [floor], [ours])


def report(tidemark: Figures | None = None, litellm: Figures | None = None) -> Report:
    """A report of two works on four systems."""
    both = {"small": made_up(0.5, 0.5), "history-1000": made_up(2.0, 3.0)}
    ours = {"small": tidemark or made_up(), "history-1000": made_up(5.0, 7.0)}
    theirs = {"small": litellm or made_up(40.0, 50.0)}
    return Report(
        machine=MACHINE,
        rounds=3,
        works={"small": "small request", "history-1000": "467 KB"},
        systems={"tidemark": {"ready_seconds": 1.5, "rest_mb": 140.0, "after_mb": 150.0}},
        figures={"direct": both, "floor": both, "tidemark": ours, "litellm": theirs},
        alone=["small", "history-1000"],
        skipped={"headroom": "it is not installed"},
        extra={"litellm_import_seconds": 4.0},
    )


def test_every_system_does_every_work_and_is_measured(bench: Bench) -> None:
    """Nothing fails, and each process's time is its own."""
    found = figures.all_figures(bench.rounds)
    assert set(found) == {"direct", "floor", "tidemark"}
    for system, of_system in found.items():
        assert set(of_system) == {"cold", *(one.name for one in TINY)}, system
        assert all(one.failed == one.missing == 0 for one in of_system.values()), of_system
        assert all(one.cpu_ms > 0 and one.first_p50_ms > 0 for one in of_system.values())
    # Counting 467 KB takes many times what relaying them does, however busy the machine is.
    assert found["tidemark"]["cold"].cpu_ms > found["floor"]["cold"].cpu_ms
    assert found["tidemark"]["small"].store_ms > 0
    assert found["floor"]["small"].store_ms == 0


@pytest.mark.parametrize("name", [one.name for one in TINY])
def test_tidemark_does_what_the_work_is_about(bench: Bench, name: str) -> None:
    """A work that is to reuse a summary does; a run where it did not says so."""
    chosen = next(one for one in TINY if one.name == name)
    assert set(figures.all_figures(bench.rounds)["tidemark"][name].actions) == {chosen.action}


def test_starts_and_memory_are_noted(bench: Bench) -> None:
    """Of both systems."""
    noted = figures.of_systems(bench, {"tidemark": 2048})
    assert noted["tidemark"]["after_mb"] == 2
    assert all(one["ready_seconds"] > 0 and one["rest_mb"] > 10 for one in noted.values())


def test_a_history_grows_by_a_turn_and_keeps_its_beginning() -> None:
    """As a client sends it: the upstream's answer, then the next question."""
    batch = work.history(10, 400, 2, 2)("t")
    assert len(batch.before) == 2
    seen = [json.loads(body)["messages"] for body in (batch.before[0], *batch.measured[:2])]
    assert len(seen[0]) in {9, 10}
    for shorter, longer in itertools.pairwise(seen):
        assert longer[: len(shorter)] == shorter
        assert [one["role"] for one in longer[len(shorter) :]] == ["assistant", "user"]
        assert longer[-2]["content"] == upstream.REPLY


def test_no_round_knows_a_message_of_another() -> None:
    """What a cache has of one round is of no use in the next."""
    texts = [
        {one["content"] for one in json.loads(work.unseen(20, 467, 1)(tag).measured[0])["messages"]} for tag in "ab"
    ]
    assert not texts[0] & texts[1]


def test_the_works_are_as_large_as_their_titles_say() -> None:
    """467 KB, 40 KB and 4 KB."""
    sizes = {one.name: len(one.make("t").before[0]) for one in work.works(quick=False) if one.name.startswith("hist")}
    for name, size in {"history-1000": 467_000, "history-100": 40_000, "history-10": 4_000}.items():
        assert sizes[name] == pytest.approx(size, rel=0.2)


def test_the_page_names_every_work_and_argument() -> None:
    """And no other."""
    assert names_in("docs/benchmarks.md", "work") == {one.name for one in (work.COLD, *work.works(quick=False))}
    options = {name for name in arguments().format_help().replace("[", " ").split() if name.startswith("--")}
    assert names_in("docs/benchmarks.md", "argument") == {name.strip(",]") for name in options} - {"--help"}


def test_the_newest_wish_holds() -> None:
    """A message of an old turn does not decide about the new one."""
    assert upstream.wish(b"chunks=5 pace=1 ... chunks=100 pace=20 ...") == (100, 0.02)
    assert upstream.wish(b"no wish") == (0, 0.0)
    assert len(upstream.pieces(100)) == 103


async def test_an_answer_that_ends_with_its_connection_is_whole() -> None:
    """And the next request gets a connection of its own."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\ndata: [DONE]\n\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, load.HOST, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        outcome = await load.drive(port, [load.request("/", b"")] * 3, 1, 10)
    assert [one.good for one in outcome.answers] == [True] * 3


async def test_a_server_that_stands_still_ends_with_the_time_limit() -> None:
    """What was not answered is missing, and nothing hangs."""

    async def ignore(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(ignore, load.HOST, 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        outcome = await load.drive(port, [load.request("/", b"")] * 2, 2, 0.1)
    assert outcome.answers == []


def test_peers_are_given_no_work_that_is_ours() -> None:
    """And the translate lane only those that it is there for."""
    assert not any(suits(one, PEERS[0]) for one in TINY if one.ours)
    assert [one.name for one in TINY if suits(one, TRANSLATED)] == ["small"]


def test_a_peer_of_another_version_is_not_installed(tmp_path: Path) -> None:
    """The pin decides."""
    folder = tmp_path / PEERS[0].name
    folder.mkdir()
    assert not installed(PEERS[0], tmp_path)
    (folder / DONE).write_text(REQUIREMENTS[PEERS[0].name])
    assert installed(PEERS[0], tmp_path)
    (folder / DONE).write_text("something==0.0.1")
    assert not installed(PEERS[0], tmp_path)


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    """Each round against the floor of the same round, so that a busy minute counts once."""
    rounds = [Measured(cpu_ms=cpu, first_ms=[1.0]) for cpu in (2.0, 30.0, 2.2)]
    floor = [Measured(cpu_ms=cpu, first_ms=[1.0]) for cpu in (1.0, 10.0, 1.0)]
    assert figures.of_work(rounds, floor, floor).ratios["cpu"] == 2.2


def test_only_what_grew_by_over_a_fifth_has_regressed() -> None:
    """What one side did not measure is not compared."""
    before = {"small/cpu": 2.0, "history/cpu": 3.0, "stream/cpu": 1.0}
    now = {"small/cpu": 2.39, "history/cpu": 3.61, "new/cpu": 9.0}
    assert figures.regressions(now, before) == ["history/cpu: 3.00 before, 3.61 now (+20%)"]


def test_ratios_are_held_against_those_of_the_same_machine_only(tmp_path: Path) -> None:
    """A kept run is what the next one is compared with."""
    path = tmp_path / "ratios.json"
    assert saved.compared(report(), path) == []
    saved.keep(report(), path, tmp_path / "plots", page=None)
    assert saved.compared(report(), path) == []
    slower = report(made_up(1.5, 1.5))
    assert saved.compared(slower, path) == [
        "small/cpu: 2.00 before, 3.00 now (+50%)",
        "small/first: 2.00 before, 3.00 now (+50%)",
    ]
    assert saved.compared(replace(slower, machine={**MACHINE, "processor": "another"}), path) == []
    assert saved.compared(replace(slower, kind="quick"), path) == []
    saved.keep(replace(slower, kind="quick"), path, tmp_path / "none", page=None)
    assert saved.compared(slower, path) != []
    assert not (tmp_path / "none").exists()


def test_a_run_that_was_kept_is_read_back(tmp_path: Path) -> None:
    """All of it."""
    path = tmp_path / "run.json"
    path.write_text(json.dumps(report().plain()))
    assert figures.read(path) == report()


def test_goals_are_reached_or_missed() -> None:
    """Those that the run says nothing about are left out."""
    lines = list(goals.lines(report()))
    assert "reached  small request: CPU, times the floor: 2.00 (at most 2.50)" in lines
    assert "reached  small request: LiteLLM's CPU, times ours: 40.00 (at least 30.00)" in lines
    assert "reached  ready to serve: 1.50 s (at most 4.50)" in lines
    assert "MISSED   467 KB, warm: p50 to first byte above the floor: 4.00 ms (at most 2.50)" in lines
    assert not any("500 streams" in line or "awecompress" in line for line in lines)
    assert any(line.startswith("MISSED") and "LiteLLM" in line for line in goals.lines(report(litellm=made_up())))


def test_the_table_shows_every_system_with_its_ratio() -> None:
    """And says what was left out, and where it was measured."""
    text = table.text(report())
    assert "made up" in text
    assert "headroom was left out: it is not installed" in text
    row = next(line for line in text.splitlines() if line.startswith("litellm")).split()
    assert row[1:4] == ["40.00", "80.00", "40.00"]


def test_a_page_gets_the_figures_where_it_has_a_place_for_them() -> None:
    """Twice gives the same."""
    begin, end = saved.marks("figures")
    page = f"before\n{begin}\nold\n{end}\nafter\n"
    once = saved.placed(page, "figures", table.markdown(report()))
    assert once.startswith("before\n")
    assert once.endswith("\nafter\n")
    assert "| small request | 0.5 / 0.5 | 0.5 / 0.5 | 1.0 / 1.0 | 50.0 / 50.0 |" in once
    assert "0.50 (1.0)" not in once  # the page's first table has it
    assert "| floor | 0.50 (1.0) | 2.00 (4.0) |" in table.brief(report())
    assert saved.placed(once, "figures", table.markdown(report())) == once
    assert saved.placed("no place", "figures", "a table") == "no place"


def test_the_committed_page_has_a_place_for_every_table(tmp_path: Path) -> None:
    """A full run that is kept renews them all, and nothing beside them."""
    page = tmp_path / "benchmarks.md"
    page.write_text(saved.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    full = report()
    saved.keep(full, tmp_path / "ratios.json", tmp_path / "plots", page)
    text = page.read_text(encoding="utf-8")
    for name, table_of in saved.TABLES.items():
        begin, end = saved.marks(name)
        assert f"{begin}\n{table_of(full)}\n{end}" in text


def test_the_page_says_how_many_requests_failed() -> None:
    """A fast answer to a fifth of the requests is no achievement."""
    losing = replace(made_up(), failed=4, missing=6)
    assert "1.0 / 1.0, 10 of 30 failed" in table.markdown(report(losing))


def test_a_plot_is_a_drawing_with_a_line_for_each_system() -> None:
    """Of those that did at least two lengths."""
    drawn = plot.all_plots(report())
    assert set(drawn) == {"cpu", "first-byte"}
    tree = ET.fromstring(drawn["cpu"])  # noqa: S314 - our own
    names = [one.text for one in tree.iter("{http://www.w3.org/2000/svg}text")]
    assert {"tidemark", "floor"} <= set(names)
    assert len(list(tree.iter("{http://www.w3.org/2000/svg}polyline"))) == 2
    assert plot.all_plots(replace(report(), figures={})) == {}


def test_the_summary_shows_machine_date_and_the_works_that_users_meet() -> None:
    """Short: one row for each system, and each work that was measured."""
    told = table.brief(report())
    assert told.startswith("Measured ")
    assert "| tidemark |" in told
    assert "| direct |" not in told


def test_the_shares_of_a_work_are_told_with_the_relays() -> None:
    """Largest first; what is small is added up, and without a relay nothing is said of it."""
    parts = {"own code": 0.6, "Python": 0.385, "yaml": 0.015}
    assert shares.line(parts, 2.5) == "own code 60%, Python 38%, others 2%; the bare relay takes 40% of it"
    assert shares.line(parts, 0) == "own code 60%, Python 38%, others 2%"
    sampled = replace(report(), shares={"tidemark": {"small": parts}})
    assert "CPU of tidemark: own code 60%" in table.text(sampled)


def test_a_file_belongs_to_our_code_a_library_or_python() -> None:
    """The frame below all calls is the event loop's."""
    named = {
        "/x/proxy/tidemark/server/load.py": "own code",
        "/x/lib/python3.11/site-packages/httpx/_client.py": "httpx",
        "/x/lib/python3.11/site-packages/typing_extensions.py": "typing_extensions",
        "/x/lib/python3.11/json/decoder.py": "Python",
        "/x/lib/python3.11/asyncio/runners.py": "uvloop",
    }
    assert {name: shares.part_of(name) for name in named} == named


def test_a_tidemark_that_samples_itself_serves_and_says_what_took_its_time(bench: Bench, tmp_path: Path) -> None:
    """The parts of a work together are all of it."""
    chosen = Work("small", "small request", work.small(100))
    upstream_url = f"http://{load.HOST}:{bench.upstream.port}"
    parts = shares.shares_of(TIDEMARK, [chosen], upstream_url, tmp_path)["small"]
    assert "own code" in parts
    assert sum(parts.values()) == pytest.approx(1)
