"""The pages that `make site` makes itself: one for each client, and what it changes in the Markdown of all."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from deploy.site import clients, pages
from tests.clients.agents import AGENTS as TESTED_AGENTS
from tests.clients.programs import LIBRARIES
from tidemark.cli import agents

PAGES = clients.pages()
PARTS = ["## Model names", "## What to check"]


def test_every_client_has_a_page() -> None:
    """Those that `tidemark wrap` starts, those that tests run, and the editors and web apps of docs/clients.md."""
    listed = list(clients.all_clients())
    assert {client.program for client in listed} - {""} == set(agents.AGENTS)
    assert {client.tested for client in listed} - {""} == {
        *(one.name for one in LIBRARIES),
        *(one.name for one in TESTED_AGENTS),
    }
    assert {"Cursor", "Cline", "Continue", "Zed", "Open WebUI", "LibreChat"} <= {client.title for client in listed}
    assert len(PAGES) == len(listed)


@pytest.mark.parametrize("name", PAGES)
def test_a_page_says_what_to_set_and_what_to_check(name: str) -> None:
    """It names an address of Tidemark, and no folder of the machine that made it."""
    text = PAGES[name]
    assert [part for part in PARTS if part not in text] == []
    assert "127.0.0.1:8787" in text.partition("## Model names")[0] or name == "cursor"
    assert str(Path.home()) not in text
    assert str(pages.ROOT) not in text


@pytest.mark.parametrize("name", PAGES)
def test_the_json_of_a_page_is_json(name: str) -> None:
    """And no block is empty."""
    found = re.findall(r"^```(\w+)\n(.*?)\n```$", PAGES[name], re.MULTILINE | re.DOTALL)
    assert all(text.strip() for _, text in found)
    assert all(json.loads(text) for language, text in found if language == "json")


def test_lists_are_indented_for_pythons_markdown() -> None:
    """What belongs to an item stands four blanks in, fences with all of their lines; other fences stay."""
    text = "- one\n  more\n\n  ```text\n  a\n    b\n  ```\n\n```text\n  c\n```\n"
    assert pages.indented(text) == "- one\n    more\n\n    ```text\n    a\n      b\n    ```\n\n```text\n  c\n```\n"


def test_a_page_is_summed_up_by_its_first_sentence() -> None:
    """Without marks and links, and not by a heading, a picture or a list."""
    text = "# Title\n\n![A picture.](a.svg)\n\n- no\n\nIt **reads** [the\nfile](a.md) `b`. More.\n"
    assert pages.summary(text) == "It reads the file b."


def test_all_pages_are_written_and_listed(tmp_path: Path) -> None:
    """With the navigation, in which none is missing; links lead to where the pages stand then."""
    assert pages.main(str(tmp_path / "pages")) == 0
    docs = tmp_path / "pages" / "docs"
    settings = (tmp_path / "pages" / "mkdocs.yml").read_text(encoding="utf-8")
    written = {path.relative_to(docs).as_posix() for path in docs.rglob("*.md")}
    assert {name for name in written if name not in settings} == set()
    assert "](files/deploy/compose.yaml)" in (docs / "operations.md").read_text(encoding="utf-8")
    assert "](../contributing.md" not in (docs / "glossary.md").read_text(encoding="utf-8")
    assert "](contributing.md#words-that-are-not-used)" in (docs / "glossary.md").read_text(encoding="utf-8")
    assert "](../configuration.md" in (docs / "clients" / "claude-code.md").read_text(encoding="utf-8")
