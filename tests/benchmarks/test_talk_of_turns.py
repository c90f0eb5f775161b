"""The talk of ``make bench-turns``: few summaries, and most of what is forwarded stays from turn to turn."""

from __future__ import annotations

from benchmarks.turns import TURNS, talk


def test_a_talk_past_its_window_is_summarized_twice_at_most_and_stays() -> None:
    """Ten of its turns are past the window; but for two of them every forwarded message stays."""
    done = talk(prepare=1, thinking_seconds=0)
    assert done.calls == done.waits <= 2
    assert done.share >= 0.85
    assert done.could > 10 * TURNS
