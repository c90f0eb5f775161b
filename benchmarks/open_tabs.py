"""Measures what pages that stay open cost Tidemark, while clients send requests; ``benchmarks/console.py`` runs it.

A tab is a thread here that does what the page's script does. With an overview it listens to the events, and asks at
most every five seconds for the parts that have changed; with the log of requests it asks every other second. Where
Chromium and Playwright are installed, a real tab is measured too.
"""

from __future__ import annotations

import http.client
import importlib.util
import re
import shutil
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed.load import HOST
from benchmarks.speed.work import CHAT_PATH, WIDE

LIMIT_PERCENT = 1.0
"""The most that one open page may cost, in percent of one core."""
TABS = 10
HOME = "/console"


@dataclass(frozen=True)
class Watched:
    """A page that stays open."""

    name: str
    path: str
    pause_seconds: float
    """``data-pause`` or ``data-every`` of the page."""
    listens: bool
    """Whether it asks after an event only."""
    requests_a_second: float
    judged: int
    """How many tabs are open when the cost of one is compared. One alone costs less than the noise of many requests."""


WATCHED = (
    Watched("overview", HOME, 5.0, listens=True, requests_a_second=2.0, judged=1),
    Watched("log of requests", f"{HOME}/requests", 2.0, listens=False, requests_a_second=200.0, judged=TABS),
)
BODY = f'{{"model": "{WIDE}", "max_tokens": 10, "messages": [{{"role": "user", "content": "Tide %d?"}}]}}'
_PART = re.compile(r'id="([\w-]+)" data-live="([^"]*)"')
_WARM_SECONDS = 3.0


class _Tab:
    """A page that is open: a listener, and a thread that asks for what is new."""

    def __init__(self, port: int, stop: threading.Event, watched: Watched) -> None:
        self._port, self._stop, self._watched = port, stop, watched
        self._happened = threading.Event()
        self._rows: list[str] = []
        """The rows that the page shows."""
        self.answers: list[int] = []
        """The bytes of each answer."""
        for work in (self._listen, self._renew) if watched.listens else (self._renew,):
            threading.Thread(target=work, daemon=True).start()

    def _listen(self) -> None:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=60)
        connection.request("GET", f"{HOME}/events")
        response = connection.getresponse()
        while not self._stop.is_set():
            if response.readline().startswith(b"event:"):
                self._happened.set()
        connection.close()

    def _renew(self) -> None:
        connection = http.client.HTTPConnection(HOST, self._port, timeout=60)
        marks: dict[str, str] = {}
        while not self._stop.is_set():
            header = ",".join(f"{name}={mark}" for name, mark in marks.items())
            connection.request("GET", self._watched.path, headers={"x-console-parts": header} if header else {})
            response = connection.getresponse()
            text = response.read().decode()
            if response.status != 200:
                raise RuntimeError(text[:400])
            if header:
                self.answers.append(len(text))
            pairs = _PART.findall(text)
            changed = {name: mark for name, mark in pairs if not name.endswith("-figures")}  # closed tables
            rows = re.findall(r'<tr id="([\w-]+)"', text)  # in their order; those that were not sent stay as they are
            marks = {name: mark for name, mark in marks.items() if name in rows or not rows or name not in self._rows}
            self._rows = rows or self._rows
            marks |= changed
            if self._watched.listens:
                self._happened.wait()
                self._happened.clear()
            self._stop.wait(self._watched.pause_seconds)
        connection.close()


@contextmanager
def requests(port: int, a_second: float) -> Iterator[None]:
    """Send small requests at a steady pace."""
    stop = threading.Event()

    def send() -> None:
        connection, number = http.client.HTTPConnection(HOST, port, timeout=60), 0
        began = time.monotonic()
        while not stop.wait(max(began + number / a_second - time.monotonic(), 0)):
            number += 1
            headers = {"authorization": "Bearer key", "content-type": "application/json"}
            connection.request("POST", CHAT_PATH, BODY % number, headers)
            connection.getresponse().read()

    thread = threading.Thread(target=send, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)


def cpu_seconds(process: int) -> float:
    """Return the CPU that a process and its children have used."""
    stats = {path.parent.name: path.read_text() for path in Path("/proc").glob("[0-9]*/stat") if path.exists()}
    parents = {int(name): int(text.rpartition(")")[2].split()[1]) for name, text in stats.items()}
    family = {process}
    while more := {child for child, parent in parents.items() if parent in family} - family:
        family |= more
    ticks = [path for member in family for path in Path(f"/proc/{member}/task").glob("*/schedstat")]
    return sum(int(path.read_text().split()[0]) for path in ticks) / 1e9


def share(process: int, seconds: float) -> float:
    """Return the percentage of one core that a process uses from now on."""
    time.sleep(_WARM_SECONDS)
    start, cpu_before = time.monotonic(), cpu_seconds(process)
    time.sleep(seconds)
    return 100 * (cpu_seconds(process) - cpu_before) / (time.monotonic() - start)


def measure_tabs(port: int, process: int, seconds: float, watched: Watched) -> bool:
    """Print what open pages cost; return whether one is within its bound."""
    pace = watched.requests_a_second
    print(f"\n{pace:.0f} requests a second, {seconds:.0f} s each; percent of one core of Tidemark")
    with requests(port, pace):
        alone = share(process, seconds)
        print(f"{f'no {watched.name} is open':44} {alone:8.2f}", flush=True)
        costs = dict[int, float]()
        for count in (1, TABS):
            stop = threading.Event()
            tabs = [_Tab(port, stop, watched) for _ in range(count)]
            costs[count] = (share(process, seconds) - alone) / count
            stop.set()
            sizes = [size for tab in tabs for size in tab.answers]
            name = f"each of {count} open" if count > 1 else "one open"
            print(f"{name:44} {costs[count]:8.2f}   {sum(sizes) // max(len(sizes), 1):,} bytes an answer")
            time.sleep(watched.pause_seconds)
        _measure_browser(port, process, seconds, alone, watched)
    is_within = costs[watched.judged] <= LIMIT_PERCENT
    print(f"an open {watched.name} within {LIMIT_PERCENT:.0f} % of one core: {'yes' if is_within else 'no'}")
    return is_within


def _measure_browser(port: int, process: int, seconds: float, alone: float, watched: Watched) -> None:
    """Print what a real tab costs Tidemark, and what it costs in the browser."""
    chromium = shutil.which("chromium")
    if chromium is None or importlib.util.find_spec("playwright") is None:
        print("a tab in Chromium: not measured, since Chromium or Playwright is not installed", file=sys.stderr)
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        page.goto(f"http://{HOST}:{port}{watched.path}")
        client = page.context.new_cdp_session(page)
        client.send("Performance.enable")

        def busy() -> float:
            metrics = client.send("Performance.getMetrics")["metrics"]
            return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))

        page.wait_for_timeout(1000 * _WARM_SECONDS)
        start, cpu_before = time.monotonic(), busy()
        cost = share(process, seconds) - alone
        page_share = 100 * (busy() - cpu_before) / (time.monotonic() - start)
        print(f"{'one open in Chromium':44} {cost:8.2f}   {page_share:.2f} % of a core in the page")
        browser.close()
