"""Every preset as it is used: with the next summary made in the background, which no source has."""

from __future__ import annotations

import pytest

from proxy.config.sections import Preset
from tests.pipeline.conftest import Bench
from tests.scenarios.talks import summaries, talk_with, told

MOST_KEPT_SHARE = 0.75
"""Of the limit: what stays after a compaction, with what came since the summary was made."""


@pytest.mark.parametrize(("preset", "kept"), [("library", 1), ("agent", 10), ("chat-app", 1), ("rule-based", 1)])
def test_a_long_conversation_keeps_what_the_preset_promises(
    bench: Bench, store_url: str, request: pytest.FixtureRequest, preset: Preset, kept: int
) -> None:
    """Whenever a summary was made: at least the promised messages stay, it fits, and it is well below the mark."""
    talk = talk_with(bench, store_url, request.node.nodeid, preset, window=4000, prepare=0.7)
    for _ in range(3):
        got = talk.until("compacted")
        gone = told(got, "summarized-messages")
        assert len(summaries(talk.sent)) == 1
        assert talk.sent[1:] == talk.said[gone:-1]
        assert len(talk.sent) - 1 >= kept
        assert told(got, "tokens-after") < MOST_KEPT_SHARE * told(got, "limit")
