"""Finds the regular expressions of ``proxy/``, how each is used, and which are slow with hostile texts."""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import ModuleType
from typing import Any

import tidemark
from tests.support.growth import MOST_GROWTH, growth_of
from tests.support.hostile_texts import Hostile, hostile_texts

AT_ONE_PLACE = {"match", "fullmatch"}
"""Methods that begin at one place. All others begin at every place, and so do patterns whose use is not known."""
USES = AT_ONE_PLACE | {"search", "findall", "finditer", "sub", "subn", "split"}
TINY, SCREENED = 24, 2000
"""Characters of the texts that say which are worth a measurement. What never ends is found with the tiny ones."""
SIZES = (500, 1000, 2000, 4000)
CHEAPEST_PART = 40
"""The part of the cheapest square's time beyond which a time may be that of a square: units have some characters."""

LEAST_REPEATS = 12
"""How often the unit of a short text has to fit in it."""
MOST_SQUARES = 5
"""How many times the cheapest square a short text may take."""


@dataclass
class Found:
    """A regular expression, by the module and the name that define it."""

    name: str
    pattern: re.Pattern[Any]
    uses: set[str] = field(default_factory=set)


def patterns_of_proxy() -> list[Found]:
    """Return all that modules hold as values, also within tuples and dicts, and all that functions write in place."""
    found: dict[re.Pattern[Any], Found] = {}
    for module in _modules():
        tree = ast.parse(inspect.getsource(module))
        used = _uses_by_name(tree)
        for name, value in vars(module).items():
            for pattern in _patterns_in(value):
                one = found.setdefault(pattern, Found(f"{module.__name__}:{name}", pattern))
                one.uses |= used.get(name, set())
                if isinstance(getattr(value, "__self__", None), re.Pattern):
                    one.uses.add(value.__name__)
        for pattern, use in _patterns_in_place(tree):
            found.setdefault(pattern, Found(f"{module.__name__}:{pattern.pattern!r}", pattern)).uses.add(use)
    return list(found.values())


def slow_text(found: Found) -> Hostile | None:
    """Return a text with which the time of a pattern grows faster than the text; None if none was found."""
    run = _run_of(found)
    cheapest = _cheapest_square()
    texts = sorted(hostile_texts(found.pattern), key=repr)  # a set's order differs from run to run
    for text in texts:
        if _took(run, text.of_size(TINY)) > cheapest and _took(run, text.of_size(TINY)) > cheapest:
            return text
        if _took(run, text.of_size(SCREENED)) * CHEAPEST_PART < cheapest:
            continue

        def read(size: int, text: Hostile = text) -> None:
            run(text.of_size(size))

        if growth_of(read, SIZES[:2]) >= MOST_GROWTH and growth_of(read, SIZES, rounds=5) >= MOST_GROWTH:
            return text
    return None


def costly_text(found: Found, size: int) -> Hostile | None:
    """Return a text of so many characters that takes far longer than the cheapest square of ``SCREENED`` does."""
    run, cheapest = _run_of(found), _cheapest_square()
    texts = [text for text in hostile_texts(found.pattern) if len(text.unit) <= size // LEAST_REPEATS]
    for text in sorted(texts, key=repr):
        for length in (TINY, size):  # what never ends is found with the tiny ones
            if all(_took(run, text.of_size(length)) > MOST_SQUARES * cheapest for _ in range(3)):
                return text
    return None


@cache
def _cheapest_square() -> int:
    return min(_took(re.compile("a*b").search, "a" * SCREENED) for _ in range(3))


def _modules() -> Iterator[ModuleType]:
    for module in pkgutil.walk_packages(tidemark.__path__, "tidemark."):
        if not module.name.endswith("__main__"):  # importing it runs it
            yield importlib.import_module(module.name)


def _patterns_in(value: object, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(owner := getattr(value, "__self__", None), re.Pattern):  # a bound method such as `find = P.search`
        yield owner
    elif depth and isinstance(value, Mapping):
        for key, one in value.items():
            yield from _patterns_in(key, depth - 1)
            yield from _patterns_in(one, depth - 1)
    elif depth and isinstance(value, tuple | list | set | frozenset):
        for one in value:
            yield from _patterns_in(one, depth - 1)


def _uses_by_name(tree: ast.AST) -> dict[str, set[str]]:
    """Return the methods that a module uses of each name."""
    uses: dict[str, set[str]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.attr in USES:
            uses.setdefault(node.value.id, set()).add(node.attr)
    return uses


def _patterns_in_place(tree: ast.AST) -> Iterator[tuple[re.Pattern[Any], str]]:
    """Yield the patterns of calls such as ``re.sub("a+", ...)``, with their function."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="re"), attr=use), args=[ast.Constant(value=written), *_]
            ) if use in USES and isinstance(written, str | bytes):
                flags = re.DOTALL if "re.DOTALL" in ast.unparse(node) else 0
                yield re.compile(written, flags), use


def _run_of(found: Found) -> Callable[[Any], object]:
    """Return what reads a text with a pattern in the way in which it is used."""
    uses = found.uses or {"search"}
    runs = [getattr(found.pattern, use) for use in uses & AT_ONE_PLACE]
    if uses - AT_ONE_PLACE:
        runs.append(lambda text: deque(found.pattern.finditer(text), 0))
    return lambda text: [run(text) for run in runs]


def _took(run: Callable[[Any], object], text: str | bytes) -> int:
    started = time.thread_time_ns()
    run(text)
    return time.thread_time_ns() - started
