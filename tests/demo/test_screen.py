"""What the demo says: the lines, the bar, the comparison and the verdict, without a server."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pty
import re
import subprocess
import sys

import pytest

from tidemark.demo.run import water
from tidemark.demo.screen import (
    AnsweredTurn,
    Conversation,
    FailedTurn,
    Screen,
    Water,
    bar,
    comparison,
    turn_line,
    verdict,
)

ANSWERED = AnsweredTurn(
    number=21,
    question="What is the name\nof our boat?",
    answer="Her name is Petrel.",
    before_tokens=1800,
    after_tokens=640,
    limit_tokens=1914,
    action="compacted",
    prompt_tokens=650,
    cached_tokens=22,
    seconds=1.25,
)
OVERFLOW = FailedTurn(
    number=22,
    status=400,
    message="request (2081 tokens) exceeds the available context size (2048 tokens)",
    is_overflow=True,
)


def conversation(*turns: AnsweredTurn, failure: FailedTurn | None = None, asked: int = 1) -> Conversation:
    """Build a conversation that took ten seconds."""
    return Conversation(script_turns=asked, turns=turns, failure=failure, seconds=10.0)


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
    @pytest.mark.parametrize("turn", [ANSWERED, OVERFLOW, dataclasses.replace(ANSWERED, answer="x" * 400)])
    def test_is_never_wider_than_the_terminal(self, turn: AnsweredTurn | FailedTurn, columns: int) -> None:
        """A line that is too long is cut with an ellipsis."""
        assert len(turn_line(turn, columns)) <= columns

    def test_gives_the_servers_own_words_for_a_failure(self) -> None:
        """A failed turn shows the status and the message of the server."""
        assert "HTTP 400: request (2081 tokens) exceeds" in turn_line(OVERFLOW, 160)


class TestBar:
    """The live bar."""

    def test_fills_with_the_tokens(self) -> None:
        """The filled part of the bar is the filled part of the window."""
        assert bar(1024, Water(2048), 40) == "█" * 20 + "·" * 20

    def test_marks_low_and_high_water(self) -> None:
        """Both marks stand where they lie in the window, over the filling."""
        drawn = bar(2048, Water(2048, low_tokens=512, high_tokens=1536), 40)
        assert [column for column, cell in enumerate(drawn) if cell == "┃"] == [10, 30]

    def test_never_leaves_its_width(self) -> None:
        """More tokens than the window has, and a mark at its end, stay within the bar."""
        assert len(bar(5000, Water(2048, low_tokens=900, high_tokens=2048), 40)) == 40

    def test_has_no_marks_without_tidemark(self) -> None:
        """Straight to the server there is no low and no high water."""
        assert water(None) == Water(2048)

    def test_high_water_is_never_above_the_limit(self) -> None:
        """The high mark is the threshold's part of the window, or the limit where that is smaller."""
        assert water(1000) == Water(2048, low_tokens=450, high_tokens=1000)
        assert water(1914).high_tokens == 1740


class TestComparison:
    """The closing comparison."""

    def test_sets_both_conversations_side_by_side(self) -> None:
        """Turns, compactions, prompt tokens and cached ones stand in two columns."""
        direct = conversation(failure=OVERFLOW, asked=40)
        text = "\n".join(comparison(direct, conversation(ANSWERED, asked=40)))
        for cell in ("0 of 40", "failure, turn 22", "22 (3%)", "628 (97%)", "1 of 40"):
            assert cell in text

    def test_quotes_the_servers_own_words(self) -> None:
        """Why the straight conversation ended is said in the server's words."""
        lines = comparison(conversation(failure=OVERFLOW), conversation(ANSWERED))
        assert any(OVERFLOW.message in line for line in lines)


class TestVerdict:
    """Exit code 0 means that the point was shown."""

    def test_an_overflow_and_a_finished_conversation_show_it(self) -> None:
        """Straight it overflowed, through Tidemark every turn was answered: shown."""
        assert verdict(conversation(failure=OVERFLOW), conversation(ANSWERED))[0]

    def test_a_failure_through_tidemark_is_a_defect(self) -> None:
        """Whatever the straight one did, a failure through Tidemark shows nothing and says where."""
        found = verdict(conversation(failure=OVERFLOW), conversation(failure=OVERFLOW))
        assert not found[0]
        assert "turn 22" in found[1]

    def test_a_conversation_that_fits_shows_nothing(self) -> None:
        """Too few turns to fill the window is said as such, with the mend."""
        found = verdict(conversation(ANSWERED), conversation(ANSWERED))
        assert not found[0]
        assert "--turns" in found[1]

    def test_another_failure_than_an_overflow_shows_nothing(self) -> None:
        """A server that fails for another reason proves nothing about windows."""
        other = dataclasses.replace(OVERFLOW, is_overflow=False)
        assert not verdict(conversation(failure=other), conversation(ANSWERED))[0]


def test_without_a_terminal_only_lines_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    """Into a pipe go plain lines, without control characters and without the bar."""
    with Screen() as out:
        out.gauge(100, Water(2048), title="direct 1/40")
        out.listen("Her name")
        out.say(turn_line(ANSWERED, out.columns))
    written = capsys.readouterr()
    assert (written.out, written.err) == (turn_line(ANSWERED, 120) + "\n", "")


SHOWN = """
from tidemark.demo.screen import Screen, Water
with Screen() as out:
    out.say("heading")
    for number in range(3):
        out.gauge(100 * number, Water(2048, 450, 1000), title=f"direct {number}/40")
        out.listen("Her name is " * number)
        out.say(f"line {number}")
"""
LINES = ["heading", "line 0", "line 1", "line 2"]


def shown_to(*, output_too: bool, term: str = "xterm-256color") -> tuple[str, str]:
    """What goes into a pipe at standard output, and what to a terminal at standard error, or at both."""
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": term, "COLUMNS": "100"}
    output = slave if output_too else subprocess.PIPE
    command = [sys.executable, "-c", SHOWN]
    done = subprocess.run(command, stdout=output, stderr=slave, env=environ, timeout=60, check=True)
    os.close(slave)
    written = b""
    with contextlib.suppress(OSError):  # Linux: the other end is closed
        while piece := os.read(master, 65_536):
            written += piece
    os.close(master)
    return (done.stdout or b"").decode(), written.decode()


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


def test_the_bar_belongs_to_standard_error() -> None:
    """Standard output is the lines alone, so that a pipe gets them."""
    output, terminal = shown_to(output_too=False)
    assert output.splitlines() == LINES
    assert "direct 2/40" in terminal
    assert remaining(terminal) == []


def test_on_one_terminal_the_bar_erases_no_line() -> None:
    """It stands beneath the lines, and is gone at the end."""
    _, terminal = shown_to(output_too=True)
    assert "direct 2/40" in terminal
    assert remaining(terminal) == LINES


def test_a_dumb_terminal_gets_lines_only() -> None:
    """It cannot redraw one."""
    assert shown_to(output_too=True, term="dumb")[1].splitlines() == LINES
