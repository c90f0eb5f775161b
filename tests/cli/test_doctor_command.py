"""``tidemark doctor`` as its user sees it: lines, colours, JSON, exit codes. ``tests/doctor`` has the checks."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from tests.cli.test_terminal_output import COLOR, in_terminal
from tidemark.cli.main import cli

SOUND = "store: {url: embedded}\n"
BROKEN = "store: {url: 'redis://127.0.0.1:9/0'}\n"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where the configuration is written."""
    return tmp_path / "tidemark.yaml"


def run(file: Path, text: str, *options: str) -> Result:
    """Examine a configuration, in a pipe."""
    file.write_text(text, encoding="utf-8")
    words = ["doctor", "--offline", "--config", str(file), *options]
    return CliRunner().invoke(cli, words, env={"TIDEMARK_DATA_DIR": str(file.parent / "data")})


def test_what_works_ends_with_0(file: Path) -> None:
    """One line for each finding, with its status first, and no other output. A busy machine may be a warning."""
    done = run(file, SOUND)
    assert done.exit_code == 0, done.output
    assert {line.split()[0] for line in done.stdout.splitlines() if line[:1] != " "} <= {"ok", "warning"}
    assert done.stderr == ""


def test_what_would_not_work_ends_with_1_and_its_mend(file: Path) -> None:
    """The mend stands below its finding, and the other findings beside it."""
    done = run(file, BROKEN)
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    (place,) = [number for number, line in enumerate(lines) if line.startswith("error")]
    assert lines[place].split()[1] == "store:"
    assert lines[place + 1].startswith(" " * len("warning  "))
    assert any(line.startswith("ok") and "vocabularies" in line for line in lines)


@pytest.mark.parametrize(("text", "is_usable"), [(SOUND, True), (BROKEN, False)], ids=["sound", "broken"])
def test_json_has_the_same_findings(file: Path, text: str, *, is_usable: bool) -> None:
    """Each has four members, and the exit code is that of the lines."""
    done = run(file, text, "--json")
    answer = json.loads(done.stdout)
    assert (answer["ok"], done.exit_code) == (is_usable, 0 if is_usable else 1)
    assert all(set(finding) == {"check", "status", "detail", "mend"} for finding in answer["findings"])
    assert ("error" in {finding["status"] for finding in answer["findings"]}) != is_usable
    assert all(finding["mend"] for finding in answer["findings"] if finding["status"] != "ok")


def test_a_file_that_cannot_be_read_is_one_finding(file: Path) -> None:
    """It says where in the file the error is."""
    done = run(file, "store: {url: 5\n", "--json")
    (finding,) = json.loads(done.stdout)["findings"]
    assert (finding["check"], finding["status"], done.exit_code) == ("configuration", "error", 1)


def test_no_output_has_a_secret(file: Path) -> None:
    """Nor a password of the store's address."""
    done = run(file, "store: {url: 'redis://user:hunter2@127.0.0.1:9/0'}\n")
    assert "hunter2" not in done.output
    assert done.exit_code == 1


@pytest.mark.e2e
@pytest.mark.parametrize(("no_color", "is_colored"), [("", True), ("1", False)])
def test_a_terminal_has_colors_unless_it_wants_none(file: Path, no_color: str, *, is_colored: bool) -> None:
    """What is examined now is shown meanwhile, and cleared. An empty ``NO_COLOR`` says nothing (no-color.org)."""
    code, text = examined_in_terminal(file, NO_COLOR=no_color)
    assert code == 0
    assert bool(COLOR.search(text)) == is_colored
    assert "examining " in text
    assert text.rindex("\x1b[2K") < text.index("ok ")


@pytest.mark.e2e
def test_a_dumb_terminal_gets_no_sequence(file: Path) -> None:
    """As an editor's shell window."""
    code, text = examined_in_terminal(file, TERM="dumb")
    assert (code, "\x1b" in text) == (0, False)


def examined_in_terminal(file: Path, **more: Any) -> tuple[int, str]:
    """Examine a sound configuration on a terminal."""
    file.write_text(SOUND, encoding="utf-8")
    environ: dict[str, Any] = {"TIDEMARK_DATA_DIR": str(file.parent / "data"), **more}
    return in_terminal("doctor", "--offline", "--config", str(file), **environ)
