"""``tidemark top``: the real command in a pseudo terminal and in a pipe, beside a running server."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.scripted import ScriptedUpstream
from tests.support.serving import NO_TLS, Serving
from tests.support.waiting import wait_until
from tidemark.cli.activity import WatchedServer, Watcher, events_of
from tidemark.cli.metrics_text import read_metrics
from tidemark.terminal.run_file import NAME, read

pytestmark = pytest.mark.e2e

WAIT_SECONDS = 60.0
ADMIN_TOKEN = "an-operators-token"
ENTER = "\x1b[?1049h"
"""Shows the alternate screen (xterm's control sequence)."""
LEAVE = "\x1b[?25h\x1b[?1049l"
"""Shows the cursor and the normal screen."""
ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
HOSTILE = "\x1b]0;owned\x07\x1b[2Jname"


@dataclass
class Tidemark:
    """A running server, and the environment of the person who started it."""

    url: str
    environ: Mapping[str, str]
    folder: Path

    def chat(self, text: str) -> None:
        """Send one request; the name of its conversation would do harm to a terminal."""
        body = {"model": "small", "messages": [{"role": "user", "content": text}]}
        answer = httpx.post(f"{self.url}/v1/chat/completions", json=body, timeout=WAIT_SECONDS, verify=NO_TLS)
        assert answer.status_code == 200, answer.text

    def top(self, *words: str, **more: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end, in a pipe."""
        command = [sys.executable, "-m", "tidemark", "top", *words]
        environ = {**self.environ, **more}
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=100, check=False)


@pytest.fixture(scope="module")
def tidemark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tidemark]:
    """One server for all tests here."""
    folder = tmp_path_factory.mktemp("data")
    with Serving(ScriptedUpstream()) as upstream:
        environ = {name: text for name, text in os.environ.items() if not name.startswith(("TIDEMARK_", "OPENAI_"))}
        environ |= {"TIDEMARK_UPSTREAM": f"{upstream.url}/v1", "TIDEMARK_DATA_DIR": str(folder), "TERM": "xterm"}
        command = [sys.executable, "-m", "tidemark", "serve", "--port", "0"]
        secret = {"TIDEMARK_ADMIN_TOKEN": ADMIN_TOKEN}
        with subprocess.Popen(command, env={**environ, **secret}, stderr=subprocess.DEVNULL) as server:
            try:
                wait_until(lambda: read(folder), WAIT_SECONDS)
                running = read(folder)
                assert running is not None
                own = Tidemark(running.url, environ, folder)
                own.chat("Hello.")
                yield own
            finally:
                server.send_signal(signal.SIGTERM)


@dataclass
class Terminal:
    """A pseudo terminal with a program in it."""

    master: int
    slave: int
    process: subprocess.Popen[bytes]
    modes: list[Any]
    written: bytes = b""

    @property
    def text(self) -> str:
        """All that the program wrote."""
        while select.select([self.master], [], [], 0)[0]:
            self.written += os.read(self.master, 65_536)
        return self.written.decode("utf-8", "replace")

    @property
    def page(self) -> list[str]:
        """The newest page that came as far as its last line, without control sequences."""
        whole = [page for page in self.text.split("\x1b[H") if "q quits" in page]
        if not whole:
            return []
        return [ESCAPES.sub("", line).strip("\r") for line in whole[-1].split("\n")]  # the terminal adds \r itself

    def wait_for(self, text: str) -> None:
        """Wait until a page has the text."""
        wait_until(lambda: text in self.text or self.process.poll() is not None, WAIT_SECONDS)
        assert text in self.text, self.text

    def wait_for_pages(self, count: int) -> None:
        """Wait until so many more pages have been shown."""
        before = self.text.count("\x1b[H")
        wait_until(lambda: self.text.count("\x1b[H") >= before + count, WAIT_SECONDS)

    def resize(self, columns: int, lines: int) -> None:
        """Change the size, as the window of an emulator does."""
        fcntl.ioctl(self.slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def end(self) -> int:
        """Return the exit code, and check that the terminal is as it was."""
        code = self.process.wait(WAIT_SECONDS)
        assert termios.tcgetattr(self.slave) == self.modes
        text = self.text
        assert text.count(ENTER) == text.count(LEAVE) > 0
        assert text.rstrip().endswith(LEAVE), text[-200:]
        return code


@contextmanager
def terminal(tidemark: Tidemark, *words: str, columns: int = 100, lines: int = 30, **more: str) -> Iterator[Terminal]:
    """Run ``tidemark top`` in a terminal of its own, which is the program's controlling one."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
    modes = termios.tcgetattr(slave)
    process = subprocess.Popen(
        [sys.executable, "-m", "tidemark", "top", *words],
        env={**tidemark.environ, **more},
        stdin=slave,
        stdout=slave,
        stderr=slave,
        start_new_session=True,
        preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),  # noqa: PLW1509 - nothing else makes it controlling
    )
    try:
        yield Terminal(master, slave, process, modes)
    finally:
        process.kill()
        process.wait()
        os.close(master)
        os.close(slave)


class TestTerminal:
    """On a terminal it is a page that changes."""

    @pytest.mark.parametrize(("key", "code"), [(b"q", 0), (b"\x1b", 0), (b"\x04", 0), (b"\x03", 130), (b"\x1c", 131)])
    def test_a_key_ends_it_and_the_terminal_is_as_before(self, tidemark: Tidemark, key: bytes, code: int) -> None:
        """q, Escape and Ctrl-D end it well; two keys are signals, SIGINT and SIGQUIT."""
        with terminal(tidemark) as shown:
            shown.wait_for("small")
            os.write(shown.master, key)
            assert shown.end() == code

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
    def test_a_signal_ends_it_and_the_terminal_is_as_before(self, tidemark: Tidemark, number: int) -> None:
        """The exit code is the shell's for that signal."""
        with terminal(tidemark) as shown:
            shown.wait_for("small")
            shown.process.send_signal(number)
            shown.process.send_signal(number)  # a second one interrupts no restoring
            assert shown.end() == 128 + number

    def test_other_keys_do_nothing(self, tidemark: Tidemark) -> None:
        """Also an arrow, which begins as Escape does."""
        with terminal(tidemark) as shown:
            shown.wait_for("small")
            os.write(shown.master, b"\x1b[A")
            time.sleep(0.3)
            os.write(shown.master, b"x")
            time.sleep(0.3)
            assert shown.process.poll() is None
            os.write(shown.master, b"q")
            assert shown.end() == 0

    def test_a_page_fills_the_terminal_and_no_more(self, tidemark: Tidemark) -> None:
        """It follows a change of the size."""
        with terminal(tidemark, columns=100, lines=30) as shown:
            shown.wait_for("last used")
            for columns, lines in ((60, 12), (30, 6), (140, 50)):
                shown.resize(columns, lines)
                wait_until(lambda lines=lines: len(shown.page) == lines, WAIT_SECONDS)
                shown.wait_for_pages(2)
                assert max(map(len, shown.page)) <= columns
                assert shown.page[-1].startswith("q quits")
            os.write(shown.master, b"q")
            assert shown.end() == 0

    def test_a_small_terminal_still_shows_a_conversation(self, tidemark: Tidemark) -> None:
        """Sums give way to it, and an id is cut; the table in a pipe has the whole id."""
        newest = json.loads(tidemark.top("--json").stdout)["conversations"][0]["id"]
        with terminal(tidemark, columns=80, lines=14) as shown:
            shown.wait_for("last used")
            shown.wait_for(newest[:12])
            assert newest not in shown.text
            os.write(shown.master, b"q")
            assert shown.end() == 0
        assert newest in tidemark.top().stdout

    @pytest.mark.parametrize(("columns", "lines"), [(40, 10), (200, 50)])
    def test_a_page_fits_the_smallest_terminal_and_the_largest(
        self, tidemark: Tidemark, columns: int, lines: int
    ) -> None:
        """It has the conversations and how it ends, in no more columns and exactly that many lines."""
        newest = json.loads(tidemark.top("--json", TIDEMARK_ADMIN_TOKEN=ADMIN_TOKEN).stdout)["conversations"][0]["id"]
        with terminal(tidemark, columns=columns, lines=lines, TIDEMARK_ADMIN_TOKEN=ADMIN_TOKEN) as shown:
            shown.wait_for("q quits")
            shown.wait_for("last used")
            shown.wait_for(newest[:12])
            assert len(shown.page) == lines
            assert max(map(len, shown.page)) <= columns
            assert shown.page[-1].startswith("q quits")
            os.write(shown.master, b"q")
            assert shown.end() == 0

    def test_a_server_that_goes_away_is_told_and_the_page_stays(self, tidemark: Tidemark) -> None:
        """Its last figures are still shown; when it is back, the words are gone, and q ends it well."""
        pages = Pages({"/metrics": TestActivity.METRICS})
        with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as free:
            port = free.server_address[1]
        with pages.served(port) as url:
            away = terminal(tidemark, "--url", url)
            shown = away.__enter__()
            shown.wait_for("q quits")
        try:
            shown.wait_for("does not answer")
            with pages.served(port):
                wait_until(lambda: "does not answer" not in "".join(shown.page), WAIT_SECONDS)
            os.write(shown.master, b"q")
            assert shown.end() == 0
        finally:
            away.__exit__(None, None, None)

    def test_an_error_leaves_the_terminal_as_it_was(self, tidemark: Tidemark) -> None:
        """A server of another kind may answer anything: here a page that cannot be made of it."""
        entry = {"id": "1", "name": "", "model": "m", "messages": "many", "tokens": 2, "summaries": 0, "updated_at": 0}
        good = json.dumps({"data": []})
        pages = Pages({"/metrics": TestActivity.METRICS, "/tidemark/conversations": good})
        with pages.served() as url, terminal(tidemark, "--url", url) as shown:
            shown.wait_for("q quits")
            pages.texts["/tidemark/conversations"] = json.dumps({"data": [entry]})
            assert shown.process.wait(WAIT_SECONDS) == 1
            assert termios.tcgetattr(shown.slave) == shown.modes
            assert shown.text.count(ENTER) == shown.text.count(LEAVE) > 0

    def test_once_prints_a_table_and_leaves_the_screen_alone(self, tidemark: Tidemark) -> None:
        """What stood on the terminal still stands there."""
        for words in (("--once",), ("--json",), ("--once", "--json")):
            with terminal(tidemark, *words) as shown:
                assert shown.process.wait(WAIT_SECONDS) == 0
                assert "\x1b" not in shown.text
                assert "small" in shown.text
                assert termios.tcgetattr(shown.slave) == shown.modes

    def test_a_new_conversation_appears(self, tidemark: Tidemark) -> None:
        """A live event brings it at once."""
        with terminal(tidemark) as shown:
            shown.wait_for("small")
            tidemark.chat(f"Something new at {time.time()}")
            shown.wait_for("2 ")
            os.write(shown.master, b"q")
            assert shown.end() == 0

    def test_a_live_event_is_shown(self, tidemark: Tidemark) -> None:
        """As one line with its members."""
        event = 'event: compaction.started\ndata: {"messages": 3}\n\n'
        pages = Pages({"/metrics": TestActivity.METRICS, "/tidemark/events": event})
        with pages.served() as url, terminal(tidemark, "--url", url) as shown:
            shown.wait_for("compaction.started: messages 3")
            os.write(shown.master, b"q")
            assert shown.end() == 0

    def test_it_stops_and_goes_on(self, tidemark: Tidemark) -> None:
        """Ctrl-Z gives the terminal back; the system stops no process without a shell that continues it."""
        with terminal(tidemark) as shown:
            shown.wait_for("small")
            shown.process.send_signal(signal.SIGTSTP)
            wait_until(lambda: shown.text.count(ENTER) == 2, WAIT_SECONDS)
            assert shown.text.count(LEAVE) == 1
            os.write(shown.master, b"q")
            assert shown.end() == 0

    def test_no_color_is_honoured(self, tidemark: Tidemark) -> None:
        """No sequence sets a colour (no-color.org)."""
        with terminal(tidemark, NO_COLOR="1") as shown:
            shown.wait_for("small")
            os.write(shown.master, b"q")
            assert shown.end() == 0
            assert not re.search(r"\x1b\[(?:\d+;)*[349][0-7]m", shown.text)

    def test_a_terminal_without_such_sequences_gets_the_table(self, tidemark: Tidemark) -> None:
        """As a pipe does."""
        with terminal(tidemark, TERM="dumb") as shown:
            assert shown.process.wait(WAIT_SECONDS) == 0
            assert "\x1b" not in shown.text


class TestPipe:
    """In a pipe it is one table."""

    def test_it_prints_a_table_and_ends(self, tidemark: Tidemark) -> None:
        """The server is the one that the run file names; no escape code is printed."""
        done = tidemark.top()
        assert done.returncode == 0, done.stderr
        assert "small" in done.stdout
        assert "conversation " in done.stdout
        assert "\x1b" not in done.stdout
        assert "set TIDEMARK_ADMIN_TOKEN" in done.stdout

    def test_json_has_everything(self, tidemark: Tidemark) -> None:
        """The operator sees the figures and the conversations of everybody."""
        done = tidemark.top("--json", "--url", tidemark.url, TIDEMARK_ADMIN_TOKEN=ADMIN_TOKEN)
        activity = json.loads(done.stdout)
        assert activity["notes"] == []
        assert activity["totals"]["requests"] >= 1
        assert activity["models"][0]["model"] == "small"
        assert activity["models"][0]["first_byte_seconds"]["p95"] > 0
        assert activity["conversations"][0]["model"] == "small"
        assert activity["last_hour"]["window"] == 3600
        assert 0.5 < activity["rate_seconds"] < WAIT_SECONDS

    def test_a_wrong_token_is_named(self, tidemark: Tidemark) -> None:
        """The metrics are shown all the same."""
        activity = json.loads(tidemark.top("--json", TIDEMARK_ADMIN_TOKEN="another").stdout)
        assert "no figures of the last hour: the server refuses TIDEMARK_ADMIN_TOKEN" in activity["notes"]
        assert activity["totals"]["requests"] >= 1

    def test_nobody_there_is_an_error_with_its_mend(self, tidemark: Tidemark, tmp_path: Path) -> None:
        """Exit code 1 and one line; so it is where a crash left its run file."""
        (tmp_path / NAME).write_text(json.dumps({"url": "http://127.0.0.1:9", "pid": 1}))
        config = tmp_path / "tidemark.yaml"
        config.write_text("server: {port: 9}")
        done = tidemark.top("--config", str(config), TIDEMARK_DATA_DIR=str(tmp_path))
        assert done.returncode == 1
        assert done.stderr.startswith("tidemark: Tidemark does not answer at http://127.0.0.1:9")
        assert len(done.stderr.splitlines()) == 1

    @pytest.mark.parametrize("url", ["127.0.0.1:8787", "ftp://host", "http://host:port", "http://"])
    def test_an_address_of_nothing_is_refused(self, tidemark: Tidemark, url: str) -> None:
        """With an example of a right one."""
        done = tidemark.top("--url", url)
        assert done.returncode == 2
        assert "http://127.0.0.1:8787" in done.stderr


@dataclass
class Pages:
    """A server with pages of a test's own; a page without a text is a 403."""

    texts: dict[str, str] = field(default_factory=dict)

    @contextmanager
    def served(self, port: int = 0) -> Iterator[str]:
        """Yield its address.

        :param port: 0 for any free one
        """
        texts = self.texts

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                text = texts.get(self.path.partition("?")[0])
                self.send_response(200 if text is not None else 403)
                self.end_headers()
                self.wfile.write((text or "").encode())

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        with ThreadingHTTPServer(("127.0.0.1", port), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            try:
                yield f"http://127.0.0.1:{server.server_address[1]}"
            finally:
                server.shutdown()
                thread.join()


class TestActivity:
    """What is made of a server's answers."""

    METRICS = """\
# HELP tidemark_requests_total Requests.
tidemark_requests_total{action="none",model="a \\"b\\"",status="200"} 5.0
tidemark_requests_total{action="failed",model="a \\"b\\"",status="500"} 1.0
tidemark_requests_total{model="c"} 7
tidemark_first_byte_seconds_bucket{le="0.1",model="c"} 2.0
tidemark_first_byte_seconds_bucket{le="1.0",model="c"} 4.0
tidemark_first_byte_seconds_bucket{le="+Inf",model="c"} 4.0
tidemark_first_byte_seconds_count{model="c"} 4.0
process_cpu_seconds_total 3.5
"""

    def test_metrics_are_summed_and_kept_by_model(self) -> None:
        """Labels may have quotes; other programs' metrics are passed over."""
        reading = read_metrics(self.METRICS)
        assert reading.total("tidemark_requests_total") == 13
        assert reading.by_model["tidemark_requests_total"] == {'a "b"': 6, "c": 7}
        assert reading.total("process_cpu_seconds_total") == 0
        histogram = reading.histograms["tidemark_first_byte_seconds"]["c"]
        assert histogram.quantile(0.25) == pytest.approx(0.05)
        assert histogram.quantile(0.75) == pytest.approx(0.55)
        assert histogram.since(histogram).quantile(0.5) is None

    def test_events_are_read_as_browsers_read_them(self) -> None:
        """Comments and an event of nonsense are passed over."""
        lines = [": hello", "", "id: 1-2", "event: compaction.started", 'data: {"messages": 3}', "", "data: {", ""]
        assert list(events_of(lines)) == [("1-2", {"event": "compaction.started", "messages": 3})]

    def test_what_somebody_may_not_see_is_a_note(self) -> None:
        """And a restart in between makes no rate negative."""
        pages = Pages({"/metrics": self.METRICS})
        with pages.served() as url:
            watcher = Watcher(WatchedServer(url, {}))
            watcher.read()
            pages.texts["/metrics"] = "tidemark_requests_total 1\n"
            activity = watcher.read()
        assert activity.rates["requests"] > 0
        assert activity.notes == [
            "no figures of the last hour: set TIDEMARK_ADMIN_TOKEN",
            "no conversations: set TIDEMARK_ADMIN_TOKEN",
        ]

    def test_a_name_cannot_command_the_terminal(self, tidemark: Tidemark) -> None:
        """Clients choose the names of models and conversations."""
        entry = {"id": "1", "name": HOSTILE, "model": HOSTILE, "messages": 1, "tokens": 2, "summaries": 0}
        listed = json.dumps({"data": [{**entry, "updated_at": 0}]})
        pages = Pages({"/metrics": self.METRICS.replace("c", HOSTILE), "/tidemark/conversations": listed})
        with pages.served() as url:
            assert "\x1b" not in tidemark.top("--url", url).stdout
            with terminal(tidemark, "--url", url) as shown:
                shown.wait_for("name")
                os.write(shown.master, b"q")
                assert shown.end() == 0
                assert "owned\x07" not in shown.text
                assert "\x1b[2J" not in shown.text
