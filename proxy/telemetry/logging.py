"""Facts as log lines, and every library's log through the same door: the only one to structlog.

One line a request, ``request.served``, with the facts of the response headers; never a key, never contents.
JSON where nobody watches, colours on a terminal, both to stderr, so that stdout stays the commands' own.
"""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Mapping, MutableMapping
from contextlib import nullcontext
from typing import Any, TextIO

import structlog

from proxy.core.events import (
    BreakerChanged,
    CompactionStarted,
    ContextFull,
    ConversationCompacted,
    Event,
    FlushBuried,
    FlushDelayed,
    FlushDelivered,
    FlushDropped,
    FlushFailed,
    FlushLost,
    FlushQueued,
    FlushWaiting,
    RecordBroken,
    RequestServed,
    StoreDegraded,
    SummaryFailed,
    SummaryPrepared,
    TurnStored,
)
from proxy.telemetry.lines import SECONDS_DIGITS, as_json, served_fields, served_line, timestamp
from proxy.telemetry.masking import fit_to_log, fit_traceback

DEGRADED_SECONDS = 10.0
"""A store that is gone fails every request; one line for each operation in this time tells as much."""
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
"""Heard from WARNING on only, and so are their children, whatever the level: below it they write URLs with keys, or
requests."""
_UVICORN = ("uvicorn", "uvicorn.error", "uvicorn.asgi")
_SILENT = logging.CRITICAL + 1
_LEVELS = {level: logging.getLevelName(level).lower() for level in (10, 20, 30, 40, 50)}

_NAMES: Mapping[type[Event], tuple[str, int]] = {
    RequestServed: ("request.served", logging.INFO),
    CompactionStarted: ("compaction.started", logging.DEBUG),
    ConversationCompacted: ("conversation.compacted", logging.INFO),
    SummaryPrepared: ("summary.prepared", logging.INFO),
    SummaryFailed: ("summary.failed", logging.WARNING),
    ContextFull: ("context.full", logging.WARNING),
    BreakerChanged: ("summarizer.breaker", logging.WARNING),
    StoreDegraded: ("store.degraded", logging.WARNING),
    RecordBroken: ("record.broken", logging.WARNING),
    TurnStored: ("turn.stored", logging.DEBUG),
    FlushQueued: ("flush.queued", logging.INFO),
    FlushDelayed: ("flush.delayed", logging.WARNING),
    FlushDropped: ("flush.dropped", logging.ERROR),
    FlushDelivered: ("flush.delivered", logging.INFO),
    FlushFailed: ("flush.failed", logging.WARNING),
    FlushBuried: ("flush.buried", logging.ERROR),
    FlushLost: ("flush.lost", logging.ERROR),
    FlushWaiting: ("flush.waiting", logging.DEBUG),
}
"""What a fact is called and how loud it is; a request is louder where it did not end well."""
_SERVED = _NAMES[RequestServed][0]
_FIELDS = {fact: tuple(fact.__annotations__) for fact in _NAMES}


class FactLog:
    """The listener that logs, to be made after ``configure``.

    State: when each failing store operation was last told of, and how often it failed since.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._log = structlog.get_logger("tidemark").bind()  # bound once: it is half of the cost of a line
        self._told_at: dict[str, float] = {}
        self._untold: dict[str, int] = {}

    def __call__(self, event: Event) -> None:
        """Log one fact."""
        if isinstance(event, RequestServed):
            self._request(event)
            return
        name, level = _NAMES[type(event)]
        if level < logging.root.level:
            return
        fields = _fields(event)
        if isinstance(event, StoreDegraded | RecordBroken):
            what = event.operation if isinstance(event, StoreDegraded) else name
            if not self._due(what):
                return
            fields["untold"] = self._untold.pop(what, 0)
        lines = _json_lines()
        if lines is not None:
            lines.fact(name, level, fields)
        else:
            self._log.log(level, name, **fields)

    def hears(self, kind: type[Event]) -> bool:
        """Whether facts of a kind are loud enough for the level that is set, by what they usually are."""
        return _NAMES[kind][1] >= logging.root.level

    def _request(self, served: RequestServed) -> None:
        level = _loudness(served)
        if level < logging.root.level:
            return
        lines = _json_lines()
        if lines is not None:
            lines.line(as_json(served_line(served, _SERVED, _LEVELS[level])) + "\n", _SERVED)
        else:
            self._log.log(level, _SERVED, **served_fields(served))

    def _due(self, operation: str) -> bool:
        now = self._clock()
        if now - self._told_at.get(operation, -DEGRADED_SECONDS) < DEGRADED_SECONDS:
            self._untold[operation] = self._untold.get(operation, 0) + 1
            return False
        self._told_at[operation] = now
        return True


class _JsonLines(logging.StreamHandler[TextIO]):
    """Writes JSON lines; our own facts without structlog's and logging's detours, and in the same form.

    One fact a request is a tenth of what a small request costs otherwise.
    """

    def fact(self, name: str, level: int, fields: dict[str, Any]) -> None:
        """Write one fact by its fields."""
        _fit(None, name, fields)
        fields["event"] = name
        fields["level"] = _LEVELS[level]
        fields["timestamp"] = timestamp()
        self.line(as_json(fields) + "\n", name)

    def line(self, line: str, name: str) -> None:
        """Write one line, whole and at once."""
        with self.lock or nullcontext():
            try:
                self.stream.write(line)
                if not getattr(self.stream, "line_buffering", False):  # stderr has it: a line is out when written
                    self.flush()
            except Exception:  # noqa: BLE001 - as logging has it: a log that fails must not fail a request
                self.handleError(logging.makeLogRecord({"msg": name}))


def _json_lines() -> _JsonLines | None:
    """Where lines go straight to: the handler of ``configure``, unless somebody else listens too."""
    handlers = logging.root.handlers
    first = handlers[0] if len(handlers) == 1 else None
    return first if isinstance(first, _JsonLines) else None


def configure(level: str = "info", *, json: bool | None = None, stream: TextIO | None = None) -> None:
    """Send every log of the process, structlog's and the standard library's, to one stream in one form.

    :param level: ``debug``, ``info``, ``warning``, ``error``
    :param json: one JSON object a line; None: unless the stream is a terminal
    :param stream: None: stderr
    """
    stream = stream or sys.stderr
    machine_read = not stream.isatty() if json is None else json
    handler = _JsonLines(stream) if machine_read else logging.StreamHandler(stream)
    handler.setFormatter(_formatter(json=machine_read, colors=stream.isatty()))
    handler.addFilter(_loud_enough)  # here, since a logger's filter does not hold for its children
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
    # request.served says the same, and more; uvicorn's own line holds the query
    logging.getLogger("uvicorn.access").setLevel(_SILENT)
    for name in QUIET_LIBRARIES:
        logger = logging.getLogger(name)
        # litellm gives its loggers handlers when it is imported, which is later; a filter comes before them
        for old in [one for one in logger.filters if isinstance(one, _ToRoot)]:
            logger.removeFilter(old)
        logger.addFilter(_ToRoot(root))


def _loud_enough(record: logging.LogRecord) -> bool:
    """Whether a line may be heard by whose it is: most of openai's and httpcore's are their modules' own."""
    if record.levelno >= logging.WARNING:
        return True
    return not any(f"{record.name}.".startswith(f"{library}.") for library in QUIET_LIBRARIES)


class _ToRoot(logging.Filter):
    """Hands a library's warnings to the root's handlers and lets nothing else through."""

    def __init__(self, root: logging.Logger) -> None:
        super().__init__()
        self._root = root

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= max(logging.WARNING, self._root.level):
            self._root.handle(record)
        return False


def _shared() -> list[structlog.typing.Processor]:
    """What happens to every line, ours or a library's, before it is rendered."""
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
        if name.startswith("_"):  # the formatter's own
            continue
        if name in ("exception", "stack"):
            fields[name] = fit_traceback(str(value))
        elif not isinstance(value, bool | int | float):
            fields[name] = fit_to_log(str(value))
    return fields


def _loudness(served: RequestServed) -> int:
    if served.outcome == "error":
        return logging.ERROR
    warned = served.report is not None and served.report.warning is not None
    return logging.WARNING if served.outcome == "incomplete" or warned else logging.INFO


def _fields(event: Event) -> dict[str, Any]:
    """What a fact says, without what it does not know."""
    fields: dict[str, Any] = {}
    for name in _FIELDS[type(event)]:
        value = getattr(event, name)
        if value is not None and value != "":
            fields[name] = round(value, SECONDS_DIGITS) if isinstance(value, float) else value
    return fields
