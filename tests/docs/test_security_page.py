"""``docs/security.md``: each promise names tests that exist, and the page is short enough to be read whole."""

from __future__ import annotations

import re

import pytest

from tests.docs.pages import ROOT, cells, quoted, text_of

PAGE = "docs/security.md"
MOST_WORDS = 1_200
PROMISES = cells(PAGE, "attacker")
TESTS = re.compile(r"tests/[\w/]+\.py")


def test_each_promise_names_its_tests_and_nothing_else_there() -> None:
    """A promise without a test would be a hope."""
    assert len(PROMISES) > 10
    assert [row[1] for row in PROMISES if not row[2] or not all(map(TESTS.fullmatch, quoted(row[2])))] == []


@pytest.mark.parametrize("path", sorted(set(TESTS.findall(text_of(PAGE)))))
def test_each_test_that_is_named_exists_and_has_tests(path: str) -> None:
    """A file that was renamed, or emptied, shows nothing."""
    assert re.search(r"^ *(?:async )?def test_", (ROOT / path).read_text(encoding="utf-8"), re.MULTILINE)


def test_owasps_list_is_answered_as_a_whole_in_order() -> None:
    """Also what does not concern a proxy, so that a reader need not guess."""
    assert [row[0].split()[0] for row in cells(PAGE, "risk")] == [f"LLM{number:02}" for number in range(1, 11)]


def test_the_page_is_short() -> None:
    """An auditor reads it whole."""
    assert len(text_of(PAGE).split()) <= MOST_WORDS


def test_reports_need_no_address_that_nobody_reads() -> None:
    """They go by the repository's own way."""
    policy = text_of("SECURITY.md")
    assert "private advisory of the repository" in " ".join(policy.split())
    assert not re.search(r"\S+@\S+", policy)
