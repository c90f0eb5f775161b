"""``--forked``: forked processes run every test once, and what one of them does to itself is told."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
CONFTEST = """
import pytest
from tests.support.forked import ForkedProcesses

def pytest_configure(config):
    config.pluginmanager.register(ForkedProcesses(2))

@pytest.fixture(scope="session", autouse=True)
def torn(request):
    yield
    (request.config.rootpath / "torn").open("a").write("1")
"""
FILE = """
import json, os

def test_notes(tmp_path, request):
    with (request.config.rootpath / "notes").open("a") as notes:
        notes.write(json.dumps([os.getpid(), request.node.nodeid, str(tmp_path)]) + chr(10))

test_notes_too = test_notes
"""


def run(folder: Path, options: str = "", **files: str) -> subprocess.CompletedProcess[str]:
    """Run the tests of some files in two processes."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text(f"[pytest]\n{options}\n")
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={folder / 'tmp'}", str(folder)]
    environ = {**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'proxy'}"}
    return subprocess.run(command, cwd=folder, env=environ, capture_output=True, text=True, check=False, timeout=60)


def test_every_test_runs_once_and_those_of_a_file_in_one_process(tmp_path: Path) -> None:
    """Each has a folder of its own, and each process tears its fixtures down once."""
    ended = run(tmp_path, **{f"file{number}": FILE for number in range(6)})
    assert ended.returncode == 0, ended.stdout
    assert "12 passed" in ended.stdout
    notes = [json.loads(line) for line in (tmp_path / "notes").read_text().splitlines()]
    assert len({test for _, test, _ in notes}) == len({folder for *_, folder in notes}) == len(notes) == 12
    assert len({(pid, test.partition("::")[0]) for pid, test, _ in notes}) == 6
    assert (tmp_path / "torn").read_text() == "11"


def test_a_failure_is_shown_with_what_the_test_printed(tmp_path: Path) -> None:
    """And the other files are run."""
    ended = run(tmp_path, good=FILE, bad="def test_it():\n    print('six of seven')\n    assert 6 == 7\n")
    assert ended.returncode == 1
    assert "1 failed, 2 passed" in ended.stdout
    assert "assert 6 == 7" in ended.stdout
    assert "Captured stdout call" in ended.stdout
    assert "six of seven" in ended.stdout


@pytest.mark.parametrize("death", ["os._exit(0)", "os.kill(os.getpid(), 9)"])
def test_a_process_that_dies_fails_the_test_that_it_ran(tmp_path: Path, death: str) -> None:
    """The other process runs the other files."""
    dead = f"import os\ndef test_dies():\n    {death}\ndef test_behind():\n    pass\n"
    ended = run(tmp_path, dead=dead, first=FILE, second=FILE)
    assert ended.returncode == 1
    assert "1 failed, 4 passed" in ended.stdout
    assert "test_dead.py::test_dies - The process ended while it ran this test" in ended.stdout


def test_files_that_cannot_be_collected_are_an_error(tmp_path: Path) -> None:
    """As without ``--forked``: nothing is run."""
    ended = run(tmp_path, good=FILE, broken="import nothing_of_this_name\n")
    assert ended.returncode == 2
    assert "1 error" in ended.stdout
    assert not (tmp_path / "notes").exists()


def test_what_the_last_test_leaves_open_is_an_error(tmp_path: Path) -> None:
    """Pytest sees it when the process has run its tests."""
    leaving = "import gc\ngc.disable()\ndef test_it():\n    left = [open(__file__)]\n    left.append(left)\n"
    ended = run(tmp_path, leaving=leaving, options="filterwarnings = error")
    assert ended.returncode != 0
    assert "ResourceWarning: unclosed file" in ended.stdout + ended.stderr
