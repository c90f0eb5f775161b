"""A model's text that is too long loses statements from its longest section's middle, and nothing else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.conversation.prose import GAP, is_heading, shorten_prose

TEXT = """\
## Context
- Ana moves a shop from MySQL to PostgreSQL 16.
- The window is Sunday, 2 to 4 a.m. CET. It is fixed.
- There are 41 tables of 340 GB.

## Decisions
- Unique index on lower(email).
- Ben writes the script.

## Unresolved
- Is a rollback path needed?
"""


def shortened(text: str, characters: int) -> str:
    """Shorten to so many characters."""
    return shorten_prose(text, lambda part: len(part) <= characters).text


def test_a_text_that_has_room_stays_byte_for_byte() -> None:
    """White space and all."""
    done = shorten_prose(TEXT, lambda part: len(part) <= len(TEXT))
    assert (done.text, done.statements, done.left_out) == (TEXT, 0, 0)


def test_the_longest_section_loses_its_middle_first() -> None:
    """Its first and its last statement stay, the other sections are whole, and a mark says where something went."""
    done = shorten_prose(TEXT, lambda part: len(part) <= len(TEXT) - 40)
    assert done.text.startswith(f"## Context\n- Ana moves a shop from MySQL to PostgreSQL 16.\n{GAP}\n")
    assert done.text.endswith(TEXT[TEXT.index("- There are 41 tables") :].rstrip())
    assert (done.statements, done.left_out) == (7, 2)


def test_a_clock_time_and_a_title_are_no_ends_of_statements() -> None:
    """No fragment such as "CET." is left alone."""
    text = "The window is 2 to 4 a.m. CET on Sunday. Dr. Lin approved it at 9 p.m. UTC. Ben was told."
    for characters in range(20, len(text)):
        for part in shortened(text, characters).replace(GAP, "\n").replace("…", "\n").split("\n"):
            assert part.strip() in ("", *(text[: len(part.strip())], part.strip())[:2])
            assert not part.strip().startswith(("CET", "Lin", "UTC"))


def test_the_last_section_outlives_all_others() -> None:
    """Open questions stand there; where hardly anything has space, the beginning of the last statement does."""
    assert shortened(TEXT, 60) == f"{GAP}\n\n## Unresolved\n- Is a rollback path needed?"
    assert shortened(TEXT, 12) == "- Is a roll…"
    assert shortened(TEXT, 0) == ""


def test_prose_without_headings_keeps_both_ends() -> None:
    """Four sentences are one section."""
    text = "First it broke. Then Ana looked. Then Ben mended it. Now the tests pass."
    assert shortened(text, 60) == f"First it broke. {GAP} Then Ben mended it. Now the tests pass."


def test_a_fenced_block_stays_or_goes_as_a_whole() -> None:
    """Half of a block of code says something else."""
    block = "```sh\npip install x\nmake test\n```\n"
    text = f"Ana set it up.\n{block}Ben checked it.\nThe tests pass now.\n"
    for characters in range(10, len(text)):
        done = shortened(text, characters)
        assert block.strip() in done or "```" not in done


LINES = st.sampled_from(
    [
        "## Context",
        "**Decisions**",
        "Unresolved:",
        "- We go with option B. Ben agreed.",
        "1. Port 8080 is used by Dr. Lin.",
        "It rained at 2 a.m. in Bonn. Nobody minded.",
        "客户数据不得出境。预算是五十万。",
        "```py",
        "```",
        "",
        "x" * 60,
    ]
)


@given(st.lists(LINES, max_size=30).map("\n".join), st.integers(0, 400))
def test_what_stays_was_written_and_has_room(text: str, characters: int) -> None:
    """Whatever a model writes: within the space, in order, byte for byte, and no heading stands alone."""
    done = shorten_prose(text, lambda part: len(part) <= characters)
    assert len(done.text) <= characters or done.text == text
    place = 0
    for part in done.text.replace("…]", "").replace("[", "\n").replace("…", "\n").split("\n"):
        if wanted := part.strip():
            place = text.index(wanted, place) + len(wanted)
    lines = [line for line in done.text.split("\n") if line.strip()]
    if done.left_out and lines and "```" not in text:  # in a block of code, nothing is a heading
        assert not is_heading(lines[-1])
    assert 0 <= done.left_out <= done.statements
