"""What ``make bench-instructions`` counts, and what it says where it cannot."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from benchmarks.speed import instructions
from benchmarks.speed.load import HOST
from benchmarks.speed.systems import FLOOR, UPSTREAM, start


def test_without_valgrind_it_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error names the mend."""
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr(sys, "argv", ["instructions"])
    with pytest.raises(SystemExit, match="apt-get install valgrind"):
        instructions.main()


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
