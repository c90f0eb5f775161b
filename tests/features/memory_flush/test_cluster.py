"""On a cluster the queue is in another slot than the conversations: all that is promised holds there too."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.features.memory_flush.test_memory_flush import CONFIG, arrived
from tests.request.conftest import benched
from tests.request.talk import history, user
from tests.store.conftest import cluster_url
from tidemark.upstream.litellm import load as load_litellm

__all__ = ["cluster_url"]


@pytest.fixture(scope="module", autouse=True)
def litellm() -> None:
    """Imported once and beforehand: pytest's filter of warnings is the whole process's, threads included."""
    load_litellm().result(60)


def test_what_leaves_is_queued_and_delivered_on_a_cluster(cluster_url: str, tmp_path: Path) -> None:
    """Note, entry, delivery; once."""
    with benched(cluster_url, tmp_path) as bench:
        client = bench.client("k", config=CONFIG)
        said = [*history(16), user("And now?")]
        assert client.chat(said).headers["x-tidemark-action"] == "compacted"
        (one,) = arrived(tmp_path, 1)
        assert one["messages"] == said[: one["last"]]
        assert client.chat(said).headers["x-tidemark-action"] == "reused"
        arrived(tmp_path, 1)
