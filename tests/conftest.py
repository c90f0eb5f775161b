"""What holds for all tests: how many examples are drawn, and that an interrupt reaches what they start."""

from __future__ import annotations

import signal

from hypothesis import HealthCheck, settings

settings.register_profile("daily", deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""On a busy machine any example may take long, and how long is no rule that a test states."""
settings.load_profile("daily")
settings.register_profile("deep", max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""``make test-deep``: of those tests that leave their number to the profile."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what goes on in the background this way, and all children would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
