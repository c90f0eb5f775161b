"""The documentation as the tests see it: pages, fenced blocks, table rows, links."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
"""What a user reads; its snippets are run."""
ALL_PAGES = (*PAGES, *(ROOT / f"{name}.md" for name in ("CONTRIBUTING", "CHANGELOG", "SECURITY")))

NOT_RUN = {
    "make demo": "takes minutes; tests/demo runs the same command with a shorter talk",
    "make test": "would run this very test; .ci/run calls it",
    "make install": "`make test` installs the same way, and .ci/run calls that",
    'export PATH="$PWD/.venv/bin:$PATH"': "stands after `make install`",
    "uvx --from 'tidemark-proxy[embedded]' tidemark serve": "needs a released package; test_release.py runs a wheel",
    "python3 -m venv tidemark": "the same",
    "tidemark/bin/pip install 'tidemark-proxy[embedded]'": "the same",
    "tidemark/bin/tidemark serve": "the same",
    "docker build --file deploy/Dockerfile --tag tidemark .": "needs a Docker engine; `make check` lints the file",
    "docker run --rm --publish 127.0.0.1:8787:8787 --volume tidemark:/data tidemark": "the same",
    ".venv/bin/tidemark --version": "stands after `make install`",
    "TIDEMARK_SECRET=$(openssl rand -hex 32) docker compose --file deploy/compose.yaml up --build": (
        "needs a Docker engine; `make check` holds the file against the Compose schema, test_names parses it"
    ),
}
"""Commands of the documentation that no test of this folder runs, and why."""

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@dataclass(frozen=True)
class Block:
    """A fenced block."""

    page: str
    line: int
    language: str
    text: str

    @property
    def lines(self) -> list[str]:
        """Its commands or text, line by line."""
        return self.text.splitlines()

    @property
    def is_run(self) -> bool:
        """Whether it holds anything that is run."""
        return not all(line in NOT_RUN for line in self.lines)

    @property
    def serves(self) -> bool:
        """Whether its last command runs until it is stopped."""
        return "tidemark serve" in self.lines[-1]

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def name_of(page: Path) -> str:
    """A page as it is called from the top of the repository."""
    return page.relative_to(ROOT).as_posix()


def text_of(name: str) -> str:
    """A page's text."""
    return (ROOT / name).read_text(encoding="utf-8")


def prose_of(page: Path) -> str:
    """A page without its fenced blocks."""
    return _FENCE.sub("", page.read_text(encoding="utf-8"))


def blocks(*languages: str) -> list[Block]:
    """The blocks of all pages in these languages; of all languages, when none is named."""
    return [block for page in PAGES for block in _blocks(page) if not languages or block.language in languages]


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        yield Block(name_of(page), text.count("\n", 0, found.start()) + 1, found[1], found[2])


def cells(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table that has ``heading`` in its first column's head, cell by cell."""
    table = re.search(rf"^\| {re.escape(heading)} \|.*\n\|[-|]+\n((?:\|.*\n?)+)", text_of(page), re.MULTILINE)
    assert table, f"{page} has no table {heading!r}"
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table[1].splitlines()]


def section_of(page: str, heading: str) -> str:
    """What stands under a heading, up to the next one."""
    return re.split(r"^#+ ", text_of(page).partition(f"# {heading}\n")[2], maxsplit=1, flags=re.MULTILINE)[0]


def quoted(text: str) -> list[str]:
    """All that stands in back quotes."""
    return re.findall(r"`([^`]+)`", text)


def names_in(page: str, heading: str) -> set[str]:
    """What the first column of a table names in back quotes."""
    return {name for row in cells(page, heading) for name in quoted(row[0])}


def links(page: Path) -> list[str]:
    """The targets of a page's links."""
    return _LINK.findall(prose_of(page))


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.+)$", prose_of(page), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
