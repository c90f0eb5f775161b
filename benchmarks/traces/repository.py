"""A made repository, and what programs print of it: files, searches, history, tests, answers of its service.

The code is filler, drawn by a seed. What is printed agrees with it: a file that was edited is read as it is then, a
difference is the real one, and a traceback quotes lines that stand there.
"""

from __future__ import annotations

import difflib
import json
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.traces.scenarios import Scenario

MOST_HITS = 40
SNIPPET_LINES, DIFF_LINES = 6, 120
AUTHORS = ("Ines Okafor", "Tomasz Reuter", "Dana Lindqvist", "Pavel Maru")
VERBS: Sequence[str] = (
    *("load", "merge", "render", "flush", "route", "encode", "retry"),
    *("settle", "resolve", "collect", "apply", "verify", "split", "rank"),
)
NOUNS: Sequence[str] = (
    *("cache", "window", "batch", "limit", "scope", "bucket"),
    *("cursor", "status", "region", "offset", "weight", "source"),
)
"""Those that every scenario has besides its own."""
STATEMENTS = {
    "py": (
        "{a}_{c} = self._{b}_{c}s.get({a}.{b}_id, {n})",
        "if {a}.{c} > {n} and not {b}.is_{v}d:",
        '    raise {B}Error(f"{a} {{{a}.id}} has {c} beyond {n}")',
        "for {b} in sorted({a}.{b}s, key=lambda item: item.{c})[:{n}]:",
        "    {a}_{c} += {b}.{c} * Decimal('{f}')",
        'logger.info("{v} {a} %s with {c} %s", {a}.id, {b}_{c})',
        "self.{b}_{c} = {v}_{b}({a}, {c}={n}, timeout={f})",
        "{c}s = [{b}.{c} for {b} in {a}.{b}s if {b}.{c} != {n}]",
        "await self._{v}_{b}({a}.id, {c}=min({c}, {n}))",
        "return {B}({a}_id={a}.id, {c}={a}_{c} or {n})",
        "assert {a}.{c} is not None, 'no {c} for {b} {n}'",
        '{b}_key = f"{a}:{{{a}.id}}:{c}:{n}"',
    ),
    "ts": (
        "const {a}{C} = this.{b}{C}s.get({a}.{b}Id) ?? {n};",
        "if ({a}.{c} > {n} && !{b}.is{V}d) {{",
        "  throw new {B}Error(`{a} ${{{a}.id}} has {c} beyond {n}`);",
        "for (const {b} of {a}.{b}s.slice(0, {n})) total{C} += {b}.{c} * {f};",
        'log.info("{v} {a}", {{ id: {a}.id, {c}: {n} }});',
        "this.{b}{C} = await {v}{B}({a}, {{ {c}: {n}, timeout: {f} }});",
        "const {c}s = {a}.{b}s.filter(({b}) => {b}.{c} !== {n}).map(({b}) => {b}.{c});",
        "return new {B}({{ {a}Id: {a}.id, {c}: {a}{C} || {n} }});",
        "const {b}Key = `{a}:${{{a}.id}}:{c}:{n}`;",
        "await Promise.all({a}.{b}s.map(({b}) => this.{v}{B}({b}, {n})));",
    ),
}
HEADS = {
    "py": (
        "    def {v}_{b}_{c}(self, {a}: {A}, *, {c}: int = {n}) -> {B}:",
        '        """{V} the {b} {c} of one {a}."""',
    ),
    "ts": ("  async {v}{B}{C}({a}: {A}, {c} = {n}): Promise<{B}> {{", "    // {V} the {b} {c} of one {a}."),
}


@dataclass(frozen=True)
class Commit:
    """One commit of the history."""

    digest: str
    author: str
    day: str
    subject: str
    paths: Sequence[str]
    counts: Sequence[int]
    """The lines that changed in each file."""


class Repository:
    """The files as they are now and as they were committed, and the history."""

    def __init__(self, scenario: Scenario, chance: random.Random) -> None:
        self.scenario, self.chance = scenario, chance
        self.files: dict[str, list[str]] = {}
        for folder in scenario.folders:
            for noun in chance.sample(scenario.nouns, 4):
                path = f"src/{folder}/{noun}_{chance.choice(VERBS)}.{scenario.language}"
                self.files[path] = self._module(noun, chance.randrange(90, 320))
        self.committed = {path: list(lines) for path, lines in self.files.items()}
        self.commits = [self._commit(chance.choice(scenario.subjects), self._some_paths()) for _ in range(40)]

    def read(self, path: str, offset: int, limit: int) -> str:
        """Print lines of a file with their numbers."""
        lines = self.files[path][offset : offset + limit]
        return "\n".join(f"{number:>6}\t{line}" for number, line in enumerate(lines, offset + 1))

    def place_of(self, text: str) -> tuple[str, int]:
        """Return the file and the place of the first line that holds a text; an empty path if none does."""
        for path, lines in self.files.items():
            for place, line in enumerate(lines):
                if text in line:
                    return path, place
        return "", 0

    def edit(self, path: str, first: int, last: int, new: Sequence[str]) -> str:
        """Replace the lines from one place to before another, and print what stands around them."""
        self.files[path][first:last] = new
        start = max(first - SNIPPET_LINES, 0)
        return (
            f"The file {path} has been updated. "
            "Here's the result of running `cat -n` on a snippet of the edited file:\n"
            + self.read(path, start, 2 * SNIPPET_LINES + len(new))
        )

    def grep(self, pattern: str, under: str = "src") -> str:
        """Print the lines that hold a text."""
        hits = [
            f"{path}:{number}:{line.strip()}"
            for path, lines in sorted(self.files.items())
            if path.startswith(under)
            for number, line in enumerate(lines, 1)
            if pattern in line
        ]
        return "\n".join(hits[:MOST_HITS]) or "No matches found"

    def listing(self, folder: str) -> str:
        """Print a folder as ``ls -la`` does."""
        rows = [f"total {self.chance.randrange(40, 900)}", "drwxr-xr-x  6 dev dev  4096 Oct  8 09:14 ."]
        for path, lines in sorted(self.files.items()):
            if path.startswith(folder):
                size, minute = sum(map(len, lines)), self.chance.randrange(60)
                rows.append(f"-rw-r--r--  1 dev dev {size:>6} Oct {self.chance.randrange(1, 9)} 11:{minute:02} {path}")
        return "\n".join(rows)

    def difference(self) -> str:
        """Print what differs from the last commit."""
        pieces: list[str] = []
        for path, lines in sorted(self.files.items()):
            before = self.committed.get(path, [])
            if before != lines:
                pieces.append(f"diff --git a/{path} b/{path}")
                pieces += difflib.unified_diff(before, lines, f"a/{path}", f"b/{path}", lineterm="")
        return "\n".join(pieces[:DIFF_LINES]) or "nothing to commit, working tree clean"

    def commit(self, subject: str) -> str:
        """Commit everything, and print what git prints."""
        paths = [path for path, lines in self.files.items() if self.committed.get(path) != lines]
        commit = self._commit(subject, paths or self._some_paths())
        self.commits.insert(0, commit)
        self.committed = {path: list(lines) for path, lines in self.files.items()}
        changed = f" {len(commit.paths)} files changed, {sum(commit.counts)} insertions(+)"
        return f"[main {commit.digest}] {subject}\n{changed}"

    def log(self, count: int) -> str:
        """Print the newest commits with their files."""
        return "\n\n".join(map(_shown, self.commits[:count]))

    def show(self, digest: str) -> str:
        """Print one commit, with some lines of the files that it changed."""
        commit = next((commit for commit in self.commits if commit.digest == digest), self.commits[-1])
        pieces = [_shown(commit)]
        for path in commit.paths:
            lines = self.files.get(path, [""])
            start = self.chance.randrange(max(len(lines) - 24, 1))
            pieces.append(f"diff --git a/{path} b/{path}\n@@ -{start + 1},18 +{start + 1},22 @@")
            pieces += [f"{self.chance.choice('   +')}{line}" for line in lines[start : start + 22]]
        return "\n".join(pieces)

    def statement(self) -> str:
        """Draw a line of code."""
        return self._draw(self.chance.choice(STATEMENTS[self.scenario.language])).strip()

    def tests(self, failures: int, only: str = "", among: int = 34) -> str:
        """Print a run of tests: each one's line, tracebacks of those that fail, and the end."""
        chance, count = self.chance, 1 if only else self.chance.randrange(among // 3, among)
        names = [only or self._test_name() for _ in range(count)]
        bad = names[:failures]
        chance.shuffle(names)
        rows = ["============ test session starts ============", f"collected {len(names)} items", ""]
        for number, name in enumerate(names, 1):
            rows.append(f"{name} {'FAILED' if name in bad else 'PASSED'} [{100 * number // len(names):>3}%]")
        ends = []
        for name in bad:
            got, wanted = f"{chance.uniform(10, 9000):.2f}", f"{chance.uniform(10, 9000):.2f}"
            rows.append(f"____________ {name.split('::')[1]} ____________")
            for path in self._some_paths():
                rows += self._frame(path)
            rows.append(f"E   AssertionError: expected {wanted}, got {got}")
            ends.append(f"FAILED {name} - AssertionError: expected {wanted}, got {got}")
        took = f"{chance.uniform(1, 60):.2f}s"
        return "\n".join([*rows, *ends, f"==== {len(bad)} failed, {len(names) - len(bad)} passed in {took} ===="])

    def records(self, first: str, count: int) -> str:
        """Print records of the service as JSON, such as one that was asked for and those after it."""
        chance, kinds = self.chance, self.scenario.records
        rows: list[dict[str, Any]] = []
        for number in range(count):
            row: dict[str, Any] = {"id": first if number == 0 and first else self.record_id(chance.choice(kinds))}
            row["parent"] = self.record_id(chance.choice(kinds))
            row["status"] = chance.choice(("open", "settled", "failed", "queued"))
            row["amount"] = f"{chance.uniform(1, 20_000):.2f}"
            row[chance.choice(NOUNS)] = {"region": chance.choice(("eu-1", "us-2", "ap-1")), "attempts": number % 4}
            row["updated_at"] = f"2026-10-{chance.randrange(1, 9):02}T{chance.randrange(24):02}:14:{number % 60:02}Z"
            rows.append(row)
        return json.dumps({"data": rows, "next": self.record_id("cur")}, indent=2 if count < 6 else None)

    def record_id(self, kind: str) -> str:
        """Draw an id, such as ``ord_k3v9x0a1``."""
        return f"{kind}_" + "".join(self.chance.choice("abcdefghkmnpqrstvwxyz0123456789") for _ in range(9))

    def _frame(self, path: str) -> list[str]:
        lines = self.files[path]
        number = self.chance.randrange(4, len(lines))
        return [
            "",
            *(f"    {line}" for line in lines[number - 3 : number - 1]),
            f">   {lines[number - 1]}",
            f"{path}:{number}:",
        ]

    def _test_name(self) -> str:
        chance, nouns = self.chance, self.scenario.nouns
        subject = f"{chance.choice(VERBS)}_{chance.choice(nouns)}_{chance.choice(NOUNS)}"
        suffix = "py" if self.scenario.language == "py" else "spec.ts"
        return f"tests/{chance.choice(self.scenario.folders)}/test_{chance.choice(nouns)}.{suffix}::test_{subject}"

    def _some_paths(self) -> list[str]:
        return self.chance.sample(sorted(self.files), self.chance.randrange(1, 4))

    def _commit(self, subject: str, paths: Sequence[str]) -> Commit:
        chance = self.chance
        digest = f"{chance.randrange(16**8):08x}"
        if not re.search("[a-f]", digest) or not re.search("[0-9]", digest):
            digest = f"a{digest[1:-1]}7"
        day = f"2026-{chance.randrange(7, 10):02}-{chance.randrange(1, 29):02}"
        return Commit(digest, chance.choice(AUTHORS), day, subject, paths, [chance.randrange(2, 90) for _ in paths])

    def _module(self, noun: str, count: int) -> list[str]:
        language, chance = self.scenario.language, self.chance
        quote, comment = ('"""', "#") if language == "py" else ("/** ", "//")
        lines = [f"{quote}{noun.title()}s, and what is kept of them.{quote if language == 'py' else ' */'}", ""]
        lines += [
            self._draw(f"{comment} {{V}} before {{b}} {{c}} {{n}}, since {{a}} {{c}}s overlap.") for _ in range(2)
        ]
        lines.append(f"class {noun.title()}{chance.choice(VERBS).title()}er{':' if language == 'py' else ' {'}")
        indent = "        " if language == "py" else "    "
        while len(lines) < count:
            lines += ["", *(self._draw(head) for head in HEADS[language])]
            lines += [indent + self._draw(chance.choice(STATEMENTS[language])) for _ in range(chance.randrange(3, 12))]
        return lines

    def _draw(self, template: str) -> str:
        chance = self.chance
        a, b = chance.sample(self.scenario.nouns, 2)
        c, v = chance.choice(NOUNS), chance.choice(VERBS)
        words = {"a": a, "b": b, "c": c, "v": v, "A": a.title(), "B": b.title(), "C": c.title(), "V": v.title()}
        return template.format(**words, n=chance.randrange(3, 9000), f=f"{chance.uniform(0, 60):.3f}")


def _shown(commit: Commit) -> str:
    changes = [f" {path} | {count} +-" for path, count in zip(commit.paths, commit.counts, strict=True)]
    head = f"commit {commit.digest}\nAuthor: {commit.author}\nDate:   {commit.day}\n\n    {commit.subject}\n"
    return "\n".join([head, *changes])
