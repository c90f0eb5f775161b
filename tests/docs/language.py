"""Plain English as the tests see it: docstrings, names of variables and functions, words of pictures.

``python -m tests.docs.language [PACKAGE ...]`` lists every breach, for all of ``proxy/`` or for some packages.
"""

from __future__ import annotations

import ast
import re
import sys
import tokenize
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST_WORDS = 20
"""Of the sentence that opens a docstring."""
PARTICIPLES = frozenset(
    [
        "told",
        "held",
        "said",
        "found",
        "one",
        "known",
        "kept",
        "given",
        "taken",
        "asked",
        "made",
        "seen",
        "left",
        "gone",
        "sent",
        "brought",
        "written",
        "called",
        "named",
        "meant",
        "begun",
        "grown",
        "come",
        "came",
        "went",
        "heard",
        "going",
    ]
)
"""No name by themselves: a reader cannot tell what was found, kept or told."""
PICTURES = re.compile(r"(?<!\|)\b(roads?|rooms?|houses?|doors?|strangers?)\b(?!\|)", re.IGNORECASE)
"""Words that stand for a package, a layer or a pipeline elsewhere; between bars they are alternatives of a pattern."""

_NOT_PROSE = re.compile(r"^```.*?^```$|`[^`\n]*`|(?<=\]\()[^)\s]+", re.MULTILINE | re.DOTALL)
"""Fenced blocks, code words and link targets of a page."""
_HELPER = re.compile(rf"^(?:async )?def _*(?:{'|'.join(sorted(PARTICIPLES))})_*\(", re.MULTILINE)
_CLASS = re.compile(r"^ *class (\w+)\b", re.MULTILINE)
_DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def breaches(path: Path) -> Iterator[str]:
    """Everything in one source file that is not plain, with its line."""
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    for line, text in _docstrings(tree):
        if len(opening(text).split()) > MOST_WORDS:
            yield f"{path}:{line}: the opening sentence has more than {MOST_WORDS} words"
    for line, name in _names(tree):
        if name.strip("_") in PARTICIPLES:
            yield f"{path}:{line}: {name!r} does not say what it is"
    if not PICTURES.search(source):  # to part a file into tokens takes longer than all else
        return
    for line, text in _prose(source):
        for word in PICTURES.findall(text):
            yield f"{path}:{line}: {word!r} is a picture"


def pictures_in_page(path: Path) -> Iterator[str]:
    """Picture words in the prose of a page, with their lines; code blocks, code words and link targets are left out."""
    prose = _NOT_PROSE.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), path.read_text(encoding="utf-8"))
    for number, line in enumerate(prose.splitlines(), 1):
        for word in PICTURES.findall(line):
            yield f"{path}:{number}: {word!r} is a picture"


def breaches_of_tests(path: Path) -> Iterator[str]:
    """Everything in the docstrings, comments and helpers' names of one file of tests that is not plain.

    Texts that a test sends or expects may say anything.
    """
    source = path.read_text(encoding="utf-8")
    if not PICTURES.search(source) and not _HELPER.search(source):
        return
    tree = ast.parse(source)
    tokens = tokenize.tokenize(BytesIO(source.encode()).readline)
    comments = [(token.start[0], token.string) for token in tokens if token.type == tokenize.COMMENT]
    for line, text in (*_docstrings(tree), *comments):
        for word in PICTURES.findall(text):
            yield f"{path}:{line}: {word!r} is a picture"
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.strip("_") in PARTICIPLES:
            yield f"{path}:{node.lineno}: {node.name!r} does not say what it is"


def opening(text: str) -> str:
    """The first sentence of a docstring."""
    return re.split(r"(?<=[.!?])\s", " ".join(text.split()), maxsplit=1)[0]


def docstrings(root: Path) -> str:
    """All docstrings of the source files under a folder, one after the other."""
    sources = [path.read_text(encoding="utf-8") for path in sorted(root.rglob("*.py"))]
    return "\n".join(text for source in sources for _, text in _docstrings(ast.parse(source)))


def class_names(root: Path) -> list[str]:
    """The name of every class under a folder, as often as it stands there."""
    return [name for path in sorted(root.rglob("*.py")) for name in _CLASS.findall(path.read_text(encoding="utf-8"))]


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The docstrings of modules, classes and functions, and the strings below attributes."""
    for node in ast.walk(tree):
        if not isinstance(node, _DOCUMENTED):
            continue
        for statement in node.body:
            value = statement.value if isinstance(statement, ast.Expr) else None
            if isinstance(value, ast.Constant) and isinstance(value.value, str):
                yield value.lineno, value.value


def _names(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Every name that the code itself gives: variables, arguments, attributes, functions."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.arg(arg=name):
                yield node.lineno, name
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                yield node.lineno, name


def _prose(source: str) -> Iterator[tuple[int, str]]:
    """Comments and strings, line by line."""
    for token in tokenize.tokenize(BytesIO(source.encode()).readline):
        if token.type in (tokenize.COMMENT, tokenize.STRING):
            for offset, line in enumerate(token.string.splitlines()):
                yield token.start[0] + offset, line


def main(packages: list[str]) -> int:
    """List the breaches of some packages."""
    folders = [ROOT / "proxy" / "tidemark" / package for package in packages] or [ROOT / "proxy"]
    listed = [line for folder in folders for path in sorted(folder.rglob("*.py")) for line in breaches(path)]
    print("\n".join(line.removeprefix(f"{ROOT}/") for line in listed))
    return len(listed) > 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
