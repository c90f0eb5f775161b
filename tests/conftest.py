"""What holds for all tests: how many examples are drawn, and that an interrupt reaches what they start."""

from __future__ import annotations

import gc
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings

from tests.support.forked import ForkedProcesses

FULL = settings(derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""``make test-properties``, which CI runs: the same examples each time, since a change must not fail by chance.

An ``@example`` keeps what other runs find.

On a busy machine any example may take long, and how long is no rule that a test states.
"""
settings.register_profile("full", FULL)
settings.register_profile("daily", FULL, max_examples=34)
"""``make test``: the first third of the same examples (``tests/support/examples.py``)."""
settings.register_profile("random", FULL, derandomize=False, print_blob=True)
"""``make test-random``: other examples in every run."""
settings.register_profile("deep", FULL, derandomize=False, max_examples=10_000)
"""``make test-deep``: of those tests that leave their number to the profile."""
settings.load_profile("daily")

gc.disable()
"""While the tests are collected: thousands of objects are made, none is garbage, and looking for it took a third of the
time, in each process."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of ``tests/support/forked.py``."""
    parser.addoption("--forked", type=int, default=0, metavar="COUNT", help="run the tests in this many processes")


def pytest_configure(config: pytest.Config) -> None:
    """Fork processes for the tests if the option says so."""
    if config.option.forked:
        config.pluginmanager.register(ForkedProcesses(config.option.forked), "forked")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Look for garbage again, seldom, and not among what was made until now, which stays to the end."""
    if session.config.option.forked and any("litellm" in getattr(item, "fixturenames", ()) for item in session.items):
        # Two seconds of CPU, once instead of in each process. Every test reaches what is imported here.
        sys.modules["tidemark.upstream.litellm"].load().result(60)
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """End the servers that were lent to tests, which have given them back."""
    if lending := sys.modules.get("tests.support.fresh_stores"):
        lending.end_fresh_stores()


if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what goes on in the background this way, and all children would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if hasattr(signal, "SIGHUP") and signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # ``nohup`` ignores it, and all children would inherit that
