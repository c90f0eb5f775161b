"""Renders an ``Activity`` for a person: a page for the terminal's size, or plain text for a pipe.

``top.py`` calls it. Texts of clients are made printable here, because a terminal would obey control characters.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tidemark.terminal.tables import plain_lines, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidemark.cli.activity import Activity

CONVERSATION_HEADS = ("conversation", "model", "messages", "tokens", "summaries", "last used")
MODEL_HEADS = ("model", "requests", "first p50", "p95", "whole p50", "p95")
"""The latencies are the times until the first byte of an answer, and until its last."""
FOOT_LINES = 2
"""The lines beneath the tables: the notes, and the keys."""
EVENT_LINES = 4
NARROW_COLUMNS, LOW_LINES = 60, 12
"""A terminal with fewer shows fewer columns, and no models, so that the conversations can still be read."""
NARROW_CONVERSATION, NARROW_MODEL = (0, 3, 5), (0, 1, 2)
"""The columns of the tables on a narrow terminal: conversation, tokens, last used; model, requests, first p50."""
ID_CHARACTERS = 12
"""Of an id on a full screen; the plain page has it whole, to be copied."""


def headline(activity: Activity) -> list[str]:
    """Return the lines of figures above the tables."""
    rates, totals = activity.rates, activity.totals
    lines = [
        f"Tidemark at {printable(activity.url)}   {time.strftime('%H:%M:%S', time.localtime(activity.at))}",
        (
            f"requests {rates['requests']:,.1f}/s   tokens in {rates['tokens_before']:,.0f}/s   "
            f"saved {rates['tokens_saved']:,.0f}/s   compactions {rates['compactions']:,.2f}/s"
        ),
        (
            f"since the start: requests {totals['requests']:,}   tokens {totals['tokens_before']:,}   "
            f"saved {totals['tokens_saved']:,}   compactions {totals['compactions']:,}"
        ),
        (
            f"now: streams {totals['streams_in_flight']:,}   preparations {totals['preparations_in_flight']:,}   "
            f"resting summarizers {totals['summarizers_resting']:,}"
        ),
    ]
    if activity.last_hour is not None:
        hour = activity.last_hour
        overhead, compactions = hour["overhead_seconds"], hour["compactions"]
        lines.append(
            f"last hour: requests {hour['requests']:,}   saved {hour['tokens_saved']:,}   "
            f"compactions {compactions['compacted'] + compactions['forced']:,}, failed {compactions['failed']:,}   "
            f"added latency p50 {_seconds(overhead['p50'])}, p95 {_seconds(overhead['p95'])}"
        )
    return lines


def plain_page(activity: Activity) -> list[str]:
    """Return everything as plain lines."""
    lines = [*headline(activity), ""]
    lines += plain_lines(MODEL_HEADS, model_rows(activity)) if activity.models else ["no request so far"]
    lines += ["", *plain_lines(CONVERSATION_HEADS, conversation_rows(activity))]
    return [*lines, *(f"note: {note}" for note in activity.notes)]


def styled_page(activity: Activity, problem: str, size: tuple[int, int]) -> RenderableType:
    """Return a page that fills a terminal, with the conversations that fit.

    :param problem: why the figures are old; empty if they are not
    :param size: columns and lines
    """
    from rich.console import Group
    from rich.layout import Layout

    columns, height = size
    head, *figures = headline(activity)
    is_low, is_narrow = height < LOW_LINES, columns < NARROW_COLUMNS
    figures = figures[: 1 if is_low else height // 5]  # a low terminal shows conversations rather than sums
    parts: list[RenderableType] = [_line(head, "bold"), *map(_line, figures), _line()]
    used = len(parts)
    if not is_low:
        rows = model_rows(activity)[: height // 6]
        parts += [_table(MODEL_HEADS, rows, NARROW_MODEL if is_narrow else ()), _line()]
        used += len(rows) + 2
    events = [_line(event_line(event), "cyan") for event in activity.events[-EVENT_LINES:]][: height // 8]
    space = max(0, height - used - len(events) - FOOT_LINES - 1)
    rows = conversation_rows(activity, ID_CHARACTERS)[:space]
    parts += [_table(CONVERSATION_HEADS, rows, NARROW_CONVERSATION if is_narrow else ()), *events]
    notes = _line(printable(problem or "; ".join(activity.notes)), "red" if problem else "dim")
    page = Layout()
    page.split_column(Layout(Group(*parts)), Layout(Group(notes, _line("q quits", "dim")), size=FOOT_LINES))
    return page


def model_rows(activity: Activity) -> list[list[str]]:
    """Return the cells of the models' table."""
    return [
        [
            printable(row["model"]),
            f"{row['requests']:,}",
            *(_seconds(row[name][share]) for name in ("first_byte_seconds", "request_seconds") for share in row[name]),
        ]
        for row in activity.models
    ]


def conversation_rows(activity: Activity, id_characters: int | None = None) -> list[list[str]]:
    """Return the cells of the conversations' table, the one used last first.

    :param id_characters: how much of an id is shown; None for all of it
    """
    return [
        [
            printable(str(entry["name"] or entry["id"][:id_characters])),
            printable(str(entry["model"])),
            f"{entry['messages']:,}",
            f"{entry['tokens']:,}",
            f"{entry['summaries']:,}",
            _ago(activity.at - entry["updated_at"]),
        ]
        for entry in activity.conversations
    ]


def event_line(event: Mapping[str, Any]) -> str:
    """Return a live event as one line: its kind, then its members."""
    members = (f"{name} {_member(value)}" for name, value in event.items() if name != "event")
    return printable(f"{event['event']}: {', '.join(members)}")


def _member(value: object) -> str:
    return f"{value:,}" if isinstance(value, int) else f"{value:.3g}" if isinstance(value, float) else str(value)


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]], shown: Sequence[int] = ()) -> RenderableType:
    """Return a table of the columns that are shown: all if none are named."""
    from rich.table import Table
    from rich.text import Text

    shown = shown or range(len(heads))

    table = Table(box=None, pad_edge=False, header_style="bold")
    for number in shown:
        table.add_column(heads[number], no_wrap=True, overflow="ellipsis", justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*(Text(row[number]) for number in shown))
    return table


def _line(text: str = "", style: str = "") -> RenderableType:
    """Return a text that is one line, however narrow the terminal is."""
    from rich.text import Text

    return Text(text, style=style, no_wrap=True, overflow="ellipsis")


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:,.0f} ms" if value < 1 else f"{value:,.1f} s"


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= size:
            return f"{seconds / size:,.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"
