"""litellm is imported beforehand, as for the flow's tests."""

from __future__ import annotations

from tests.request.conftest import litellm

__all__ = ["litellm"]
