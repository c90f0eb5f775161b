"""The command ``tidemark top``: it shows what a running server does, until a key ends it.

``cli/main.py`` adds it to its group. Threads ask the server, so that the terminal answers keys and signals at once.

An ``Activity`` is rendered as a page for the terminal's size, or as plain text for a pipe. Texts of clients are made
printable here, because a terminal would obey control characters.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemark.cli.activity import EVENT_KINDS, EVENTS, Activity, WatchedServer, Watcher, listen
from tidemark.terminal.http_client import ServerRefusal, own_certificate, server_url, url_option
from tidemark.terminal.options import config_option, example, json_option
from tidemark.terminal.tables import plain_lines, print_json, printable

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tidemark.cli.activity import Activity


REFRESH_SECONDS = 1.0
BURST_SECONDS = 0.5
"""The shortest time between two readings, because live events come in bursts."""
QUITTING_KEYS = ("q", "Q", "\x1b", "\x04")
"""q, Escape, Ctrl-D; arrow keys begin with Escape, too, and mean nothing here."""
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


@click.command(
    epilog=example("tidemark top", "tidemark top --once --json"), short_help="Show what a running server does."
)
@config_option
@url_option
@click.option("--once", is_flag=True, help="Print the figures of one second, and end; so it is in a pipe.")
@json_option
def top(config: Path | None, url: str | None, once: bool, as_json: bool) -> None:
    """Show what a running server does: conversations, rates, compactions, latencies. q quits.

    TIDEMARK_ADMIN_TOKEN shows all conversations; without it those of OPENAI_API_KEY are shown. The latencies are times
    until the first byte and the last of an answer, so they contain the upstream's.
    """
    address = url or server_url(config)
    server = WatchedServer.of(address, os.environ, own_certificate(address, config))
    watcher = Watcher(server)
    first = watcher.read()
    if once or as_json or not sys.stdout.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        time.sleep(REFRESH_SECONDS)
        activity = watcher.read()
        if as_json:
            print_json(dataclasses.asdict(activity))
        else:
            click.echo("\n".join(plain_page(activity)))
        return
    sys.exit(_watch(server, watcher, first))


class _Latest:
    """The newest activity, which one thread writes and another shows."""

    def __init__(self, activity: Activity) -> None:
        self.activity = activity
        self.problem = ""
        self.events: deque[Mapping[str, Any]] = deque(maxlen=EVENTS)

    def page(self, size: tuple[int, int]) -> RenderableType:
        return styled_page(dataclasses.replace(self.activity, events=list(self.events)), self.problem, size)


def _watch(server: WatchedServer, watcher: Watcher, first: Activity) -> int:
    """Show the server's activity until somebody quits, and return the exit code."""
    from tidemark.cli.screen import on

    latest, ended, due = _Latest(first), threading.Event(), threading.Event()
    keys = sys.stdin.fileno() if sys.stdin is not None and sys.stdin.isatty() else None
    with on(sys.stdout.fileno(), keys) as (screen, wake):
        for target in (
            lambda: _refresh(watcher, latest, ended, due, wake),
            lambda: listen(server, lambda event: _take(event, latest, due), ended),
        ):
            threading.Thread(target=target, daemon=True).start()
        try:
            while True:
                screen.show(latest.page(screen.size))
                happened = screen.wait(REFRESH_SECONDS)
                if isinstance(happened, int):
                    return 128 + happened
                if happened in QUITTING_KEYS:
                    return 0
        except OSError:  # the terminal is gone
            return 128 + signal.SIGHUP
        finally:
            ended.set()
            due.set()


def _refresh(
    watcher: Watcher, latest: _Latest, ended: threading.Event, due: threading.Event, wake: Callable[[], None]
) -> None:
    while not ended.is_set():
        try:
            latest.activity, latest.problem = watcher.read(), ""
        except ServerRefusal as refusal:
            latest.problem = str(refusal)
        wake()
        due.wait(REFRESH_SECONDS)
        due.clear()
        ended.wait(BURST_SECONDS)


def _take(event: Mapping[str, Any], latest: _Latest, due: threading.Event) -> None:
    if event["event"] in EVENT_KINDS:
        latest.events.append(event)
    due.set()


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
