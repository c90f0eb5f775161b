"""The exit codes are those of the table in ``docs/command-line.md``."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

pytestmark = pytest.mark.e2e

PAGE = (Path(__file__).parents[2] / "docs" / "command-line.md").read_text(encoding="utf-8")
CODES = {int(code) for code in re.findall(r"^\| (\d+) \|", PAGE, re.MULTILINE)}
RUNS: Mapping[int, list[list[str]]] = {
    0: [["check"], ["--version"], ["schema"], ["check", "--json"], ["completion", "bash"]],
    1: [
        ["check", "--config", "bad.yaml"],
        ["check", "--json", "--config", "bad.yaml"],
        ["top", "--url", "http://127.0.0.1:9"],
        ["conversations", "list", "--url", "http://127.0.0.1:9"],
        ["conversations", "forget", "x", "--yes", "--url", "http://127.0.0.1:9"],
        ["bench", "fidelity", "--stored", "3", "--url", "http://127.0.0.1:9"],
        ["count", "bad.yaml"],
        ["compact", "bad.yaml"],
        ["init", "--output", "bad.yaml"],
        ["store", "check", "--config", "away.yaml"],
        ["store", "export", "x.zst", "--config", "away.yaml"],
        ["store", "import", "bad.yaml", "--config", "away.yaml"],
        ["store", "import", "bad.yaml"],
        ["models", "list", "--config", "away.yaml"],
        ["flush", "pending", "--config", "away.yaml"],
        ["doctor", "--offline", "--config", "away.yaml"],
    ],
    2: [
        ["no-such-command"],
        ["serve", "--port", "x"],
        ["serve", "--config", "bad.yaml"],
        ["top", "--config", "bad.yaml"],
        ["flush", "replay"],
        ["store", "check", "--config", "bad.yaml"],
        ["store", "export"],
        ["store", "export", "no-such-folder/x.zst"],
        ["store", "import", "no-such-file.zst"],
        ["conversations", "list", "--url", "nothing"],
        ["conversations", "forget", "x", "--url", "http://127.0.0.1:9"],
        ["mcp", "--host", "192.0.2.1", "--port", "8790"],
    ],
    126: [["wrap", "--", "/"]],
    127: [["wrap", "--", "no-such-command-at-all"]],
    130: [["wrap", "--", "sh", "-c", "kill -INT $$"]],
    143: [["wrap", "--", "sh", "-c", "kill -TERM $$"]],
}


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Somebody with an unusable configuration in the working directory, and one whose store does not answer."""
    (tmp_path / "bad.yaml").write_text("thresold: 1\nservre: 2\n")
    (tmp_path / "away.yaml").write_text("store: {url: 'redis://127.0.0.1:9/0'}\n")
    own = {name: text for name, text in os.environ.items() if not name.startswith("TIDEMARK_")}
    return own | {"TIDEMARK_DATA_DIR": str(tmp_path / "data")}


@pytest.mark.parametrize(("code", "words"), [(code, words) for code, runs in RUNS.items() for words in runs])
def test_a_command_ends_with_its_code(code: int, words: list[str], environ: dict[str, str], tmp_path: Path) -> None:
    """And an error is a message, never a traceback."""
    done = subprocess.run(
        [sys.executable, "-m", "tidemark", *words],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        input="n\n",
        timeout=100,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stdout + done.stderr
    if code in {1, 2} and words[0] not in {"check", "doctor"}:
        assert re.search(r"^(tidemark: |Usage: )|bad\.yaml", done.stderr, re.MULTILINE), done.stderr


def test_a_signal_ends_with_its_number() -> None:
    """As shells count."""
    assert {130, 143} == {128 + signal.SIGINT, 128 + signal.SIGTERM}


def test_the_table_has_all_codes_and_no_other() -> None:
    """Both ways."""
    assert set(RUNS) == CODES


@pytest.mark.parametrize("work", ["check", "export"])
def test_a_store_that_does_not_answer_is_told_with_its_mend(work: str, environ: dict[str, str], tmp_path: Path) -> None:
    """In one line that names the setting."""
    words = ["store", work, *(["x.zst"] if work == "export" else []), "--config", "away.yaml"]
    command = [sys.executable, "-m", "tidemark", *words]
    done = subprocess.run(command, env=environ, cwd=tmp_path, capture_output=True, text=True, timeout=100, check=False)
    assert done.stderr.startswith("tidemark: The store does not answer (")
    assert done.stderr.endswith("Check store.url, and whether its server runs.\n")
    assert not (tmp_path / "x.zst.part").exists()
