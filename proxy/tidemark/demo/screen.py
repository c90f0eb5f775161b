"""Renders the demo's output: first the values of turns and conversations, then their renderers.

`talk.py` makes the turns and `run.py` the conversations. The functions here turn them into text, and `Screen` prints
it on standard output, above a live bar on standard error.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Self

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tidemark.core.frozen import frozen

_PIPE_COLUMNS = 120
_BAR_COLUMNS = 48


@frozen
class AnsweredTurn:
    """A turn that was answered."""

    number: int
    """Starts at 1."""
    question: str
    answer: str
    before_tokens: int
    """The tokens of the client's request: Tidemark's count, or the server's if it was sent directly."""
    after_tokens: int
    """The tokens of the request that the server received, counted in the same way."""
    limit_tokens: int | None
    """Tidemark's budget for a request; `None` if it was sent directly."""
    action: str
    """The value of `X-Tidemark-Action`, or `-` without Tidemark."""
    prompt_tokens: int
    """The prompt's tokens, in the server's own count."""
    cached_tokens: int
    """The prompt's tokens from the server's prompt cache."""
    seconds: float


@frozen
class FailedTurn:
    """A turn that was refused or interrupted."""

    number: int
    status: int | None
    """The HTTP status; `None` without a response, or with an interrupted one."""
    message: str
    """The server's own message."""
    is_overflow: bool
    """Whether the server reports that the prompt exceeds its window."""


@frozen
class Conversation:
    """One conversation up to its end or its first failure."""

    script_turns: int
    """The number of turns in the script."""
    turns: tuple[AnsweredTurn, ...]
    failure: FailedTurn | None
    seconds: float

    @property
    def compactions(self) -> int:
        return sum(turn.action in ("compacted", "forced") for turn in self.turns)

    @property
    def prompt_tokens(self) -> int:
        return sum(turn.prompt_tokens for turn in self.turns)

    @property
    def cached_tokens(self) -> int:
        """Return the tokens of all prompts from the server's prompt cache."""
        return sum(turn.cached_tokens for turn in self.turns)


@frozen
class Water:
    """The model's window and Tidemark's marks; the marks are `None` without Tidemark."""

    window_tokens: int
    low_tokens: int | None = None
    high_tokens: int | None = None

    def colour(self, tokens: int) -> str:
        """Return green up to low water, yellow up to high water, red above."""
        if tokens > (self.high_tokens or self.window_tokens):
            return "red"
        return "green" if tokens <= (self.low_tokens or self.window_tokens) else "yellow"


HEADING = "turn  tokens before > after  action     cached/prompt  seconds  question | answer"


def turn_line(turn: AnsweredTurn | FailedTurn, columns: int) -> str:
    """Return one line of at most `columns` characters for `turn`."""
    if isinstance(turn, FailedTurn):
        status = f"HTTP {turn.status}: " if turn.status else ""
        return _cut(f"{turn.number:>4}  FAILED  {status}{turn.message}", columns)
    facts = (
        f"{turn.number:>4}  {turn.before_tokens:>13} > {turn.after_tokens:<5}  {turn.action:<9}  "
        f"{turn.cached_tokens:>6}/{turn.prompt_tokens:<6}  {turn.seconds:>7.1f}  "
    )
    rest = max(columns - len(facts) - len(" | "), 0)
    question = _cut(turn.question, rest // 2)
    return _cut(f"{facts}{question} | {_cut(turn.answer, rest - len(question))}", columns)


def bar(tokens: int, water: Water, columns: int = _BAR_COLUMNS) -> str:
    """Draw `tokens` on a scale of the whole window, with a mark at low and one at high water."""
    per_column = water.window_tokens / columns
    cells = ["█" if (column + 0.5) * per_column <= tokens else "·" for column in range(columns)]
    for mark in filter(None, (water.low_tokens, water.high_tokens)):
        cells[min(int(mark / per_column), columns - 1)] = "┃"
    return "".join(cells)


def comparison(direct: Conversation, proxied: Conversation) -> list[str]:
    """Return the closing comparison, line by line."""
    rows = [("", "straight", "through Tidemark")]
    rows += [(name, value(direct), value(proxied)) for name, value in _ROWS]
    lines = [f"{name:<34}{straight:>16}{proxied_value:>20}" for name, straight, proxied_value in rows]
    if direct.failure:
        lines.append(f"The server's own message at turn {direct.failure.number}: {direct.failure.message}")
    if proxied.failure:
        lines.append(f"Through Tidemark, turn {proxied.failure.number} failed: {proxied.failure.message}")
    return lines


def verdict(direct: Conversation, proxied: Conversation) -> tuple[bool, str]:
    """Return whether the conversation overflowed directly and was finished through Tidemark, and a sentence on it."""
    if proxied.failure:
        return False, f"Tidemark failed at turn {proxied.failure.number}; that is a defect."
    if direct.failure is None:
        return False, f"{direct.script_turns} turns fit into the window as they are: ask for more with --turns."
    if not direct.failure.is_overflow:
        return False, f"The server failed at turn {direct.failure.number}, but not because its window was full."
    plural = "s" if proxied.compactions != 1 else ""
    return True, (
        f"Straight, the window was full at turn {direct.failure.number} and every later turn fails likewise; through "
        f"Tidemark all {proxied.script_turns} turns were answered, after {proxied.compactions} compaction{plural}."
    )


def say(line: str = "") -> None:
    """Print a line at once."""
    print(line, flush=True)  # noqa: T201 - the demo writes to standard output


class Screen:
    """Prints lines on standard output, above a bar and the arriving answer on standard error.

    The bar is gone at the end of a `with`; a pipe, a file and a dumb terminal get none.
    Mutable: what stands beneath the lines, and what draws it.
    """

    def __init__(self) -> None:
        self._console = Console(highlight=False, stderr=True)
        self._output = Console(highlight=False)
        self._draws = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live: Live | None = None
        self._bar = Text()
        self._answer = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._clear()

    @property
    def columns(self) -> int:
        """Return the current width of the terminal that lines are printed on."""
        return self._output.width if self._output.is_terminal else _PIPE_COLUMNS

    def say(self, line: str = "") -> None:
        """Print a line above the bar, which is taken away meanwhile: both may be on one terminal."""
        self._clear()
        say(line)
        self._draw()

    def gauge(self, tokens: int, water: Water, *, title: str) -> None:
        """Redraw the bar."""
        scale = f" {tokens} of {water.window_tokens} tokens"
        if water.low_tokens and water.high_tokens:
            scale += f", low {water.low_tokens}, high {water.high_tokens}"
        columns = max(10, min(_BAR_COLUMNS, self._console.width - len(title) - len(scale) - 2))
        drawn = Text(bar(tokens, water, columns), style=water.colour(tokens))
        self._bar = Text.assemble((f"{title} ", "bold"), drawn, scale, no_wrap=True, overflow="ellipsis")
        self._draw()

    def listen(self, answer: str) -> None:
        """Redraw the end of the answer under the bar."""
        self._answer = " ".join(answer.split())[-self._console.width + 1 :]
        self._draw()

    def _draw(self) -> None:
        drawn = Group(self._bar, Text(self._answer, style="dim", no_wrap=True))
        if self._live is not None:
            self._live.update(drawn, refresh=True)
        elif self._bar and self._draws:
            # There is no refresh thread, because it would receive the signals that `children.py` blocks in the main
            # thread. A new one each time, since a stopped one would erase the lines that were printed since.
            self._live = Live(
                drawn,
                console=self._console,
                auto_refresh=False,
                transient=True,
                redirect_stdout=False,
                redirect_stderr=False,
            )
            self._live.start(refresh=True)

    def _clear(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def _share(part: int, whole: int) -> str:
    return f"{part:,} ({part / whole:.0%})" if whole else "0"


_ROWS: tuple[tuple[str, Callable[[Conversation], str]], ...] = (
    ("turns answered", lambda c: f"{len(c.turns)} of {c.script_turns}"),
    ("ended by", lambda c: f"failure, turn {c.failure.number}" if c.failure else "end of script"),
    ("compactions", lambda c: "-" if all(turn.action == "-" for turn in c.turns) else str(c.compactions)),
    ("prompt tokens sent to the model", lambda c: f"{c.prompt_tokens:,}"),
    ("... from its prompt cache", lambda c: _share(c.cached_tokens, c.prompt_tokens)),
    ("... processed", lambda c: _share(c.prompt_tokens - c.cached_tokens, c.prompt_tokens)),
    ("seconds", lambda c: f"{c.seconds:.1f}"),
)


def _cut(text: str, columns: int) -> str:
    flat = " ".join(text.split()) if "\n" in text else text
    return flat if len(flat) <= columns else flat[: max(columns - 1, 0)] + "…"
