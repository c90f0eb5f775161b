"""Features are tested through a whole server, as requests are."""

from __future__ import annotations

from tests.request.conftest import bench, client, litellm, store_url

__all__ = ["bench", "client", "litellm", "store_url"]
