"""The line for a masked result: what it was, in a few words that no result can forge."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.histories import message
from tests.support.examples import examples
from tidemark.core.recall.passage import handle_of
from tidemark.core.recall.result_lines import OPENING, QUOTED_CHARS, exit_code, line_for

TESTS = "=" * 40 + "\ncollected 12 items\n" + "\n".join(f"test {number} PASSED" for number in range(12))
RUN = f"{TESTS}\n\n{'-' * 30}\n12 passed in 0.31s\nexit code: 0\n"


def test_a_line_says_how_a_result_began_and_ended() -> None:
    """Rules of dashes say nothing."""
    result = message(role="tool", tool_call_id="c", content=RUN)
    assert line_for(result, handle=False) == (
        f'[Left out: {RUN.count(chr(10))} lines, {len(RUN)} bytes, it begins "collected 12 items", '
        'ends "exit code: 0", exit 0]'
    )


def test_a_line_names_the_handle_if_a_model_can_use_it() -> None:
    """It is the one that the search function shows."""
    result = message(role="tool", tool_call_id="c", content=RUN)
    assert line_for(result, handle=True).endswith(f"; whole by its handle {handle_of(result)}]")


@given(st.text(max_size=3000), st.booleans())
@settings(max_examples=examples(200), deadline=None)
def test_a_line_is_one_short_line_whatever_the_result_is(text: str, handle: bool) -> None:  # noqa: FBT001 - drawn
    """It has no line end, and its two quotations are bounded."""
    line = line_for(message(role="tool", tool_call_id="c", content=text), handle=handle)
    assert line.startswith(OPENING)
    assert len(line.splitlines()) == 1
    assert len(line) < 2 * QUOTED_CHARS + 140
    assert line.count('"') in (0, 2, 4)


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("exit code 1", "1"),
        ("Exit code: 127", "127"),
        ('{"exit_code": 2, "output": ""}', "2"),
        ("Process exited with code 0", "0"),
        ("exit status 3", "3"),
        ("exited with 5 files", "5"),
        ("call sys.exit(1) there", ""),
        ("exit the loop", ""),
        ("", ""),
    ],
)
def test_an_exit_code_is_read_from_what_shells_print(text: str, code: str) -> None:
    """Of the last one, at the end or at the beginning."""
    assert exit_code(text) == code
