"""``tidemark conversations`` as a process of its own, beside a running server."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.request.conftest import Bench, Client, benched
from tests.request.talk import history, user

pytestmark = [pytest.mark.e2e, pytest.mark.usefixtures("imported_litellm")]

ROOT = Path(__file__).parents[2]


class Shell:
    """Somebody who types ``tidemark conversations ...``."""

    def __init__(self, folder: Path, url: str, key: str) -> None:
        self.url = url
        self.environ = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "PYTHONPATH": str(ROOT / "proxy"),
            "OPENAI_API_KEY": key,
        }

    def run(self, name: str, *arguments: str, given: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Run it to its end."""
        command = [sys.executable, "-m", "tidemark", "conversations", name, "--url", self.url, *arguments]
        return subprocess.run(command, env=self.environ, input=given, capture_output=True, timeout=60, check=False)

    def at_terminal(self, name: str, *arguments: str, answer: bytes) -> tuple[int, bytes]:
        """The exit code and the output where a person answers; the question is shown to them and not in the output."""
        command = [sys.executable, "-m", "tidemark", "conversations", name, "--url", self.url, *arguments]
        terminal, other = pty.openpty()
        try:
            os.write(terminal, answer)
            done = subprocess.run(
                command, env=self.environ, stdin=other, stdout=subprocess.PIPE, stderr=other, timeout=60, check=False
            )
        finally:
            os.close(other)
            os.close(terminal)
        return done.returncode, done.stdout

    def told(self, name: str, *arguments: str, given: bytes = b"") -> str:
        """What it prints, where it succeeds."""
        done = self.run(name, *arguments, given=given)
        assert done.returncode == 0, done.stderr
        return done.stdout.decode()


@contextmanager
def answering(answer: bytes) -> Iterator[str]:
    """The address of a server that says ``answer`` once and closes the connection."""

    def serve() -> None:
        with contextlib.suppress(OSError):  # nobody came
            asking, _ = listening.accept()
            with asking:
                asking.recv(65_536)
                asking.sendall(answer)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = threading.Thread(target=serve)
        server.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            with contextlib.suppress(OSError):
                listening.shutdown(socket.SHUT_RDWR)  # wakes who still waits for somebody
            server.join()


@pytest.fixture
def bench(store_url: str, tmp_path: Path) -> Iterator[Bench]:
    """A bench of the test's own."""
    with benched(store_url, tmp_path) as made:
        yield made


@pytest.fixture
def client(bench: Bench, request: pytest.FixtureRequest) -> Client:
    """A client of its Tidemark."""
    return bench.client(request.node.nodeid)


@pytest.fixture
def shell(client: Client, tmp_path: Path) -> Shell:
    """A shell with the same key."""
    return Shell(tmp_path, str(client.http.base_url), client.key)


def test_a_conversation_is_looked_at_moved_and_forgotten(client: Client, shell: Shell) -> None:
    """From the list to the end of it, with what the client sees and no more."""
    said = [*history(3, 20), user("Where is the harbour?")]
    id_ = client.chat(said, conversation="talk").headers["x-tidemark-conversation"]
    listed = shell.told("list").splitlines()
    assert listed[0].split() == ["id", "name", "model", "messages", "tokens", "last", "used"]
    assert listed[1].split()[:4] == [id_, "talk", "small", "8"]
    shown = shell.told("show", "talk").splitlines()
    assert [line.split()[0] for line in shown[1:]] == [str(place) for place in range(1, 9)]
    assert "[harbour]" in shell.told("search", "--in", "talk", "harbour")
    assert [line.split()[:2] for line in shell.told("search", "harbour").splitlines()[1:]] == [[id_, "talk"]]
    assert shell.told("search", "lighthouse").splitlines()[1:] == []
    exported = shell.told("export", id_)
    assert [json.loads(line) for line in exported.splitlines()[:7]] == said
    moved = shell.told("import", "--model", "small", "--name", "moved", given=exported.encode()).strip()
    assert json.loads(shell.told("show", moved, "--json"))["messages"] == 8
    assert shell.told("forget", id_, "--yes") == f"forgotten: {id_}\n"
    gone = shell.run("show", "talk")
    assert (gone.returncode, gone.stdout) == (1, b"")
    assert b"There is no conversation 'talk'" in gone.stderr


def test_nothing_is_forgotten_unless_somebody_says_so(client: Client, shell: Shell) -> None:
    """Without a terminal nobody is asked, whatever the input has: in a shell's loop it is the next line of a list."""
    id_ = client.chat([*history(1, 20), user("And?")], conversation="talk").headers["x-tidemark-conversation"]
    for given in (b"", b"y\n"):
        unasked = shell.run("forget", "talk", given=given)
        assert (unasked.returncode, unasked.stdout) == (2, b"")
        assert unasked.stderr == b"tidemark: without a terminal this needs --yes, which asks for no confirmation.\n"
    assert shell.at_terminal("forget", "talk", answer=b"n\n") == (1, b"")
    assert json.loads(shell.told("show", "talk", "--json"))["id"] == id_
    assert shell.at_terminal("forget", "talk", answer=b"y\n") == (0, f"forgotten: {id_}\n".encode())


def test_what_goes_wrong_is_one_message(shell: Shell) -> None:
    """A refused import names the lines, and nobody who listens is told as that."""
    broken = json.dumps({"role": "tool", "tool_call_id": "x", "content": ""}).encode()
    done = shell.run("import", "--model", "small", given=broken)
    assert done.returncode == 1
    assert b"line 1: this result answers no call" in done.stderr
    shell.url = "http://127.0.0.1:9"
    nobody = shell.run("list")
    assert nobody.returncode == 1
    assert b"Is it running?" in nobody.stderr
    assert b"Traceback" not in nobody.stderr


@pytest.mark.parametrize("framing", ["transfer-encoding: chunked\r\n\r\n9\r\n", "content-length: 90\r\n\r\n"])
def test_an_export_that_breaks_off_leaves_the_earlier_file(tmp_path: Path, framing: str) -> None:
    """It is one message and exit code 1, whichever way the answer is framed; nothing is left beside the file."""
    file = tmp_path / "out" / "talk.jsonl"
    file.parent.mkdir()
    file.write_text("the earlier one\n")
    with answering(f"HTTP/1.1 200 OK\r\n{framing}the first".encode()) as url:
        done = Shell(tmp_path, url, "key").run("export", "talk", "--output", str(file))
    assert done.returncode == 1
    assert b"broke off" in done.stderr
    assert b"Traceback" not in done.stderr
    assert file.read_text() == "the earlier one\n"
    assert list(file.parent.iterdir()) == [file]


def test_an_export_replaces_the_earlier_file_when_all_is_there(tmp_path: Path) -> None:
    """With the earlier one's mode, through a link; - is still standard output."""
    file, link = tmp_path / "talk.jsonl", tmp_path / "link"
    file.write_text("the earlier one\n")
    file.chmod(0o600)
    link.symlink_to(file)
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\nthe new\n"
    for output, told in ((str(link), b""), ("-", b"the new\n")):
        with answering(whole) as url:
            done = Shell(tmp_path, url, "key").run("export", "talk", "--output", output)
        assert (done.returncode, done.stdout) == (0, told)
    assert (file.read_text(), file.stat().st_mode & 0o777, link.is_symlink()) == ("the new\n", 0o600, True)


def test_an_export_to_where_nothing_can_be_written_is_one_message(tmp_path: Path) -> None:
    """The folder does not exist."""
    with answering(b"") as url:
        done = Shell(tmp_path, url, "key").run("export", "talk", "--output", str(tmp_path / "no" / "talk.jsonl"))
    assert done.returncode == 1
    assert b"cannot be written: No such file or directory" in done.stderr


def test_an_export_whose_reader_has_read_enough_ends_quietly(tmp_path: Path) -> None:
    """``tidemark conversations export ID | head``."""
    text = b"a line\n" * 100_000
    with answering(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (len(text), text)) as url:
        shell = Shell(tmp_path, url, "key")
        command = [sys.executable, "-m", "tidemark", "conversations", "export", "--url", url, "talk"]
        with subprocess.Popen(command, env=shell.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            assert process.stdout.readline() == b"a line\n"
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 1


def test_pages_go_on_with_the_cursor(client: Client, shell: Shell) -> None:
    """It is told on standard error, so that a table stays a table."""
    client.chat([*history(3, 20), user("End.")], conversation="talk")
    first = shell.run("show", "talk", "--limit", "5")
    cursor = first.stderr.decode().strip().removeprefix("more: --cursor ")
    rest = shell.told("show", "talk", "--limit", "5", "--cursor", cursor)
    assert [line.split()[0] for line in rest.splitlines()[1:]] == ["6", "7", "8"]
