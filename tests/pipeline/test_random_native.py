"""Random talks with ``strategy: native``, before an API that writes summaries and refuses what the real one refuses.

The talks are those of `test_random_thinking`. ``TIDEMARK_NATIVE_TALKS=from:to`` plays other seeds.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.conftest import Bench, Client, benched
from tests.pipeline.test_native_compaction import before_summarizer
from tests.pipeline.test_random_thinking import CONFIG, RandomTalk, says
from tests.providers.anthropic_compaction import CompactingAnthropic

FIRST, LAST = map(int, os.environ.get("TIDEMARK_NATIVE_TALKS", "0:30").split(":"))
NATIVE = CONFIG.replace("strategy: extractive", "strategy: native")


@pytest.fixture(scope="module")
def workers(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Bench, list[Client]]]:
    """Two workers of one store before the API."""
    folder: Path = tmp_path_factory.mktemp("random")
    with benched(store_url, folder) as bench:
        yield bench, [bench.client("random native", config=NATIVE, window=1600) for _ in range(2)]


@pytest.mark.parametrize("seed", range(FIRST, LAST))
def test_no_random_talk_is_refused(workers: tuple[Bench, list[Client]], seed: int) -> None:
    """Neither a block of the provider's nor the thinking behind it stands in a wrong place."""
    bench, clients = workers
    api = CompactingAnthropic(say=says)
    bench.upstream.script = before_summarizer(api)
    talk = RandomTalk(seed + 50_000, clients)
    talk.play()
    bench.settle()  # a summary that is prepared belongs to this API, too
    assert api.refusals == []


def test_the_random_talks_have_summaries_of_the_provider(workers: tuple[Bench, list[Client]]) -> None:
    """They are compacted by it, again and again, and most requests behind a summary have its block."""
    bench, clients = workers
    api = CompactingAnthropic(say=says)
    bench.upstream.script = before_summarizer(api)
    del bench.upstream.received[:]
    for seed in range(LAST, LAST + 6):
        RandomTalk(seed + 50_000, clients).play()
    bench.settle()
    again = [body for body in api.compactions if '"compaction"' in str(body["messages"][0]).replace("'", '"')]
    assert again
    carrying = [received for received in bench.upstream.received if b'"type": "compaction"' in received.body]
    assert len(carrying) > len(api.compactions)
