"""Writes events and the logs of libraries as log lines; no other module imports structlog.

It listens to the events of the pipeline. Each request has one line, ``request.served``, with the values of the response
headers, but no keys and no contents. Lines are JSON, or coloured text on a terminal. Both go to stderr, because stdout
belongs to the commands.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import nullcontext
from typing import Any, TextIO

import structlog

from tidemark.core import events, flush_events
from tidemark.core.receipt import render_receipt
from tidemark.telemetry.lines import SECONDS_DIGITS, as_json, served_fields, served_line, timestamp
from tidemark.telemetry.masking import fit_to_log, fit_traceback

DEGRADED_SECONDS = 60.0
"""The time between two lines about a store that fails; an outage fails every operation of every request."""
SHED_SECONDS = 60.0
"""The time between two lines about refused requests; a flood may bring thousands in a second."""
QUIET_LIBRARIES = (
    "LiteLLM",
    "LiteLLM Router",
    "LiteLLM Proxy",
    "litellm",
    "httpx",
    "httpcore",
    "openai",
    "aiohttp.access",
)
"""Libraries whose lines, and whose children's, appear from WARNING on only: below it they write URLs with keys, or
requests."""
_UVICORN = ("uvicorn", "uvicorn.error", "uvicorn.asgi")
_SILENT = logging.CRITICAL + 1
_LEVELS = {level: logging.getLevelName(level).lower() for level in (10, 20, 30, 40, 50)}

_NAMES: Mapping[type[events.Event], tuple[str, int]] = {
    events.RequestServed: ("request.served", logging.INFO),
    events.CompactionStarted: ("compaction.started", logging.DEBUG),
    events.ConversationCompacted: ("conversation.compacted", logging.INFO),
    events.CompactionGivenUp: ("compaction.failed", logging.INFO),
    events.WindowLearned: ("window.learned", logging.INFO),
    events.WindowAssumed: ("window.assumed", logging.WARNING),
    events.ManualCompactionEnded: ("compaction.manual", logging.INFO),
    events.SummaryReplaced: ("summary.replaced", logging.INFO),
    events.SummaryPrepared: ("summary.prepared", logging.INFO),
    events.SummaryFailed: ("summary.failed", logging.WARNING),
    events.MessagesSearched: ("messages.searched", logging.INFO),
    events.ContextFull: ("context.full", logging.WARNING),
    events.BreakerChanged: ("summarizer.breaker", logging.WARNING),
    events.StoreDegraded: ("store.degraded", logging.WARNING),
    events.StoreReplaced: ("store.replaced", logging.ERROR),
    events.ConversationsExpired: ("conversations.expired", logging.INFO),
    events.RecordBroken: ("record.broken", logging.WARNING),
    events.RequestShed: ("request.shed", logging.WARNING),
    events.TurnStored: ("turn.stored", logging.DEBUG),
    events.Audited: ("audited", logging.INFO),
    flush_events.FlushQueued: ("flush.queued", logging.INFO),
    flush_events.FlushDelayed: ("flush.delayed", logging.WARNING),
    flush_events.FlushDropped: ("flush.dropped", logging.ERROR),
    flush_events.FlushDelivered: ("flush.delivered", logging.INFO),
    flush_events.FlushFailed: ("flush.failed", logging.WARNING),
    flush_events.FlushBuried: ("flush.buried", logging.ERROR),
    flush_events.FlushLost: ("flush.lost", logging.ERROR),
    flush_events.FlushWaiting: ("flush.waiting", logging.DEBUG),
}
"""The name and the level of each event; a request has a higher level if it did not end well."""
_SERVED = _NAMES[events.RequestServed][0]
_FIELDS = {fact: tuple(fact.__annotations__) for fact in _NAMES}


class FactLog:
    """The listener that logs; create it after ``configure``.

    Its state is when each repeated failure was last logged, and how often it came since.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._log = structlog.get_logger("tidemark").bind()  # binding once saves half of the cost of a line
        self._logged_at: dict[str, float] = {}
        self._suppressed: dict[str, int] = {}

    def __call__(self, event: events.Event) -> None:
        if isinstance(event, events.RequestServed):
            self._request(event)
            return
        name, level = _NAMES[type(event)]
        if level < logging.root.level:
            return
        fields = _fields(event)
        if isinstance(event, events.StoreDegraded | events.RecordBroken | events.RequestShed):
            if not self._due(name, SHED_SECONDS if isinstance(event, events.RequestShed) else DEGRADED_SECONDS):
                return
            fields["untold"] = self._suppressed.pop(name, 0)
        lines = _json_lines()
        if lines is not None:
            lines.fact(name, level, fields)
        else:
            self._log.log(level, name, **fields)

    def includes(self, kind: type[events.Event]) -> bool:
        """Return whether the configured level includes events of a kind."""
        return _NAMES[kind][1] >= logging.root.level

    def _request(self, served: events.RequestServed) -> None:
        level = _level_of(served)
        if level < logging.root.level:
            return
        lines = _json_lines()
        if lines is not None:
            lines.line(as_json(served_line(served, _SERVED, _LEVELS[level])) + "\n", _SERVED)
        else:
            self._log.log(level, _SERVED, **served_fields(served))

    def _due(self, name: str, seconds: float) -> bool:
        now = self._clock()
        if now - self._logged_at.get(name, -seconds) < seconds:
            self._suppressed[name] = self._suppressed.get(name, 0) + 1
            return False
        self._logged_at[name] = now
        return True


class _JsonLines(logging.StreamHandler[TextIO]):
    """Writes JSON lines; our own events without structlog and logging, in the same form.

    Through those libraries, the line of a small request would cost a tenth of all its other work.
    """

    def fact(self, name: str, level: int, fields: dict[str, Any]) -> None:
        _fit(None, name, fields)
        fields["event"] = name
        fields["level"] = _LEVELS[level]
        fields["timestamp"] = timestamp()
        self.line(as_json(fields) + "\n", name)

    def line(self, line: str, name: str) -> None:
        """Write one line at once."""
        with self.lock or nullcontext():
            try:
                self.stream.write(line)
                if not getattr(self.stream, "line_buffering", False):  # stderr is line buffered, so the line is out
                    self.flush()
            except Exception:  # noqa: BLE001 - as in logging, a failing log must not fail a request
                self.handleError(logging.makeLogRecord({"msg": name}))


def _json_lines() -> _JsonLines | None:
    """Return the handler of ``configure`` that takes lines directly, unless there are other handlers too."""
    handlers = logging.root.handlers
    first = handlers[0] if len(handlers) == 1 else None
    return first if isinstance(first, _JsonLines) else None


def configure(level: str = "info", *, json: bool | None = None, stream: TextIO | None = None) -> None:
    """Send all logs of the process, from structlog and the standard library, to one stream in one form.

    :param level: ``debug``, ``info``, ``warning``, ``error``
    :param json: whether each line is a JSON object; None means unless the stream is a terminal
    :param stream: None means stderr
    """
    stream = stream or sys.stderr
    machine_read = not stream.isatty() if json is None else json
    handler = _JsonLines(stream) if machine_read else logging.StreamHandler(stream)
    handler.setFormatter(_formatter(json=machine_read, colors=stream.isatty()))
    handler.addFilter(_is_loud_enough)  # a logger's own filter does not apply to its children
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    _take_over_libraries(root)
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=[*_shared(), structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(root.level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,
    )


def _take_over_libraries(root: logging.Logger) -> None:
    for name in _UVICORN:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    # request.served has the same facts and more; uvicorn's own line contains the query
    logging.getLogger("uvicorn.access").setLevel(_SILENT)
    for name in QUIET_LIBRARIES:
        logger = logging.getLogger(name)
        # litellm adds handlers to its loggers when it is imported later; a filter runs before them
        for old in [filter_ for filter_ in logger.filters if isinstance(filter_, _ToRoot)]:
            logger.removeFilter(old)
        logger.addFilter(_ToRoot(root))


def _is_loud_enough(record: logging.LogRecord) -> bool:
    """Return whether a library's line may be logged; openai's and httpcore's loggers are mostly children."""
    if record.levelno >= logging.WARNING:
        return True
    return not any(f"{record.name}.".startswith(f"{library}.") for library in QUIET_LIBRARIES)


class _ToRoot(logging.Filter):
    """Passes a library's warnings to the root's handlers, and drops everything else."""

    def __init__(self, root: logging.Logger) -> None:
        super().__init__()
        self._root = root

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= max(logging.WARNING, self._root.level):
            self._root.handle(record)
        return False


def _shared() -> list[structlog.typing.Processor]:
    """Return the processors of every line, ours or a library's, before it is rendered."""
    return [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
        _fit,
    ]


def _formatter(*, json: bool, colors: bool) -> logging.Formatter:
    renderer: structlog.typing.Processor = structlog.dev.ConsoleRenderer(
        colors=colors, exception_formatter=structlog.dev.plain_traceback
    )
    if json:
        renderer = structlog.processors.JSONRenderer(as_json)
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[
            structlog.stdlib.add_logger_name,
            structlog.stdlib.ExtraAdder(allow=()),
            *_shared(),
        ],
        processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, renderer],
    )


def _fit(_logger: Any, _method: str, fields: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    for name, value in fields.items():
        if name.startswith("_"):  # a field of the formatter
            continue
        if name in ("exception", "stack"):
            fields[name] = fit_traceback(str(value))
        elif not isinstance(value, bool | int | float):
            fields[name] = fit_to_log(str(value))
    return fields


def _level_of(served: events.RequestServed) -> int:
    if served.outcome == "error":
        return logging.ERROR
    warned = served.report is not None and served.report.warning is not None
    return logging.WARNING if served.outcome == "incomplete" or warned else logging.INFO


def _fields(event: events.Event) -> dict[str, Any]:
    """Return an event's fields that have a value."""
    fields: dict[str, Any] = {}
    for name in _FIELDS[type(event)]:
        value = getattr(event, name)
        if value is not None and value not in ("", ()):
            fields[name] = round(value, SECONDS_DIGITS) if isinstance(value, float) else value
    if "receipt" in fields:
        fields["receipt"] = render_receipt(fields["receipt"])
    return fields
