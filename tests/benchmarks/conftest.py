"""litellm is imported beforehand, as for the flow's tests."""

from __future__ import annotations

from tests.pipeline.conftest import litellm

__all__ = ["litellm"]
