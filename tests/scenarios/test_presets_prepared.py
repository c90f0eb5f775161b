"""Every preset as it is used: with the next summary made in the background, which no source has."""

from __future__ import annotations

import pytest

from tests.request.conftest import Bench
from tests.scenarios.talks import Talk, number_in, summaries, talk_with
from tidemark.config.sections import Preset

PREPARE = 0.7
"""Tidemark's own default."""
MOST_KEPT_SHARE = 0.75
"""Of the limit: what stays after a compaction, with what came since the summary was made."""


@pytest.mark.parametrize(("preset", "kept"), [("library", 1), ("agent", 10), ("chat-app", 1), ("rule-based", 1)])
def test_a_long_conversation_keeps_what_the_preset_promises(
    bench: Bench, store_url: str, request: pytest.FixtureRequest, preset: Preset, kept: int
) -> None:
    """Whenever a summary was made: at least the promised messages stay, it fits, and it is well below the mark."""
    talk = talk_with(bench, store_url, request.node.nodeid, preset, window=4000, prepare=0.7)
    for _ in range(3):
        got = talk.until("compacted", pause=bench.settle)  # a machine under load prepares late
        gone = number_in(got, "summarized-messages")
        assert len(summaries(talk.sent)) == 1
        assert talk.sent[1:] == talk.said[gone:-1]
        assert len(talk.sent) - 1 >= kept
        assert number_in(got, "tokens-after") < MOST_KEPT_SHARE * number_in(got, "limit")


def kept_beside(talk: Talk, bench: Bench, times: int = 3) -> list[list[dict[str, str]]]:
    """Talk on through some compactions; what stood beside the summary in each. All were prepared: nobody waited."""
    kept: list[list[dict[str, str]]] = []
    while len(kept) < times:
        calls = len(talk.calls)
        got = talk.ask()
        if got.headers["x-tidemark-action"] == "compacted":
            assert len(talk.calls) == calls, "the summary was there"
            kept.append(talk.sent[1:])
        bench.settle()  # as a person does who reads the answer before the next question
    return kept


def test_fr_1_3_2_prepared_in_the_background_the_retention_is_1000_tokens(
    bench: Bench, store_url: str, request: pytest.FixtureRequest
) -> None:
    """FR-1.3: ``chat-app`` keeps its 1,000 tokens and no more than two turns beside; a half of it is wide enough."""
    talk = talk_with(bench, store_url, request.node.nodeid, "chat-app", window=12_000, prepare=PREPARE)
    sizes = [sum(talk.count(one) - 3 for one in messages) for messages in kept_beside(talk, bench)]
    assert min(sizes) <= 1500
    assert all(size > 900 for size in sizes)
    made = talk.stored(talk.ask()).summaries
    assert [one.previous for one in made] == [None, *(one.prefix for one in made[:-1])], "a chain of those in use"


def test_s2_2_prepared_in_the_background_the_last_ten_messages_stay(
    bench: Bench, store_url: str, request: pytest.FixtureRequest
) -> None:
    """S2-2: ``agent`` keeps ten, and no more than two turns beside."""
    talk = talk_with(bench, store_url, request.node.nodeid, "agent", window=8000, prepare=PREPARE)
    counts = [len(messages) for messages in kept_beside(talk, bench)]
    assert min(counts) <= 14
    assert all(count >= 10 for count in counts)


def test_s4_prepared_in_the_background_the_newest_messages_stay(
    bench: Bench, store_url: str, request: pytest.FixtureRequest
) -> None:
    """S4: ``rule-based`` retains no tokens; what stays is the newest message and what came since the last look."""
    more = "threshold: 6000"
    talk = talk_with(bench, store_url, request.node.nodeid, "rule-based", more, window=12_000, prepare=PREPARE)
    counts = [len(messages) for messages in kept_beside(talk, bench)]
    assert min(counts) <= 6


def test_s4_retention_of_nothing_holds_in_a_large_window_too(
    bench: Bench, store_url: str, request: pytest.FixtureRequest
) -> None:
    """S4: without preparation the newest message alone stays sure; no share of the window is retained."""
    talk = talk_with(bench, store_url, request.node.nodeid, "rule-based", "threshold: 3000", window=12_000)
    talk.until("compacted")
    assert talk.sent[1:] == talk.said[-2:-1]
