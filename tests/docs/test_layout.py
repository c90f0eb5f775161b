"""The tests stand in the folders of the packages that they test."""

from __future__ import annotations

import ast
import re
from collections import Counter

from tests.docs.pages import ROOT

KINDS = {
    "benchmarks": "tests what measures, which is no package of `proxy/`",
    "browser": "looks at the console in a real Chromium",
    "clients": "runs real clients of today, in environments of their own",
    "clients/python": "drives the Python clients",
    "conformance": "compares Tidemark with its upstream, property by property",
    "deploy": "runs the files of `deploy/` with the programs that they are for",
    "docs": "runs the snippets of the documentation, and reads the code as prose",
    "fleet": "runs stores on real clusters, which move slots and lose servers",
    "request": "runs whole servers: what holds for requests, by what they are about",
    "request/compaction": "what is summarized, counted and put back",
    "request/dialects": "the formats of clients and what providers demand",
    "request/history": "stored history, and stores that fail",
    "request/wire": "bytes, streams, bounds and browsers",
    "e2e": "runs the real command, and real clients",
    "security": "attacks and breaks the whole: hostile requests, bytes, tenants, faults of processes and disks",
    "site": "visits the documentation site in a real browser",
    "scenarios": "runs whole conversations, one file for each source of requirements",
    "providers": "imitates providers as strict as they are, and tests the imitations",
    "support": "holds what the tests of several folders share",
}
"""Folders of tests/ that stand beside those of the packages, and why."""
SLEEP = re.compile(r"\bsleep\([0-9.]*[1-9][0-9]*\)")
MOST_SLEEPS = 34
"""How many sleeps of a fixed time there may be: on a busy machine no number of seconds is enough."""

MOST_FILE_LINES, MOST_FUNCTION_LINES = 450, 60


def test_every_folder_has_its_package() -> None:
    """A folder of another name is one of `KINDS`."""
    folders = {path.parent.relative_to(ROOT / "tests") for path in (ROOT / "tests").rglob("*.py")}
    packages = {
        path.parent.relative_to(ROOT / "proxy" / "tidemark")
        for path in (ROOT / "proxy" / "tidemark").rglob("__init__.py")
    }
    assert {folder.as_posix() for folder in folders - packages} == set(KINDS)


def test_no_two_files_share_a_name() -> None:
    """A failure that names the file alone says where it is."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []


def test_tests_wait_for_facts_and_not_for_a_while() -> None:
    """`tests/support/waiting.py` waits until something holds, and `tests/support/clock.py` has a clock that jumps."""
    sleeps = {
        path.relative_to(ROOT).as_posix(): len(found)
        for path in (ROOT / "tests").rglob("*.py")
        if (found := SLEEP.findall(path.read_text(encoding="utf-8")))
    }
    assert sum(sleeps.values()) <= MOST_SLEEPS, sleeps


def test_files_and_functions_of_the_proxy_can_be_read_whole() -> None:
    """Rule 10 of CONTRIBUTING."""
    long_files, long_functions = [], []
    for path in (ROOT / "proxy").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > MOST_FILE_LINES:
            long_files.append(path.name)
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                lines = (node.end_lineno or 0) - node.lineno + 1
                if lines > MOST_FUNCTION_LINES:
                    long_functions.append(f"{path.name}: {node.name}")
    assert long_files == []
    assert long_functions == []
