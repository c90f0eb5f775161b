"""What commands print on a terminal and in a pipe: styles and bars belong to the terminal alone."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tidemark.terminal.progress import progress
from tidemark.terminal.tables import plain_lines

pytestmark = pytest.mark.e2e

COLOR = re.compile(r"\x1b\[(?:\d+;)*[349][0-7]")
BODY = b"".join(b'{"role": "user", "content": "%d"}\n' % number for number in range(20_000))
LISTED = {"object": "list", "has_more": False, "next_cursor": None}
ID = "c1" * 24
ENTRY = {"id": ID, "name": "\x1b[2Jtea", "model": "small", "messages": 3, "tokens": 4567, "updated_at": 0}


class Conversations(BaseHTTPRequestHandler):
    """A server that lists one conversation, exports it, and takes another."""

    received: list[bytes] = []  # noqa: RUF012 - all requests of a test

    def do_GET(self) -> None:
        """List, or export in chunks."""
        self.send_response(200)
        self.end_headers()
        listed = json.dumps({**LISTED, "data": [ENTRY]}).encode()
        self.wfile.write(BODY if self.path.endswith("export") else listed)

    def do_POST(self) -> None:
        """Import."""
        self.received.append(self.rfile.read(int(self.headers["content-length"])))
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"id": "c2"}')

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """The server's address."""
    Conversations.received.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Conversations) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


def in_terminal(*words: str, given: bytes = b"", **more: str) -> tuple[int, str]:
    """The exit code and all that a command prints on a terminal."""
    master, slave = pty.openpty()
    environ = {**os.environ, "TERM": "xterm-256color", **more}
    written = b""
    with subprocess.Popen(
        [sys.executable, "-m", "tidemark", *words], env=environ, stdin=subprocess.PIPE, stdout=slave, stderr=slave
    ) as process:
        assert process.stdin is not None
        process.stdin.write(given)
        process.stdin.close()
        while process.poll() is None or select.select([master], [], [], 0)[0]:
            if select.select([master], [], [], 0.1)[0]:
                written += os.read(master, 65_536)
    os.close(master)
    os.close(slave)
    return process.returncode, written.decode()


def in_pipe(*words: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A command whose output goes into pipes."""
    return subprocess.run(
        [sys.executable, "-m", "tidemark", *words], input=given, capture_output=True, timeout=100, check=True
    )


class TestLists:
    """A list."""

    def test_it_is_styled_on_a_terminal(self, url: str) -> None:
        """A client's text stays text."""
        code, written = in_terminal("conversations", "list", "--url", url, NO_COLOR="")
        assert code == 0
        assert "\x1b[1m" in written
        assert "4,567" in written
        assert "\x1b[2J" not in written

    def test_it_has_no_colours_with_no_color(self, url: str) -> None:
        """https://no-color.org."""
        _, written = in_terminal("conversations", "list", "--url", url, NO_COLOR="1")
        assert not COLOR.search(written)

    def test_a_dumb_terminal_gets_no_sequence(self, url: str) -> None:
        """As an editor's shell window."""
        _, written = in_terminal("conversations", "list", "--url", url, TERM="dumb")
        assert "tea" in written
        assert "\x1b" not in written

    @pytest.mark.parametrize("columns", ["80", "70"])
    def test_an_id_stays_whole_to_be_copied(self, url: str, columns: str) -> None:
        """On a terminal as narrow as most, where other columns get narrower instead."""
        _, written = in_terminal("conversations", "list", "--url", url, NO_COLOR="1", COLUMNS=columns)
        assert ID in written

    def test_it_is_plain_in_a_pipe(self, url: str) -> None:
        """One line for each entry, however long."""
        done = in_pipe("conversations", "list", "--url", url)
        assert done.stderr == b""
        assert done.stdout.decode().splitlines() == plain_lines(
            ["id", "name", "model", "messages", "tokens", "last used"],
            [[ID, "?[2Jtea", "small", "3", "4,567", "1970-01-01 00:00 UTC"]],
        )

    def test_json_is_the_servers_answer(self, url: str) -> None:
        """On a terminal too."""
        code, written = in_terminal("conversations", "list", "--url", url, "--json")
        assert (code, json.loads(written)["data"]) == (0, [ENTRY])


class TestProgress:
    """Long work."""

    def test_an_export_shows_a_bar_on_a_terminal_only(self, url: str, tmp_path: Path) -> None:
        """The file is whole in both cases."""
        file = tmp_path / "export.jsonl"
        code, written = in_terminal("conversations", "export", "c1", "--url", url, "--output", str(file))
        assert (code, file.read_bytes()) == (0, BODY)
        assert "exporting" in written
        done = in_pipe("conversations", "export", "c1", "--url", url)
        assert (done.stdout, done.stderr) == (BODY, b"")

    def test_an_export_to_the_terminal_is_not_mixed_with_a_bar(self, url: str) -> None:
        """The lines themselves are the progress."""
        _, written = in_terminal("conversations", "export", "c1", "--url", url)
        assert "exporting" not in written
        assert "\x1b" not in written

    def test_an_import_shows_a_bar_on_a_terminal_only(self, url: str) -> None:
        """The server gets every byte in both cases."""
        words = ("conversations", "import", "--model", "small", "--url", url)
        code, written = in_terminal(*words, given=BODY)
        assert code == 0
        assert "importing" in written
        done = in_pipe(*words, given=BODY)
        assert (done.stdout, done.stderr) == (b"c2\n", b"")
        assert Conversations.received == [BODY, BODY]

    def test_without_a_terminal_pieces_pass_through(self) -> None:
        """Unchanged and in order."""
        with progress("work") as bar:
            assert list(bar.counted([b"a", b"", b"b"])) == [b"a", b"", b"b"]
