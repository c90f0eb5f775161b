"""Measures how much memory Tidemark takes for an upload of any size.

``make bench-uploads`` runs it. Tidemark and its store run as separate processes; the benchmark itself is the client and
the upstream. A first, short upload loads what every upload needs. Then the peak of the process is reset, and each case
sends a body of the given size: of known length, in chunks, and as a form whose file comes before the model's name. The
figure is the peak of resident memory above the memory before. Linux only.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.speed.load import HOST
from benchmarks.speed.systems import UPLOADED_TO, start
from benchmarks.speed.upstream import WHOLE
from benchmarks.speed.work import CHAT_PATH, WIDE

LIMIT_MB = 20.0
"""The most memory that an upload may take, whatever its size."""
MEGABYTE = 2**20
PIECE = bytes(range(256)) * 256
EDGE = b"----bench"
FILE = b'--%b\r\nContent-Disposition: form-data; name="file"; filename="a.bin"\r\n\r\n' % EDGE
MODEL = b'\r\n--%b\r\nContent-Disposition: form-data; name="model"\r\n\r\n%b\r\n--%b--\r\n' % (
    EDGE,
    WIDE.encode(),
    EDGE,
)


@dataclass(frozen=True)
class Case:
    """One way to send a body."""

    name: str
    path: str
    kind: bytes
    before: bytes = b""
    after: bytes = b""
    in_chunks: bool = False


CASES = [
    Case("known length", "/v1/files", b"application/octet-stream"),
    Case("chunks", "/v1/files", b"application/octet-stream", in_chunks=True),
    Case("form, file first", "/v1/audio/transcriptions", b"multipart/form-data; boundary=" + EDGE, FILE, MODEL),
]


class Sink:
    """An upstream that counts the bytes of bodies and keeps none."""

    def __init__(self) -> None:
        self._listener = socket.create_server((HOST, 0))
        self.url = f"http://{HOST}:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Accept no further connection."""
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while line := stream.readline():
                headers = {}
                while (header := stream.readline()) not in (b"\r\n", b""):
                    name, _, value = header.partition(b":")
                    headers[name.strip().lower()] = value.strip()
                size = _drop_body(stream.read, stream.readline, headers)
                answer = WHOLE if CHAT_PATH.encode() in line else b"%d" % size
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(answer) + answer)


def _drop_body(read: Callable[[int], bytes], readline: Callable[[], bytes], headers: dict[bytes, bytes]) -> int:
    """Read a body and return its size."""

    def drop(size: int) -> int:
        for place in range(0, size, len(PIECE)):
            read(min(len(PIECE), size - place))
        return size

    if b"transfer-encoding" not in headers:
        return drop(int(headers.get(b"content-length", b"0")))
    total = 0
    while size := int(readline(), 16):
        total += drop(size)
        readline()
    readline()
    return total


def pieces(case: Case, size: int) -> Iterator[bytes]:
    """Yield a case's body with a file of so many bytes."""
    yield case.before
    for place in range(0, size, len(PIECE)):
        yield PIECE[: size - place]
    yield case.after


def upload(port: int, case: Case, size: int) -> int:
    """Send a body, and return how many bytes the upstream got.

    :raises RuntimeError: the answer is no success
    """
    length = len(case.before) + size + len(case.after)
    framing = b"transfer-encoding: chunked" if case.in_chunks else b"content-length: %d" % length
    with socket.create_connection((HOST, port), timeout=600) as connection:
        head = b"POST %b HTTP/1.1\r\nhost: %b\r\nconnection: close\r\ncontent-type: %b\r\n%b\r\n\r\n"
        connection.sendall(head % (case.path.encode(), HOST.encode(), case.kind, framing))
        for piece in pieces(case, size):
            if piece:
                connection.sendall(b"%x\r\n%b\r\n" % (len(piece), piece) if case.in_chunks else piece)
        if case.in_chunks:
            connection.sendall(b"0\r\n\r\n")
        answer = b""
        while part := connection.recv(65_536):
            answer += part
    if b" 200 " not in answer.partition(b"\r\n")[0]:
        raise RuntimeError(f"{case.name}: {answer[:500]!r}")
    return int(answer.rpartition(b"\r\n\r\n")[2])


def memory_mb(pid: int, field: str) -> float:
    """Return a process's memory: ``VmRSS`` is what it has now, ``VmHWM`` the peak."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise RuntimeError(f"no {field}")


@contextmanager
def served() -> Iterator[tuple[int, int]]:
    """Run Tidemark before a sink; yields port and process id."""
    sink = Sink()
    with tempfile.TemporaryDirectory() as folder:
        running = start(UPLOADED_TO, sink.url, Path(folder) / "tidemark")
        try:
            yield running.port, running.pid
        finally:
            running.stop()
            sink.close()


def measure(port: int, pid: int, case: Case, size: int) -> float:
    """Return by how many megabytes an upload raises the process's memory at its peak."""
    upload(port, case, 2 * MEGABYTE)
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # proc(5): resets the peak
    before = memory_mb(pid, "VmRSS")
    total = len(case.before) + size + len(case.after)
    if upload(port, case, size) != total:
        raise RuntimeError(f"{case.name}: the upstream did not get all bytes")
    return memory_mb(pid, "VmHWM") - before


def main() -> int:
    """Measure every case; fail where one takes too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--megabytes", type=int, default=500, help="size of the file (500)")
    size = parser.parse_args().megabytes * MEGABYTE
    worst = 0.0
    with served() as (port, pid):
        print(f"Tidemark's process has {memory_mb(pid, 'VmRSS'):.0f} MB before.")
        for case in CASES:
            took = measure(port, pid, case, size)
            worst = max(worst, took)
            print(f"{case.name:<20} {size // MEGABYTE} MB: {took:6.1f} MB of memory")
    return int(worst > LIMIT_MB)


if __name__ == "__main__":
    sys.exit(main())
