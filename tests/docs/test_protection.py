"""`protection.txt` names, for each module of `proxy/`, the tests that fail when the module breaks."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from tests.docs.pages import ROOT

PROXY = ROOT / "proxy" / "tidemark"
TABLE = Path(__file__).with_name("protection.txt")
MOST_TESTS = 2
"""In one row: a contributor runs them before the whole suite."""
MOST_SUGGESTED = 5

_IMPORT = re.compile(r"^[ \t]*(?:from ([\w.]+) import (\([^)]*\)|.*)|import ([\w., ]+))$", re.MULTILINE)
"""To parse all files would take ten times as long, and ruff keeps imports in these forms."""
_COMMAND = re.compile(r'"-m", "(tidemark)"')
_PROGRAM = re.compile(r'"(\w+)\.py"')
"""A file that is started by its path, from the folder of the one that starts it."""
_PLUGGED_IN = re.compile(r"tidemark\.features\.\w+\.(?:feature|commands|starting|description)")
"""`app/features.py` finds these by their names."""


def rows() -> list[tuple[str, list[str]]]:
    """Each module, as its path from `proxy/tidemark/`, with its tests."""
    lines = TABLE.read_text(encoding="utf-8").splitlines()
    parts = [line.partition(": ") for line in lines if not line.startswith("#")]
    return [(module, tests.split()) for module, _, tests in parts]


def modules() -> set[str]:
    """All modules but the packages' own files that define nothing."""
    return {
        path.relative_to(PROXY).as_posix()
        for path in PROXY.rglob("*.py")
        if path.name != "__init__.py" or defines_something(path)
    }


def defines_something(path: Path) -> bool:
    """Whether a file has more than a docstring, imports and names in double underscores."""
    return any(
        not isinstance(node, ast.Expr | ast.Import | ast.ImportFrom)
        and not (isinstance(node, ast.Assign) and ast.unparse(node.targets[0]).startswith("__"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
    )


def name_of(path: Path) -> str:
    """The name under which Python imports a file."""
    parts = path.relative_to(PROXY.parent if path.is_relative_to(PROXY) else ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def imports() -> dict[str, set[str]]:
    """Each file of `proxy/` and `tests/`, with those that it imports, by their names."""
    files = {name_of(path): path for top in (PROXY, ROOT / "tests") for path in top.rglob("*.py")}
    graph = {name: names_imported(name, path) & files.keys() for name, path in files.items()}
    graph["tidemark.app.features"] |= {name for name in files if _PLUGGED_IN.fullmatch(name)}
    return graph


def names_imported(name: str, path: Path) -> set[str]:
    """What a file may import or start, and the packages around that."""
    text = path.read_text(encoding="utf-8")
    around = name if path.stem == "__init__" else name.rpartition(".")[0]
    found = {f"{command}.__main__" for command in _COMMAND.findall(text)}
    found.update(f"{around}.{program}" for program in _PROGRAM.findall(text))
    for package, names, plain in _IMPORT.findall(text):
        whole = around + package if package.startswith(".") else package
        found.update(f"{whole}.{part}" for part in re.findall(r"\w+", names))
        found.update(re.findall(r"[\w.]+", plain))
    if name.startswith("tests."):
        found.update(f"{name_of(folder)}.conftest" for folder in path.parents if folder.is_relative_to(ROOT / "tests"))
    parts = [one.split(".") for one in found]
    return {".".join(names[:count]) for names in parts for count in range(1, len(names) + 1)}


@cache
def reached_by(test: str) -> set[str]:
    """All that a test file imports, itself or by what it imports."""
    reached: set[str] = set()
    waiting = [name_of(ROOT / test)]
    while waiting:
        name = waiting.pop()
        if name not in reached:
            reached.add(name)
            waiting += imports()[name]
    return reached


def suggestion(module: str) -> str:
    """A row for a module, with the test files that are the fewest imports away from it: those of like names first."""
    words = set(re.findall(r"[a-z]+", module))
    nearest, seen, tests = {name_of(PROXY / module)}, set[str](), list[str]()
    while nearest and len(tests) < MOST_SUGGESTED:
        seen |= nearest
        nearest = {name for name, names in imports().items() if names & nearest} - seen
        found = [name for name in nearest if ".test_" in name]
        tests += sorted(found, key=lambda name: (-len(words.intersection(re.findall(r"[a-z]+", name))), name))
    return f"{module}: " + " or ".join(f"{test.replace('.', '/')}.py" for test in tests[:MOST_SUGGESTED])


def test_each_module_has_its_row() -> None:
    """A new module gets one with the test file that fails without it, or with two."""
    missing = sorted(modules() - {module for module, _ in rows()})
    assert not missing, "\n".join(["add to tests/docs/protection.txt:", *map(suggestion, missing)])


def test_no_row_names_what_is_gone() -> None:
    """Whoever renames a module or a test renames it here too."""
    assert sorted({module for module, _ in rows()} - modules()) == []
    assert sorted({test for _, tests in rows() for test in tests if not (ROOT / test).is_file()}) == []


def test_rows_are_sorted_and_short() -> None:
    """Each module has one row, which names one or two files of tests."""
    names = [module for module, _ in rows()]
    assert names == sorted(set(names))
    assert [module for module, tests in rows() if not 1 <= len(tests) <= MOST_TESTS] == []
    assert [test for _, tests in rows() for test in tests if not Path(test).name.startswith("test_")] == []


def test_a_named_test_reaches_its_module() -> None:
    """It imports the module or something that imports it, or it runs the command."""
    unreached = [
        f"{module}: {test}"
        for module, tests in rows()
        for test in tests
        if (ROOT / test).is_file() and name_of(PROXY / module) not in reached_by(test)
    ]
    assert unreached == [], "these tests never import their module"


def test_a_test_reaches_what_it_imports_and_nothing_else() -> None:
    """So the rule above refuses a row that names just any test."""
    reached = reached_by("tests/core/test_bounded.py")
    assert "tidemark.core.bounded" in reached
    assert not any(name.startswith("tidemark.store") for name in reached)
