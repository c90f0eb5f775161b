"""Renders the demo's output: the turns, the bar beneath them, and the comparison of both conversations.

`talk.py` makes the turns and shows them on the `Screen`, and `run.py` prints the rest on it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import field

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from tidemark.core.frozen import frozen
from tidemark.demo import llama

THRESHOLD = 0.85
"""Ratio of the window at which compaction is due. Lower than the default, because the model's own tokenizer
makes up to 11 % more tokens of this conversation than the tokenizers that Tidemark counts with."""
TARGET = 0.45
"""Ratio of the limit to which a compaction brings a request: the default of docs/configuration.md."""
HEADING = "turn  tokens before > after  action     cached/prompt  seconds  question | answer"


@frozen
class Turn:
    """One question and its answer, or the reason why there is none."""

    number: int
    """Starts at 1."""
    question: str
    answer: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Those of the answer; `X-Tidemark-...` are missing without Tidemark."""
    prompt_tokens: int = 0
    """The prompt's tokens in the server's own count, of which `cached_tokens` came from its prompt cache."""
    cached_tokens: int = 0
    seconds: float = 0.0
    error: str = ""
    """The server's own message if the turn was refused or interrupted."""
    is_overflow: bool = False
    """Whether the error is that the prompt exceeds the server's window."""

    @property
    def action(self) -> str:
        return self.headers.get("x-tidemark-action", "-")

    def tokens(self, when: str) -> int:
        """Return the tokens of the request `before` or `after` Tidemark, or the server's count without it."""
        return int(self.headers.get(f"x-tidemark-tokens-{when}", self.prompt_tokens))


def turn_line(turn: Turn, columns: int) -> str:
    """Return one line of at most `columns` characters for `turn`."""
    question, answer, error = (" ".join(text.split()) for text in (turn.question, turn.answer, turn.error))
    if error:
        return _cut(f"{turn.number:>4}  FAILED  {error}", columns)
    facts = (
        f"{turn.number:>4}  {turn.tokens('before'):>13} > {turn.tokens('after'):<5}  {turn.action:<9}  "
        f"{turn.cached_tokens:>6}/{turn.prompt_tokens:<6}  {turn.seconds:>7.1f}  "
    )
    return _cut(f"{facts}{_cut(question, (columns - len(facts)) // 2)} | {answer}", columns)


def bar(tokens: int, marks: Sequence[int], columns: int) -> str:
    """Draw `tokens` on a scale of the whole window, with its marks."""
    per_column = llama.WINDOW_TOKENS / columns
    marked = [min(int(mark / per_column), columns - 1) for mark in marks]
    filled = round(tokens / per_column)
    return "".join("┃" if column in marked else "█" if column < filled else "·" for column in range(columns))


def water(limit_tokens: int | None) -> Sequence[int]:
    """Return low and high water in tokens for a request's limit (docs/compaction.md); nothing if it has no limit."""
    if limit_tokens is None:
        return ()
    return int(TARGET * limit_tokens), min(int(THRESHOLD * llama.WINDOW_TOKENS), limit_tokens)


def comparison(direct: Sequence[Turn], proxied: Sequence[Turn], script_turns: int) -> tuple[bool, list[str]]:
    """Return whether the conversation overflowed directly and was finished through Tidemark, and lines that say so."""
    straight, through = direct[-1], proxied[-1]
    columns = (_column("straight", direct, script_turns), _column("through Tidemark", proxied, script_turns))
    lines = [f"{name:<34}{value:>16}{other:>20}" for (name, value), (_, other) in zip(*columns, strict=True)]
    if straight.error:
        lines.append(f"The server's own message at turn {straight.number}: {straight.error}")
    else:
        lines.append(f"{script_turns} turns fit into the window as they are: ask for more with --turns.")
    if through.error:
        lines.append(f"Through Tidemark, turn {through.number} failed, which is a defect: {through.error}")
    is_shown = straight.is_overflow and not through.error
    if is_shown:
        failing = f"Straight, the window was full at turn {straight.number} and every later turn fails likewise"
        lines += ["", f"{failing}; through Tidemark all {script_turns} turns were answered."]
    return is_shown, lines


def _column(title: str, turns: Sequence[Turn], script_turns: int) -> list[tuple[str, str]]:
    answered = [turn for turn in turns if not turn.error]
    prompt = sum(turn.prompt_tokens for turn in answered)
    cached = sum(turn.cached_tokens for turn in answered)
    compactions = sum(turn.action in ("compacted", "forced") for turn in answered)
    return [
        ("", title),
        ("turns answered", f"{len(answered)} of {script_turns}"),
        ("ended by", f"failure, turn {turns[-1].number}" if turns[-1].error else "end of script"),
        ("compactions", "-" if all(turn.action == "-" for turn in answered) else str(compactions)),
        ("prompt tokens sent to the model", f"{prompt:,}"),
        ("... from its prompt cache", f"{cached:,} ({cached / max(prompt, 1):.0%})"),
        ("... processed", f"{prompt - cached:,} ({(prompt - cached) / max(prompt, 1):.0%})"),
        ("seconds", f"{sum(turn.seconds for turn in turns):.1f}"),
    ]


class Screen(Live):
    """Prints lines on standard output and, while it is entered, a bar and the arriving answer beneath them.

    A pipe, a file and a dumb terminal get the lines alone. Mutable: the bar.
    """

    def __init__(self) -> None:
        console = Console(highlight=False, width=None if sys.stdout.isatty() else 120)
        # No refresh thread: it would receive the signals that `children.py` blocks in the main thread.
        super().__init__(console=console, auto_refresh=False, transient=True)
        self._bar = Text()

    def say(self, *lines: str) -> None:
        """Print lines at once, above the bar. A reader that is gone ends the demo with exit code 1."""
        for line in lines:
            self.console.print(Text(line), soft_wrap=True)

    def show(self, turn: Turn, title: str) -> None:
        """Print the line of a turn, and draw the bar anew."""
        self.say(turn_line(turn, self.console.width))
        tokens, limit = turn.tokens("after"), turn.headers.get("x-tidemark-limit")
        marks = water(int(limit) if limit else None)
        names = [f"{name} {mark}" for name, mark in zip(("low", "high"), marks, strict=False)]
        scale = ", ".join([f" {tokens} of {llama.WINDOW_TOKENS} tokens", *names])
        columns = max(10, min(48, self.console.width - len(title) - len(scale) - 2))
        drawn = Text(bar(tokens, marks, columns), ("green", "yellow", "red")[sum(tokens > mark for mark in marks)])
        self._bar = Text.assemble((f"{title} ", "bold"), drawn, scale, no_wrap=True, overflow="ellipsis")
        self.listen("")

    def listen(self, answer: str) -> None:
        """Redraw the end of the answer under the bar."""
        end = " ".join(answer.split())[-self.console.width + 1 :]
        self.update(Group(self._bar, Text(end, style="dim", no_wrap=True)), refresh=True)


def _cut(text: str, columns: int) -> str:
    return text if len(text) <= columns else text[: max(columns - 1, 0)] + "…"
