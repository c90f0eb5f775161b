"""The demo as its visitors meet it: `make demo` in a terminal, and the printed address in a browser from there on.

It takes two to four minutes with the demo's real model, and is skipped where that is not installed.
"""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tidemark.demo import llama, run

pytestmark = [pytest.mark.walk, pytest.mark.timeout(900)]

DEMO_SECONDS = 600
"""How long both conversations of the demo may take on a busy machine; two minutes is usual."""
TURNS = "19"
"""Enough for both: without Tidemark the window is full at turn 17, and with it the history is summarized once."""
ADDRESS = re.compile(r"Watch it in a browser: (http://127\.0\.0\.1:\d+/console)")
ALL_DONE = re.compile(r"stays at http\S+ until Ctrl-C")
NEARLY_HIGH = 60
"""Percent of the limit: the next summary is made in the background from 70 % of the high water on."""
WATCH = """() => {
    window.seen = [];
    const look = () => {
        const meter = document.querySelector("[role=meter]"), summary = document.querySelector("#standing article");
        const last = window.seen.at(-1), now = [Number(meter?.ariaValueNow ?? 0), summary !== null];
        if (!last || last[0] !== now[0] || last[1] !== now[1]) window.seen.push(now);
    };
    const all = {subtree: true, childList: true, attributes: true};
    new MutationObserver(look).observe(document.querySelector("main"), all);
    look();
}"""
"""Notes each percentage that the bar shows, and whether the summary stands on the page then."""


@dataclass
class Terminal:
    """A program on a terminal of its own: what it prints, and Ctrl-C."""

    process: subprocess.Popen[bytes]
    screen: int
    printed: str = ""
    reader: threading.Thread = field(init=False)

    def __post_init__(self) -> None:
        """Begin to read."""
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def wait_for(self, pattern: re.Pattern[str], seconds: float) -> re.Match[str]:
        """What it prints, as soon as it is there."""
        until = time.monotonic() + seconds
        while (found := pattern.search(self.printed)) is None:
            if self.process.poll() is not None or time.monotonic() > until:
                pytest.fail(f"the demo did not print {pattern.pattern!r}, only:\n{self.printed}")
            time.sleep(0.1)
        return found

    def interrupt(self) -> int:
        """Press Ctrl-C, which a terminal makes a signal to all programs in front; the exit code."""
        os.killpg(self.process.pid, signal.SIGINT)
        return self.process.wait(60)

    def _read(self) -> None:
        while True:
            try:
                piece = os.read(self.screen, 65_536)
            except OSError:  # the program has ended
                return
            if not piece:
                return
            self.printed += piece.decode("utf-8", "replace")


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    """The demo, on a terminal, as a user starts it."""
    try:
        llama.weights()
    except llama.ExtraMissingError as error:
        pytest.skip(str(error))
    screen, inside = pty.openpty()
    environ = {**os.environ, "TMPDIR": str(tmp_path), "PYTHONPATH": str(Path(run.__file__).parents[2]), "TERM": "xterm"}
    process = subprocess.Popen(
        [sys.executable, "-m", "tidemark", "demo", "--turns", TURNS],
        stdin=inside,
        stdout=inside,
        stderr=inside,
        env=environ,
        start_new_session=True,
    )
    os.close(inside)
    yield Terminal(process, screen)
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    os.close(screen)


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A browser that knows nothing of the demo yet."""
    errors: list[str] = []
    context = browser.new_context()
    context.set_default_timeout(60_000)
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    yield page
    context.close()
    assert errors == []


def test_the_demo_is_watched_and_changed_from_its_console(terminal: Terminal, page: Page) -> None:
    """High water, the summary in its place, its text, another one, and another threshold: all without a terminal."""
    page.goto(terminal.wait_for(ADDRESS, 60)[1])
    watch_it_being_summarized(page)
    terminal.wait_for(ALL_DONE, DEMO_SECONDS)
    regenerate_the_summary(page)
    set_another_threshold(page)
    assert terminal.interrupt() == 0


def watch_it_being_summarized(page: Page) -> None:
    """Open the conversation when it appears in the list, and see the bar rise and fall."""
    page.get_by_role("link", name="Conversations").click()
    link = page.get_by_role("rowheader").get_by_role("link")
    link.wait_for(timeout=1000 * DEMO_SECONDS)  # the demo shows first how it ends without Tidemark
    link.click()
    expect(page.get_by_role("heading", name="Messages")).to_be_visible()
    page.evaluate(WATCH)
    notice = page.get_by_role("status").filter(has_text=re.compile(r"Summarized \d+ messages: [\d,]+ → [\d,]+ tokens"))
    expect(notice).to_be_visible(timeout=1000 * DEMO_SECONDS)
    summary = page.get_by_role("article", name=re.compile(r"^Summary of \d+ messages$"))
    expect(summary).to_contain_text("User: ", timeout=60_000)
    percents = page.evaluate("window.seen")
    before = [percent for percent, has_summary in percents if not has_summary]
    after = [percent for percent, has_summary in percents if has_summary]
    assert max(before) >= NEARLY_HIGH, percents
    assert after[0] < max(before), percents
    expect(page.get_by_text("messages summarized")).to_be_visible()
    page.get_by_role("link", name="Whole history").click()
    expect(page.locator("[data-state=summarized] .state").last).to_have_text("summarized, no longer in context")


def regenerate_the_summary(page: Page) -> None:
    """Look at another one beside it, and use that."""
    page.get_by_role("button", name="Regenerate summary").click()
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("article", name="Summary in use")).to_be_visible()
    expect(page.get_by_role("article", name="New summary")).to_contain_text("User: ")
    page.get_by_role("button", name="Use this summary").click()
    expect(page.get_by_role("heading", name="Messages")).to_be_visible()
    expect(page.get_by_role("article", name=re.compile(r"^Summary of \d+ messages$"))).to_be_visible()


def set_another_threshold(page: Page) -> None:
    """For the demo's model; it is there when the page is opened again."""
    page.get_by_role("link", name="Models").click()
    page.get_by_label("Threshold").fill("0.7")
    page.get_by_role("button", name="Save").click()
    expect(page.get_by_role("status").filter(has_text="Saved:")).to_be_visible()
    page.goto(page.url)
    expect(page.get_by_label("Threshold")).to_have_value("0.7")
