"""The bench of the flow's tests, for tests through real clients and the real command."""

from tests.flow.conftest import litellm, store_url

__all__ = ["litellm", "store_url"]
