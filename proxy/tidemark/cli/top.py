"""The command ``tidemark top``: it shows what a running server does, until a key ends it.

``cli/main.py`` adds it to its group. Threads ask the server, so that the terminal answers keys and signals at once.
"""

from __future__ import annotations

import dataclasses
import os
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tidemark.cli.activity import EVENT_KINDS, EVENTS, Activity, WatchedServer, Watcher, listen
from tidemark.cli.activity_page import plain_page, styled_page
from tidemark.terminal.examples import example
from tidemark.terminal.http_client import ServerRefusal, configured_url, running_url, url_option
from tidemark.terminal.options import config_option, json_option
from tidemark.terminal.tables import print_json

if TYPE_CHECKING:
    from rich.console import RenderableType

REFRESH_SECONDS = 1.0
BURST_SECONDS = 0.5
"""The shortest time between two readings, because live events come in bursts."""
QUITTING_KEYS = ("q", "Q", "\x1b", "\x04")
"""q, Escape, Ctrl-D; arrow keys begin with Escape, too, and mean nothing here."""


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
    server = WatchedServer.of(url or _running_url(config), os.environ)
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


def _running_url(config: Path | None) -> str:
    """Return the address of the server that the data folder's run file names, else the configuration's."""
    from tidemark.config import load

    return running_url(load(config, os.environ).data_dir) or configured_url(config)


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
