"""The bench of the flow's tests, for tests through real clients and the real command."""

from __future__ import annotations

import pytest

from tests.request.conftest import store_url
from tidemark.upstream.litellm import load

__all__ = ["store_url"]


@pytest.fixture(scope="session")
def imported_litellm() -> None:
    """For tests in whose process litellm is imported: beforehand, since pytest's filter of warnings is its own."""
    load().result(60)
