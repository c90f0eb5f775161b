"""Counts the calls, files and moves between packages of one request; ``make bench-structure`` runs it.

A profiler in the server's own thread notes every Python function of ``proxy/`` that one request enters. A figure is the
median of five requests, each of a conversation of its own: writes that share a round trip, and timers that fire
meanwhile, add some calls to one request and not to another.
"""

from __future__ import annotations

import argparse
import asyncio
import http.client
import itertools
import json
import logging
import statistics
import tempfile
import threading
import types
from collections.abc import Mapping, Sequence
from pathlib import Path

import uvicorn

from benchmarks.speed import load
from benchmarks.speed.systems import UPSTREAM, start
from tidemark.app.application import create_app
from tidemark.config import load as load_settings
from tidemark.server.connections import ClientConnection
from tidemark.store.embedded.server import EmbeddedValkey

ROOT = Path(__file__).parents[1] / "proxy" / "tidemark"
RUNS = 5
TURNS = 2
"""The last one is followed; the ones before it fill caches and open connections."""
HEADERS = {"content-type": "application/json", "authorization": "Bearer key"}


class Follower:
    """Notes the file and function of every call in one thread. The mutable state is the list of these."""

    def __init__(self) -> None:
        self.active = False
        self.entered: list[tuple[str, str]] = []

    def __call__(self, frame: types.FrameType, event: str, _: object) -> None:
        """Called by the interpreter at every call and return."""
        if not self.active or event != "call":
            return
        name = frame.f_code.co_filename
        if name.startswith(str(ROOT)) and "<" not in frame.f_code.co_name:
            self.entered.append(
                (name[len(str(ROOT)) + 1 :], f"{frame.f_code.co_qualname}:{frame.f_code.co_firstlineno}")
            )


def figures(entered: Sequence[tuple[str, str]]) -> Mapping[str, int]:
    """Return the figures of one followed request."""
    files = [file for file, _ in entered]
    packages = [file.rpartition("/")[0].partition("/")[0] or file for file in files]
    return {
        "calls": len(entered),
        "functions": len(set(entered)),
        "files": len(set(files)),
        "packages": len(set(packages)),
        "visits to app": _visits(packages, "app"),
        "most visits to a package": max(_visits(packages, package) for package in set(packages)),
        "moves between files": _moves(files),
        "moves between packages": _moves(packages),
    }


def _moves(places: Sequence[str]) -> int:
    return sum(before != after for before, after in itertools.pairwise(places))


def _visits(packages: Sequence[str], package: str) -> int:
    """Count how often a package is entered from another one."""
    return sum(name == package for name, _ in itertools.groupby(packages))


def median_of(runs: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
    """Return the median of each figure."""
    return {name: statistics.median_low(run[name] for run in runs) for name in runs[0]}


def followed(port: int, follower: Follower, headers: Mapping[str, str], *, turns: int, run: int) -> Mapping[str, int]:
    """Return the figures of the last of several turns of one conversation.

    :param run: makes the conversation another one than those of other runs
    """
    talk: list[Mapping[str, str]] = []
    connection = http.client.HTTPConnection(load.HOST, port)
    stored = "X-Tidemark-History" in headers
    for turn in range(turns):
        new = {"role": "user", "content": f"Question {turn} of {run}: what comes next?"}
        talk.append(new)
        body = json.dumps({"model": "small", "messages": [new] if stored else talk}).encode()
        follower.entered = []
        follower.active = turn == turns - 1
        connection.request("POST", "/v1/chat/completions", body, {**HEADERS, **headers})
        talk.append(json.loads(connection.getresponse().read())["choices"][0]["message"])
        follower.active = False
    connection.close()
    return figures(follower.entered)


def main() -> None:
    """Follow a small request and a turn of stored history, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--show", action="store_true", help="print every call of the small request")
    options = parser.parse_args()
    logging.basicConfig(level=logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder_name:
        folder = Path(folder_name)
        upstream = start(UPSTREAM, "", folder / "upstream")
        try:
            with EmbeddedValkey(folder / "store") as store:
                _follow(upstream.port, store.url, show=options.show)
        finally:
            upstream.stop()


def _follow(upstream: int, store_url: str, *, show: bool) -> None:
    environ = {"TIDEMARK_UPSTREAM": f"http://{load.HOST}:{upstream}/v1", "TIDEMARK_DATA_DIR": "/nonexistent"}
    settings = load_settings(None, environ)
    follower = Follower()
    app = create_app(settings, store_url=store_url, secret=b"structure", warn=lambda _: None)
    server = uvicorn.Server(
        uvicorn.Config(app, port=0, http=ClientConnection, log_config=None, access_log=False, ws="none")
    )
    threading.setprofile(follower)
    thread = threading.Thread(target=lambda: asyncio.run(server.serve()), daemon=True)
    thread.start()
    threading.setprofile(None)
    while not server.started:
        threading.Event().wait(0.01)
    port = server.servers[0].sockets[0].getsockname()[1]
    rows = {
        "small request": median_of([followed(port, follower, {}, turns=TURNS, run=run) for run in range(RUNS)]),
    }
    if show:
        for file, function in follower.entered:
            print(f"{file:<40}{function}")
    rows["turn of stored history"] = median_of(
        [
            followed(
                port,
                follower,
                {"X-Tidemark-Conversation": f"structure {run}", "X-Tidemark-History": "stored"},
                turns=TURNS,
                run=run,
            )
            for run in range(RUNS)
        ]
    )
    names = list(rows["small request"])
    print(f"{'':<26}" + "".join(f"{name:>26}" for name in names))
    for title, row in rows.items():
        print(f"{title:<26}" + "".join(f"{row[name]:>26}" for name in names))
    server.should_exit = True
    thread.join(10)


if __name__ == "__main__":
    main()
