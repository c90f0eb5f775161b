"""The pictures of the documentation: small, described in words, and none that no page shows."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT

MOST_BYTES = 120_000
PICTURES = ROOT / "docs" / "pictures"
SHOWN = re.compile(r"!\[([^\]]*)\]\((?:docs/)?pictures/([\w.-]+)\)")


def test_every_picture_is_small_and_shown_with_words() -> None:
    """Somebody who cannot see it reads what it shows."""
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    shown = {name: words for page in pages for words, name in SHOWN.findall(page.read_text("utf-8"))}
    assert set(shown) == {path.name for path in PICTURES.iterdir()}
    assert [name for name, words in shown.items() if len(words) < 30] == []
    assert [path.name for path in PICTURES.iterdir() if path.stat().st_size > MOST_BYTES] == []
