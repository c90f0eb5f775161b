"""What the tests of the configuration share: a file to write."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    """Writes a configuration file, its text indented as the test likes."""

    def into(text: str) -> Path:
        path = tmp_path / "tidemark.yaml"
        path.write_text(textwrap.dedent(text), encoding="utf-8")
        return path

    return into
