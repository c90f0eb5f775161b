"""What ``make bench-instructions`` counts, and what it says where it cannot."""

from __future__ import annotations

import platform
import re
import shutil
import sys
from itertools import repeat
from pathlib import Path

import pytest

from benchmarks.speed import instructions, ratchet
from benchmarks.speed.load import HOST
from benchmarks.speed.systems import FLOOR, UPSTREAM, start


def test_without_valgrind_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the mend."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", ["instructions"])
    with pytest.raises(SystemExit, match="apt-get install valgrind"):
        instructions.main()


def accepted(
    thousands: float, python: str = platform.python_version(), processor: str | None = None
) -> ratchet.Accepted:
    """A figure as the history has it."""
    return ratchet.Accepted(
        "2026-11-26", "abc", python, ratchet.maker() if processor is None else processor, thousands, "a reason"
    )


def test_a_rise_of_more_than_a_hundredth_fails_and_says_how_to_accept_it() -> None:
    """The last figure counts, whatever stood before it."""
    figures = [accepted(2000), accepted(1000)]
    problem = ratchet.check(lambda: 1011.0, figures)
    assert "1.1 % more" in problem
    assert '--accept "why"' in problem
    assert ratchet.check(lambda: 1009.0, figures) == ""


def test_the_least_of_several_counts_is_compared() -> None:
    """A busy machine adds to some, and one that is low enough ends the counting."""
    counts = iter([1300.0, 1005.0, 1400.0])
    assert ratchet.check(lambda: next(counts), [accepted(1000)]) == ""
    assert next(counts) == 1400.0


def test_another_python_is_no_rise(capsys: pytest.CaptureFixture[str]) -> None:
    """Its instructions are others."""
    assert ratchet.check(lambda: 9000.0, [accepted(1000, "3.0.0")]) == ""
    assert "nothing to compare with" in capsys.readouterr().out


def test_another_processor_is_no_rise_and_hides_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Each maker's figures are compared among themselves."""
    figures = [accepted(1000), accepted(9000, processor="another")]
    assert "more" in ratchet.check(lambda: 1100.0, figures)
    assert ratchet.check(lambda: 9000.0, figures[1:]) == ""
    assert "nothing to compare with" in capsys.readouterr().out
    path = tmp_path / "cpuinfo"
    assert ratchet.maker(path) == ""
    path.write_text("processor\t: 0\nvendor_id\t: GenuineIntel\n")
    assert ratchet.maker(path) == "GenuineIntel"


def test_an_accepted_figure_stands_in_the_history_and_in_the_plot(tmp_path: Path) -> None:
    """With its reason, which the plot shows too."""
    path = tmp_path / "history.jsonl"
    for thousands, why in ((1000.0, "first"), (1100.0, "fields < before")):
        counts = repeat(thousands)
        ratchet.accept(lambda counts=counts: next(counts), why, path)  # type: ignore[misc]
    assert [(one.thousands, one.why) for one in ratchet.history(path)] == [
        (1000.0, "first"),
        (1100.0, "fields < before"),
    ]
    titles = re.findall("<title>(.*?)</title>", ratchet.plot(ratchet.history(path)))
    assert len(titles) == 2
    assert "fields &lt; before" in titles[1]


def test_the_committed_history_can_be_read_and_drawn() -> None:
    """A broken line would let every rise pass."""
    assert ratchet.plot(ratchet.history()).count("<title>") == len(ratchet.history())


@pytest.mark.e2e
@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is no part of the environment")
def test_what_is_counted_is_one_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither the start of Python, which is a hundred times more, nor nothing."""
    monkeypatch.setattr(instructions, "WARM_REQUESTS", 20)
    upstream = start(UPSTREAM, "", tmp_path / "upstream")
    try:
        url = f"http://{HOST}:{upstream.port}"
        found = instructions.instructions(
            FLOOR, str(shutil.which("valgrind")), url, tmp_path / "floor", instructions.CHAT, requests=20
        )
    finally:
        upstream.stop()
    assert 100_000 < found < 1_500_000
