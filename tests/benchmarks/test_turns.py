"""The talk of ``make bench-turns``: few summaries, and most of what is forwarded stays from turn to turn."""

from __future__ import annotations

from benchmarks.turns import TURNS, talk


def test_a_talk_past_its_window_is_summarized_once_and_stays() -> None:
    """One compaction, its transcript read in two pieces; but for that turn every forwarded message stays."""
    done = talk(prepare=1, thinking_seconds=0)
    assert done.waits == 1
    assert done.calls <= 2
    assert done.share >= 0.9
    assert done.could > 10 * TURNS
