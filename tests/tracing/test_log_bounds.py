"""An exporter that fails again and again logs one line a minute, which counts the others."""

from __future__ import annotations

import logging

import pytest

from tidemark.tracing.tracing import PAUSE_SECONDS, LineBound


def test_lines_of_the_exporter_come_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    """The next one says how many there were."""
    now = [0.0]
    logger = logging.Logger("an exporter")  # noqa: LOG001 - one of the test's own
    logger.addFilter(LineBound(lambda: now[0]))
    logger.addHandler(caplog.handler)
    for second in (0.0, 1.0, 2.0, PAUSE_SECONDS, PAUSE_SECONDS + 1):
        now[0] = second
        logger.warning("no answer at %.0f", second)
    assert caplog.messages == ["no answer at 0", "no answer at 60 (2 more lines were left out)"]
