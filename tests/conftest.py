"""What holds for all tests: how many examples are drawn."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("deep", max_examples=10_000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""``make test-deep``: of those tests that leave their number to the profile."""
