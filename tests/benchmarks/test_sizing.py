"""What `docs/deployment.md` shows is what the command prints, and more load never needs less."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.sizing import Workload, needs_of
from tests.docs.pages import ROOT

PAGE = (ROOT / "docs/deployment.md").read_text(encoding="utf-8")
SHOWN = re.findall(r"`python -m (benchmarks\.sizing[^`]*)`\n\n```text\n(.*?)```", PAGE, re.DOTALL)
LOADS = st.builds(
    Workload,
    conversations_a_day=st.integers(1, 10**8),
    turns=st.integers(1, 100),
    characters=st.integers(1, 20_000),
    days=st.floats(0.1, 365),
    streams=st.integers(0, 10**6),
    chunks=st.floats(0.1, 100),
    replicas=st.integers(1, 1000),
    server_gb=st.integers(1, 1024),
)


@pytest.mark.parametrize(("command", "shown"), SHOWN)
def test_the_page_shows_what_the_command_prints(command: str, shown: str) -> None:
    """For each of its examples."""
    done = subprocess.run(
        [sys.executable, "-m", *command.split()], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout == shown


def test_the_page_has_examples() -> None:
    """A team, a product, and the largest that is reckoned."""
    assert len(SHOWN) == 3


@given(LOADS, st.sampled_from(["conversations_a_day", "days", "streams", "chunks", "replicas"]))
def test_more_load_never_needs_less(load: Workload, name: str) -> None:
    """Of anything."""
    less, more = needs_of(load), needs_of(replace(load, **{name: getattr(load, name) * 2}))
    assert all(getattr(less, each.name) <= getattr(more, each.name) for each in fields(less))
