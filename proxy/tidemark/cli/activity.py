"""Collects what a running server does, for ``tidemark top``.

It asks for conversations, figures and metrics at intervals, and listens to the server's live events in between.
"""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field
from http.client import HTTPException, HTTPResponse
from typing import Any

from tidemark.cli.metrics_text import Histogram, MetricsReading, read_metrics
from tidemark.core.frozen import frozen
from tidemark.terminal.http_client import ASK_SECONDS, ServerRefusal, connect

LISTEN_SECONDS = 40.0
"""The longest silence of the event stream; the server sends a comment every 15 s."""
RETRY_SECONDS = 2.0
RATE_SECONDS = 10.0
"""Rates are means over so long, so that they do not jump with every request."""
CONVERSATIONS = 50
EVENTS = 20
EVENT_KINDS = frozenset({"compaction.started", "compaction.finished", "compaction.failed", "window.learned"})
WITHOUT_RIGHTS = (401, 403)
COUNTERS: Mapping[str, str] = {
    "requests": "tidemark_requests_total",
    "tokens_before": "tidemark_tokens_before_total",
    "tokens_saved": "tidemark_tokens_saved_total",
    "compactions": "tidemark_compactions_total",
}
GAUGES: Mapping[str, str] = {
    "streams_in_flight": "tidemark_streams_in_flight",
    "preparations_in_flight": "tidemark_preparations_in_flight",
    "summarizers_resting": "tidemark_summarizers_resting",
}
LATENCIES: Mapping[str, str] = {
    "first_byte_seconds": "tidemark_first_byte_seconds",
    "request_seconds": "tidemark_request_seconds",
}


class StatusRefusal(ServerRefusal):
    """The server answered with an error's status."""

    def __init__(self, status: int, path: str) -> None:
        super().__init__(f"Tidemark answered {path} with status {status}.")
        self.status = status


@frozen
class WatchedServer:
    """A server with the credential that it is asked with."""

    url: str
    headers: Mapping[str, str]
    operator: bool = False
    """Whether the credential is the operator's token."""
    context: ssl.SSLContext | None = field(default=None, compare=False)
    """Trusts the server; None for the machine's authorities."""

    @classmethod
    def of(cls, url: str, environ: Mapping[str, str], context: ssl.SSLContext | None = None) -> WatchedServer:
        """Return a server that is asked as the operator if the environment has the token, else as a client."""
        token = environ.get("TIDEMARK_ADMIN_TOKEN")
        key = token or environ.get("OPENAI_API_KEY")
        return cls(url, {"authorization": f"Bearer {key}"} if key else {}, bool(token), context)

    def get(self, path: str) -> bytes:
        """Return the body of a page.

        :raises ServerRefusal: it does not answer, or with an error
        """
        connection, prefix = connect(self.url, ASK_SECONDS, self.context)
        try:
            connection.request("GET", prefix + path, headers=dict(self.headers))
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, HTTPException) as error:
            raise ServerRefusal(f"Tidemark does not answer at {self.url}: {error}. Is it running?") from error
        finally:
            connection.close()
        if answer.status != 200:
            raise StatusRefusal(answer.status, path.partition("?")[0])
        return body

    def get_json(self, path: str) -> Any:
        """Return a page's JSON.

        :raises ServerRefusal: also if it is no JSON
        """
        try:
            return json.loads(self.get(path))
        except ValueError as error:
            raise ServerRefusal(f"What answers at {self.url} is not Tidemark.") from error


@frozen
class Activity:
    """What a server does at one moment, as ``--json`` prints it."""

    url: str
    at: float
    """Unix time in seconds."""
    rate_seconds: float
    """The time that the rates are means of."""
    rates: Mapping[str, float]
    """By the names of ``COUNTERS``, each second."""
    totals: Mapping[str, int]
    """Counters since the server's start, and gauges."""
    models: list[Mapping[str, Any]]
    conversations: list[Mapping[str, Any]]
    """As ``GET /tidemark/conversations`` has them, the one used last first."""
    last_hour: Mapping[str, Any] | None
    """As ``GET /tidemark/stats`` has it, without its series; None for somebody who is not the operator."""
    notes: list[str]
    events: list[Mapping[str, Any]] = field(default_factory=list)
    """The newest live events, the newest last."""


class Watcher:
    """Makes a reading at each call; it remembers the metrics of the last seconds for the rates."""

    def __init__(self, server: WatchedServer) -> None:
        self._server = server
        self._readings: deque[tuple[float, MetricsReading]] = deque()

    def read(self) -> Activity:
        """Ask the server.

        :raises ServerRefusal: it does not answer
        """
        metrics = read_metrics(self._server.get("/metrics").decode("utf-8", "replace"))
        now = time.monotonic()
        self._readings.append((now, metrics))
        while len(self._readings) > 2 and now - self._readings[1][0] >= RATE_SECONDS:
            self._readings.popleft()
        begin, earlier = self._readings[0]
        notes: list[str] = []
        hour = self._optional("/tidemark/stats?window=3600", notes, "figures of the last hour")
        stored = self._optional(f"/tidemark/conversations?limit={CONVERSATIONS}", notes, "conversations")
        if hour is not None:
            hour.pop("series", None)
        names = {**COUNTERS, **GAUGES}
        return Activity(
            url=self._server.url,
            at=time.time(),
            rate_seconds=round(now - begin, 3),
            rates={name: _rate(metrics, earlier, key, now - begin) for name, key in COUNTERS.items()},
            totals={name: int(metrics.total(key)) for name, key in names.items()},
            models=_models(metrics, earlier),
            conversations=stored["data"] if stored else [],
            last_hour=hour,
            notes=notes,
        )

    def _optional(self, path: str, notes: list[str], what: str) -> Any:
        """Return a page that not everybody may see; None and a note if this caller may not, or it fails."""
        try:
            return self._server.get_json(path)
        except StatusRefusal as refusal:
            mend = f"the server answered with {refusal.status}"
            if refusal.status in WITHOUT_RIGHTS:
                mend = (
                    "the server refuses TIDEMARK_ADMIN_TOKEN" if self._server.operator else "set TIDEMARK_ADMIN_TOKEN"
                )
            notes.append(f"no {what}: {mend}")
            return None


def listen(server: WatchedServer, take: Callable[[Mapping[str, Any]], None], ended: threading.Event) -> None:
    """Take live events until ``ended`` is set; a broken stream is opened again."""
    last = ""
    while not ended.is_set():
        with suppress(OSError, HTTPException, ServerRefusal):
            connection, prefix = connect(server.url, LISTEN_SECONDS, server.context)
            headers = {**server.headers, **({"last-event-id": last} if last else {})}
            try:
                connection.request("GET", f"{prefix}/tidemark/events", headers=headers)
                answer = connection.getresponse()
                for place, event in events_of(_lines(answer)) if answer.status == 200 else ():
                    last = place or last
                    take(event)
                    if ended.is_set():
                        return
            finally:
                connection.close()
        ended.wait(RETRY_SECONDS)


def events_of(lines: Iterable[str]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the id and the members of each server-sent event (WHATWG HTML, section 9.2), with its kind."""
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        if line and name:
            fields[name] = value.removeprefix(" ")
            continue
        if not line:
            with suppress(ValueError):
                event = json.loads(fields.get("data", ""))
                yield fields.get("id", ""), {"event": fields.get("event", "message"), **event}
            fields = {}


def _lines(answer: HTTPResponse) -> Iterator[str]:
    while line := answer.readline():
        yield line.decode("utf-8", "replace").rstrip("\r\n")


def _rate(metrics: MetricsReading, earlier: MetricsReading, name: str, seconds: float) -> float:
    """Return what was counted each second; a counter that fell was set to 0 by a restart."""
    after, before = metrics.total(name), earlier.total(name)
    return round((after - before if after >= before else after) / seconds, 3) if seconds > 0 else 0.0


def _models(metrics: MetricsReading, earlier: MetricsReading) -> list[Mapping[str, Any]]:
    """Return the figures of each model: those with most requests first, latencies of the last seconds."""
    counts = metrics.by_model.get(COUNTERS["requests"], {})
    rows: list[Mapping[str, Any]] = []
    for model, requests in sorted(counts.items(), key=lambda entry: (-entry[1], entry[0])):
        row: dict[str, Any] = {"model": model, "requests": int(requests)}
        for name, key in LATENCIES.items():
            histogram = metrics.histograms.get(key, {}).get(model, Histogram())
            recent = histogram.since(earlier.histograms.get(key, {}).get(model, Histogram()))
            chosen = recent if recent.quantile(0.5) is not None else histogram
            row[name] = {f"p{share}": _rounded(chosen.quantile(share / 100)) for share in (50, 95)}
        rows.append(row)
    return rows


def _rounded(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds, 4)
