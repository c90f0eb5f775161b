"""What the demo says: the lines, the bar, the comparison and the verdict, without a server."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from tidemark.demo.screen import Screen, Turn, bar, comparison, turn_line, water

ANSWERED = Turn(
    number=21,
    question="What is the name\nof our boat?",
    answer="Her name is\nPetrel.",
    headers={
        "x-tidemark-tokens-before": "1800",
        "x-tidemark-tokens-after": "640",
        "x-tidemark-limit": "1914",
        "x-tidemark-action": "compacted",
    },
    prompt_tokens=650,
    cached_tokens=22,
    seconds=1.25,
)
OVERFLOW = Turn(
    number=22,
    question="And her length?",
    error="request (2081 tokens) exceeds the available context size (2048 tokens)",
    is_overflow=True,
)


class TestTurnLine:
    """One line a turn."""

    def test_says_what_was_done_to_the_request(self) -> None:
        """An answered turn shows number, tokens before and after, action, cached prompt tokens, seconds."""
        words = turn_line(ANSWERED, 160).split()
        assert words[:7] == ["21", "1800", ">", "640", "compacted", "22/650", "1.2"]

    def test_shows_both_voices(self) -> None:
        """Question and answer follow, on one line even where they hold line breaks."""
        assert turn_line(ANSWERED, 160).endswith("What is the name of our boat? | Her name is Petrel.")

    @pytest.mark.parametrize("columns", [20, 60, 79, 80, 120])
    @pytest.mark.parametrize("turn", [ANSWERED, OVERFLOW, replace(ANSWERED, answer="x" * 400)])
    def test_is_never_wider_than_the_terminal(self, turn: Turn, columns: int) -> None:
        """A line that is too long is cut with an ellipsis."""
        assert len(turn_line(turn, columns)) <= columns

    def test_keeps_its_columns(self) -> None:
        """Line breaks of an answer do not move them."""
        assert turn_line(ANSWERED, 160).index("compacted") == turn_line(replace(ANSWERED, answer=""), 160).index(
            "compacted"
        )

    def test_gives_the_servers_own_words_for_a_failure(self) -> None:
        """A failed turn shows the message of the server."""
        assert "FAILED  request (2081 tokens) exceeds" in turn_line(OVERFLOW, 160)


class TestBar:
    """The live bar."""

    def test_fills_with_the_tokens(self) -> None:
        """The filled part of the bar is the filled part of the window."""
        assert bar(768, (), 40) == "█" * 20 + "·" * 20

    def test_marks_low_and_high_water(self) -> None:
        """Both marks stand where they lie in the window, over the filling."""
        drawn = bar(1536, (384, 1152), 40)
        assert [column for column, cell in enumerate(drawn) if cell == "┃"] == [10, 30]

    def test_never_leaves_its_width(self) -> None:
        """More tokens than the window has, and a mark at its end, stay within the bar."""
        assert len(bar(5000, (900, 1536), 40)) == 40

    def test_has_no_marks_without_tidemark(self) -> None:
        """Straight to the server there is no low and no high water."""
        assert water(None) == ()

    def test_high_water_is_never_above_the_limit(self) -> None:
        """The high mark is the threshold's part of the window, or the limit where that is smaller."""
        assert water(1000) == (450, 1000)
        assert water(1914) == (861, 1305)


class TestComparison:
    """The closing comparison; exit code 0 means that the point was shown."""

    def test_sets_both_conversations_side_by_side(self) -> None:
        """Turns, compactions, prompt tokens and cached ones stand in two columns."""
        text = "\n".join(comparison([OVERFLOW], [ANSWERED], 40)[1])
        for cell in ("0 of 40", "failure, turn 22", "22 (3%)", "628 (97%)", "1 of 40", "1.2"):
            assert cell in text

    def test_an_overflow_and_a_finished_conversation_show_it(self) -> None:
        """Straight it overflowed, in the server's words, and through Tidemark every turn was answered: shown."""
        is_shown, lines = comparison([ANSWERED, OVERFLOW], [ANSWERED], 1)
        assert is_shown
        assert any(OVERFLOW.error in line for line in lines)
        assert lines[-1].startswith("Straight, the window was full at turn 22")

    def test_a_failure_through_tidemark_is_a_defect(self) -> None:
        """Whatever the straight one did, a failure through Tidemark shows nothing and says where."""
        is_shown, lines = comparison([OVERFLOW], [OVERFLOW], 1)
        assert not is_shown
        assert "turn 22" in lines[-1]

    def test_a_conversation_that_fits_shows_nothing(self) -> None:
        """Too few turns to fill the window is said as such, with the mend."""
        is_shown, lines = comparison([ANSWERED], [ANSWERED], 1)
        assert not is_shown
        assert "--turns" in lines[-1]

    def test_another_failure_than_an_overflow_shows_nothing(self) -> None:
        """A server that fails for another reason proves nothing about windows."""
        assert not comparison([replace(OVERFLOW, is_overflow=False)], [ANSWERED], 1)[0]


def test_without_a_terminal_only_lines_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Into a pipe go plain lines, without control characters and without the bar; none is broken."""
    with Screen() as out:
        out.listen("Her name")
        out.show(ANSWERED, "direct 1/40")
        out.say("x" * 200)
    written = capsys.readouterr()
    assert (written.out, written.err) == (turn_line(ANSWERED, 120) + "\n" + "x" * 200 + "\n", "")


SHOWN = """
from tidemark.demo.screen import Screen, Turn
with Screen() as out:
    out.say("heading")
    for number in range(3):
        out.listen("Her name is " * number)
        out.show(Turn(number, "Q", "A", {"x-tidemark-limit": "1900"}, 100 * number), f"direct {number}/40")
    out.say("x" * 150)
"""
LINES = ["heading", *(turn_line(Turn(number, "Q", "A", {}, 100 * number), 100) for number in range(3)), "x" * 150]


def shown_to(*, terminal: bool, term: str = "xterm-256color") -> str:
    """What goes to a terminal, or into a pipe, without a word on standard error."""
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": term, "COLUMNS": "100"}
    output = slave if terminal else subprocess.PIPE
    command = [sys.executable, "-c", SHOWN]
    done = subprocess.run(command, stdout=output, stderr=slave, env=environ, timeout=60, check=True)
    os.close(slave)
    written = done.stdout or b""
    with contextlib.suppress(OSError):  # Linux: the other end is closed
        while piece := os.read(master, 65_536):
            written += piece
    os.close(master)
    return written.decode()


def remaining(written: str) -> list[str]:
    """The lines that a terminal shows at the end; it knows the few sequences that erase lines."""
    lines, row = [""], 0
    for piece in re.findall(r"\x1b\[[?\d;]*\w|[\r\n]|[^\x1b\r\n]+", written):
        if piece == "\n":
            row += 1
            lines += [""] * (row + 1 - len(lines))
        elif piece == "\x1b[1A":
            row -= 1
        elif piece == "\x1b[2K":
            lines[row] = ""
        elif piece != "\r" and not piece.startswith("\x1b"):
            lines[row] += piece
    return [line for line in lines if line]


def test_a_pipe_gets_lines_only() -> None:
    """Neither the bar nor a sequence that would draw it."""
    assert shown_to(terminal=False).splitlines() == LINES


def test_on_a_terminal_the_bar_erases_no_line() -> None:
    """It stands beneath the lines, and is gone at the end."""
    written = shown_to(terminal=True)
    assert "direct 2/40" in written
    assert "200 of 1536 tokens, low 855, high 1305" in written
    assert remaining(written) == LINES


def test_a_dumb_terminal_gets_lines_only() -> None:
    """It cannot redraw one."""
    assert shown_to(terminal=True, term="dumb").splitlines() == LINES
