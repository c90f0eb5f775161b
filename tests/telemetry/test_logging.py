"""The log: one line a request, every library through one handler, never a key and never a flood."""

from __future__ import annotations

import io
import json
import logging
import re
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.logs import logging_put_back
from tidemark.core.events import (
    ConversationCompacted,
    Event,
    Outcome,
    RecordBroken,
    RequestServed,
    RequestShed,
    StoreDegraded,
    SummaryFailed,
    TurnStored,
)
from tidemark.core.flush_events import FlushDropped
from tidemark.core.receipt import KindCount
from tidemark.core.report import Action, Report, Usage
from tidemark.telemetry.lines import as_json, served_line, timestamp
from tidemark.telemetry.logging import DEGRADED_SECONDS, FactLog, configure
from tidemark.telemetry.masking import MAX_CHARACTERS, fit_to_log

SERVED = RequestServed("/v1/chat/completions", 200, "complete", 0.25)
FAILED = SummaryFailed("c1", "gpt-4o", "llm", "no answer", "deterministic", 1.0)
ANY_TEXT = st.text(st.characters(exclude_categories=()))
SECONDS = st.floats(0, 1e9)
COUNT = st.none() | st.integers()
REPORTS = st.builds(
    Report,
    conversation=ANY_TEXT | st.from_regex("[0-9a-f]{14,18}", fullmatch=True),
    tenant=ANY_TEXT,
    limit=st.integers(),
    action=st.sampled_from(get_args(Action)),
    tokens_before=st.integers(),
    tokens_after=st.integers(),
    summarized=st.integers(),
    receipt=st.sampled_from(["", "rules 7/7, identifiers 41/60"]),
    lossless_tokens=st.integers(),
    strategy=st.none() | ANY_TEXT,
    warning=st.none() | ANY_TEXT,
    degraded=st.booleans(),
    overhead_seconds=SECONDS,
)
Lines = Callable[[], list[dict[str, Any]]]


def refuse(reason: str) -> None:
    """A library that fails."""
    raise ValueError(reason)


class Terminal(io.StringIO):
    """A stream that somebody watches."""

    def isatty(self) -> bool:
        """Yes."""
        return True


@pytest.fixture(autouse=True)
def _process_as_before() -> Iterator[None]:
    """Put back what a test changes."""
    with logging_put_back():
        yield


@pytest.fixture
def lines() -> Lines:
    """The lines of a log in JSON since the test began."""
    stream = io.StringIO()
    configure("info", stream=stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]


class TestFacts:
    """A fact becomes a line."""

    def test_a_request_is_one_line_with_the_facts_of_its_headers(self, lines: Lines) -> None:
        """What the fact does not know is left out."""
        FactLog()(
            RequestServed(
                "/v1/chat/completions",
                200,
                "complete",
                1.23456789,
                model="gpt-4o",
                stream=True,
                report=Report("c1", "t1", 1000, "reused", 900, 400, summarized=12, overhead_seconds=0.5),
            )
        )
        (line,) = lines()
        assert line.pop("timestamp").endswith("Z")
        assert line == {
            "event": "request.served",
            "level": "info",
            "path": "/v1/chat/completions",
            "status": 200,
            "outcome": "complete",
            "seconds": 1.234568,
            "overhead_seconds": 0.5,
            "model": "gpt-4o",
            "stream": True,
            "conversation": "c1",
            "tenant": "t1",
            "action": "reused",
            "tokens_before": 900,
            "tokens_after": 400,
            "limit": 1000,
            "summarized_messages": 12,
            "store": "ok",
        }

    def test_a_fact_is_written_as_structlog_would(self) -> None:
        """It goes past structlog because of its cost; who reads the log sees no difference."""
        stream, other = io.StringIO(), io.StringIO()
        fact = RequestServed(
            "/v1/ü", 200, "error", 1.5, model="sk-abcdef123456", cause="a\nb", report=Report("", "0" * 32, 1)
        )
        configure("info", json=True, stream=stream)
        FactLog()(fact)
        configure("info", json=True, stream=other)
        logging.getLogger().addHandler(logging.NullHandler())  # with another listener, it takes structlog's way
        FactLog()(fact)
        direct, usual = stream.getvalue(), other.getvalue()
        stamp = r'"timestamp":"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"'
        assert re.sub(stamp, "", direct) == re.sub(stamp, "", usual)
        assert re.search(stamp, direct)
        assert "sk-abcdef" not in direct

    @given(
        st.builds(
            RequestServed,
            path=st.text(min_size=1),
            outcome=st.sampled_from(get_args(Outcome)),
            seconds=SECONDS,
            first_byte_seconds=st.none() | SECONDS,
            model=ANY_TEXT,
            stream=st.booleans(),
            report=st.none() | REPORTS,
            usage=st.builds(Usage, COUNT, COUNT, COUNT),
            code=st.none() | ANY_TEXT,
            cause=st.none() | ANY_TEXT | st.just("token=AbCd1234EfGh " * 40),
        )
    )
    def test_the_line_of_a_request_says_what_is_known_of_it(self, fact: RequestServed) -> None:
        """In one order, each under its name, and in one line whatever its texts hold."""
        level = "error" if fact.outcome == "error" else "info"
        line = as_json(served_line(fact, "request.served", level))
        report, usage = fact.report, fact.usage
        facts: dict[str, Any] = {
            "path": fact.path,
            "status": fact.status,
            "outcome": fact.outcome,
            "seconds": fact.seconds,
            "first_byte_seconds": fact.first_byte_seconds,
            "overhead_seconds": report and report.overhead_seconds,
            "model": fact.model,
            "stream": fact.stream,
            "conversation": report and report.conversation,
            "tenant": report and report.tenant,
            "action": report and report.action,
            "tokens_before": report and report.tokens_before,
            "tokens_after": report and report.tokens_after,
            "limit": report and report.limit,
            "summarized_messages": report and report.summarized,
            "strategy": report and report.strategy,
            "receipt": report and (report.receipt or None),
            "lossless_tokens": report and (report.lossless_tokens or None),
            "warning": report and report.warning,
            "store": report and ("degraded" if report.degraded else "ok"),
            "code": fact.code,
            "cause": fact.cause,
            "prompt_tokens": usage.input_tokens,
            "cached_tokens": usage.cached_tokens,
            "completion_tokens": usage.output_tokens,
        }
        known = {
            name: fit_to_log(value) if isinstance(value, str) else round(value, 6)
            for name, value in facts.items()
            if value is not None and value != ""
        }
        usual = {**known, "stream": fact.stream, "event": "request.served", "level": level}
        said = json.loads(line)
        assert list(said.items()) == [*usual.items(), ("timestamp", said["timestamp"])]
        assert line.splitlines() == [line]

    def test_a_timestamp_is_the_time_in_utc(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """To the microsecond that has begun; always of the same length."""
        for now, shown in (
            (1_769_860_496_123_456_789, "2026-01-31T11:54:56.123456Z"),
            (1_769_860_496_999_999_999, "2026-01-31T11:54:56.999999Z"),
            (1_769_860_497_000_000_000, "2026-01-31T11:54:57.000000Z"),
            (1_769_860_496_000_001_000, "2026-01-31T11:54:56.000001Z"),  # a clock that was set back
        ):
            monkeypatch.setattr(time, "time_ns", lambda now=now: now)
            assert timestamp() == shown

    @pytest.mark.parametrize("buffering", [1, 8192])
    def test_a_line_is_out_when_the_request_is_told(self, tmp_path: Path, buffering: int) -> None:
        """Whatever the stream holds back by itself: a process that ends abruptly has lost none."""
        path = tmp_path / "log"
        with path.open("w", buffering=buffering) as stream:
            configure("info", json=True, stream=stream)
            for number in range(3):
                FactLog()(SERVED)
                FactLog()(FAILED)
                assert path.read_bytes().count(b"}\n") == 2 * number + 2

    def test_what_is_not_loud_enough_is_not_written(self) -> None:
        """As for every other line."""
        stream = io.StringIO()
        configure("warning", json=True, stream=stream)
        FactLog()(SERVED)
        assert stream.getvalue() == ""

    def test_a_stream_that_cannot_be_written_fails_no_request(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A listener must not raise."""
        stream = io.StringIO()
        configure("info", json=True, stream=stream)
        monkeypatch.setattr(logging, "raiseExceptions", False)
        stream.close()
        FactLog()(SERVED)

    @pytest.mark.parametrize(
        ("outcome", "warning", "level"),
        [
            ("complete", None, "info"),
            ("refused", None, "info"),
            ("rejected", None, "info"),
            ("disconnected", None, "info"),
            ("complete", "summary is extractive", "warning"),
            ("incomplete", None, "warning"),
            ("error", None, "error"),
        ],
    )
    def test_how_a_request_ended_says_how_loud_it_is(
        self, lines: Lines, outcome: Outcome, warning: str | None, level: str
    ) -> None:
        """A client's mistake is no error of ours."""
        FactLog()(RequestServed("/v1/x", 200, outcome, 0.1, report=Report("c", "t", 1, warning=warning)))
        assert lines()[0]["level"] == level

    @pytest.mark.parametrize(
        ("fact", "name", "level"),
        [
            (ConversationCompacted("c1", "m", "llm", 45, 81_234, 900, 2.5), "conversation.compacted", "info"),
            (FAILED, "summary.failed", "warning"),
            (RequestShed("streams", 2, 0), "request.shed", "warning"),
            (RecordBroken("c" * 48, "message 3", "torn"), "record.broken", "warning"),
            (StoreDegraded("recall", "timeout"), "store.degraded", "warning"),
        ],
    )
    def test_other_facts_have_names_of_their_own(self, lines: Lines, fact: Event, name: str, level: str) -> None:
        """Subject, then what happened to it."""
        FactLog()(fact)
        assert (lines()[0]["event"], lines()[0]["level"]) == (name, level)

    def test_a_compaction_says_what_the_summary_kept(self, lines: Lines) -> None:
        """As counts, in the form of the response header."""
        receipt = (KindCount("rules", 7, 6, 1), KindCount("names", 5, 2))
        FactLog()(ConversationCompacted("c1", "m", "llm", 45, 81_234, 900, 2.5, receipt=receipt))
        assert lines()[0]["receipt"] == "rules 7/7, names 2/5"

    def test_what_happens_on_every_turn_is_heard_at_debug_only(self, lines: Lines) -> None:
        """One line a request, not two."""
        FactLog()(TurnStored("c1", 2, 300, 0.001))
        assert lines() == []

    @pytest.mark.parametrize(("level", "heard"), [("debug", True), ("info", False), ("warning", False)])
    def test_who_tells_can_ask_whether_a_fact_would_be_heard(self, level: str, heard: bool) -> None:  # noqa: FBT001
        """What nobody hears need not be made."""
        stream = io.StringIO()
        configure(level, json=True, stream=stream)
        log = FactLog()
        log(TurnStored("c1", 2, 300, 0.001))
        assert log.includes(TurnStored) is heard is (stream.getvalue() != "")
        assert log.includes(FlushDropped)

    def test_a_store_that_is_gone_does_not_flood_the_log(self, lines: Lines) -> None:
        """One line a minute, whatever fails; it says how many were left out."""
        now = 0.0
        log = FactLog(clock=lambda: now)
        for _ in range(1000):
            log(StoreDegraded("recall", "timeout"))
        log(StoreDegraded("record", "timeout"))
        now = DEGRADED_SECONDS - 1
        log(StoreDegraded("watch", "timeout"))
        now = DEGRADED_SECONDS
        log(StoreDegraded("recall", "timeout"))
        assert [(line["operation"], line["untold"]) for line in lines()] == [("recall", 0), ("recall", 1001)]
        assert DEGRADED_SECONDS == 60

    def test_refused_requests_are_one_line_a_minute(self, lines: Lines) -> None:
        """Which says how many there were before it."""
        now = 0.0
        log = FactLog(clock=lambda: now)
        for now in (0.0, 30.0, 59.0, 60.0, 61.0):  # noqa: B007 - the clock reads it
            log(RequestShed("streams", 100, 0))
        assert [line["untold"] for line in lines()] == [0, 2]


class TestForm:
    """JSON where nobody watches, colours on a terminal."""

    def test_a_terminal_gets_colours_and_everything_else_json(self) -> None:
        """Unless it is said otherwise."""
        shown = []
        for stream, in_json in (
            (Terminal(), None),
            (io.StringIO(), None),
            (Terminal(), True),
            (io.StringIO(), False),
        ):
            configure(stream=stream, json=in_json)
            FactLog()(SERVED)
            shown.append((stream.getvalue()[0] == "{", "\x1b[" in stream.getvalue()))
        assert shown == [(False, True), (True, False), (True, False), (False, False)]

    def test_stdout_is_left_to_the_commands(self, capsys: pytest.CaptureFixture[str]) -> None:
        """``tidemark count`` prints JSON there."""
        configure()
        FactLog()(SERVED)
        out, err = capsys.readouterr()
        assert (out, json.loads(err)["event"]) == ("", "request.served")

    def test_configured_twice_it_says_everything_once(self) -> None:
        """A reload adds no second handler."""
        first, second = io.StringIO(), io.StringIO()
        configure(stream=first)
        configure(stream=second)
        FactLog()(SERVED)
        logging.getLogger("LiteLLM").warning("careful")
        assert (first.getvalue(), len(second.getvalue().splitlines())) == ("", 2)


class TestLibraries:
    """The standard library's loggers write through the same handler."""

    def test_uvicorn_speaks_but_its_access_log_is_off(self, lines: Lines) -> None:
        """The access line would hold the query, and say a request twice."""
        logging.getLogger("uvicorn.error").info("Started on port %d", 8787)
        logging.getLogger("uvicorn.access").error("GET /?key=secret")
        assert [(line["event"], line["logger"]) for line in lines()] == [("Started on port 8787", "uvicorn.error")]

    @pytest.mark.parametrize("name", ["LiteLLM", "httpx"])
    def test_libraries_that_write_contents_are_heard_from_warning_on(self, name: str) -> None:
        """At debug too; handlers that they add later, as litellm does on import, write nothing."""
        stream, own = io.StringIO(), io.StringIO()
        configure("debug", stream=stream)
        logger, handler = logging.getLogger(name), logging.StreamHandler(own)
        logger.addHandler(handler)
        logger.debug("the whole request")
        logger.info("POST https://host/?key=secret")
        logger.warning("careful")
        logger.removeHandler(handler)
        assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["careful"]
        assert own.getvalue() == ""

    @pytest.mark.parametrize("name", ["openai._base_client", "httpcore.http11", "litellm.lens.worker"])
    def test_their_modules_are_as_quiet(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """Most of these libraries log by loggers of their own, for which no filter of the parent's holds."""
        stream = io.StringIO()
        configure("debug", stream=stream)
        logger = logging.getLogger(name)
        monkeypatch.setattr(logger, "level", logging.DEBUG)  # as OPENAI_LOG=debug does
        logger.debug("Request options: %s", {"messages": ["my words"]})
        logger.info("Retrying request to https://host/?key=secret")
        logger.warning("careful")
        logging.getLogger("openais").info("someone else")
        told = [json.loads(line)["event"] for line in stream.getvalue().splitlines()]
        assert told == ["careful", "someone else"]

    def test_an_exception_is_one_line_too(self, lines: Lines) -> None:
        """With its traceback in a field, keys masked in it."""
        try:
            refuse("Authorization: Bearer abc.def-ghi")
        except ValueError:
            logging.getLogger("asyncio").exception("Task failed")
        (line,) = lines()
        assert line["exception"].splitlines()[-1] == "ValueError: Authorization: Bearer ***"
        assert "in refuse" in line["exception"]


class TestTexts:
    """What comes from outside cannot harm a line."""

    @pytest.mark.parametrize(
        "text",
        [
            "Incorrect API key provided: sk-proj-{}. You can find",
            "Authorization: Bearer {}",
            "'Authorization': 'Basic {}'",
            '{{"api_key": "{}"}}',
            "https://host/v1?key={}&alt=sse",
            "redis://user:{}@host:6379/0",
            "gsk_{} was refused",
            "token={}",
        ],
    )
    def test_keys_are_masked(self, text: str) -> None:
        """Wherever a provider or a library repeats one."""
        key = "AbCd1234EfGh5678"
        assert key not in fit_to_log(text.format(key))
        assert "***" in fit_to_log(text.format(key))

    def test_a_password_that_holds_an_at_is_masked_to_its_end(self) -> None:
        """The last one before the path ends it, as for whoever connects."""
        shown = fit_to_log("redis://:p@ssw0rd@cache:6379/0 and http://host/a@b")
        assert shown == "redis://***@cache:6379/0 and http://host/a@b"

    def test_words_about_keys_are_no_keys(self) -> None:
        """A message stays readable."""
        for text in ("the api key is not set", "90 tokens over", "task-12 failed", "http://host:8080/v1"):
            assert fit_to_log(text) == text

    @given(ANY_TEXT)
    def test_any_text_is_one_bounded_line_that_can_be_written(self, text: str) -> None:
        """No line breaks, no escape sequences of terminals, no half characters."""
        shown = fit_to_log(text)
        shown.encode()
        assert len(shown.splitlines()) <= 1
        assert "\x1b" not in shown
        assert len(fit_to_log(text * 1000)) <= MAX_CHARACTERS + 3

    def test_long_texts_are_not_remembered(self) -> None:
        """What is cached is cut first: a client may send any length."""
        long = "very long " * 1000
        before = sys.getrefcount(long)
        report = Report(long, long, 1, strategy=long, warning=long)
        served_line(RequestServed(long, 200, "complete", 0.1, model=long, report=report), "request.served", "info")
        del report
        fit_to_log(long)
        assert sys.getrefcount(long) == before

    def test_a_made_up_model_name_makes_no_line_of_its_own(self) -> None:
        """On a terminal neither."""
        for in_json in (True, False):
            stream = io.StringIO()
            configure(stream=stream, json=in_json)
            FactLog()(RequestServed("/v1/x", 404, "rejected", 0.1, model="a\n2026 [info] all is well\x1b[2J\ud800"))
            assert len(stream.getvalue().splitlines()) == 1
            assert "\x1b" not in stream.getvalue()
