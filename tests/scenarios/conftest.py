"""The bench of the flow's tests: each source's scenarios run through a real Tidemark with that source's preset."""

from __future__ import annotations

from tests.request.conftest import bench, litellm, store_url

__all__ = ["bench", "litellm", "store_url"]
