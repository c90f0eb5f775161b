"""Random talks with ``strategy: native``, before an API that writes summaries and refuses what the real one refuses.

The talks are those of `test_random_thinking`, and ``TIDEMARK_TALKS=from:to`` plays other seeds.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.providers.anthropic_compaction import CompactingAnthropic
from tests.request.compaction.test_native_compaction import PROSE
from tests.request.dialects.test_random_thinking import CONFIG, MessagesTalk, says
from tests.request.random_talks import Figures, Harbour, moored, seeds
from tests.support.answers import Answer, Received
from tests.support.scripted import whole

NATIVE = CONFIG.replace("strategy: extractive", "strategy: native")


class SummarizingAnthropic(CompactingAnthropic):
    """The API, and a summarizer for `hybrid` at the same address."""

    def __call__(self, received: Received) -> Answer:
        """Answer any request."""
        return whole(PROSE) if received.path.endswith("/chat/completions") else super().__call__(received)


class NativeTalk(MessagesTalk):
    """A talk whose upstream is asked for summaries, too."""

    def compare(self, answer: httpx.Response) -> None:
        """Find what changed in the requests for messages."""
        entries = self.watch.entries
        entries[:] = [one for one in entries if one[0].path.endswith("/messages") and "compaction" not in one[0].json]
        super().compare(answer)


@pytest.fixture(scope="module")
def harbour(store_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harbour]:
    """Two workers of one store before the API."""
    folder: Path = tmp_path_factory.mktemp("random")
    with moored(store_url, folder, NATIVE) as made:
        yield made


@pytest.mark.random
@pytest.mark.timeout(7200)
def test_random_talks_are_refused_nothing_that_they_are_not_refused_straight(harbour: Harbour) -> None:
    """No block or thinking stands in a wrong place, and each changed prefix has a named cause."""
    api = SummarizingAnthropic(say=says)  # one for all: a summary may be prepared beyond the end of its talk
    figures = Figures()
    for seed in seeds(6):
        figures.play(NativeTalk, seed + 50_000, harbour, lambda: api)
    print(figures)
    assert figures.faults == []
    assert set(figures.refusals) <= set(figures.straight_refusals)
    assert len(api.compactions) > 6
