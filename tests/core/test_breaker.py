"""Rules of the breaker: three strikes, a pause that doubles, one probe."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.breaker import CLOSED, FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS, STRIKES, Breaker


def opened(now: float = 0.0) -> Breaker:
    """After as many failures as it takes."""
    breaker = CLOSED
    for _ in range(STRIKES):
        assert breaker.admits(now)
        breaker = breaker.after_failure(now)
    return breaker


def test_three_failures_in_a_row_open_it() -> None:
    """And two do not, nor do three with a success between them."""
    assert CLOSED.after_failure(0).after_failure(0).admits(0)
    assert CLOSED.after_failure(0).after_failure(0).after_success().after_failure(0).admits(0)
    assert opened().state(1) == "open"
    assert not opened().admits(FIRST_PAUSE_SECONDS - 0.1)
    assert opened().seconds_left(1) == FIRST_PAUSE_SECONDS - 1


def test_after_the_pause_one_probe_decides() -> None:
    """Nobody else asks while it is out; a success closes the breaker, a failure doubles the pause."""
    breaker = opened()
    assert breaker.state(6) == "half_open"
    probing = breaker.with_probe(6, 30)
    assert not probing.admits(7)
    assert probing.state(7) == "half_open"
    assert probing.after_success() == CLOSED
    again = probing.after_failure(10)
    assert again.seconds_left(10) == 2 * FIRST_PAUSE_SECONDS
    assert again.state(11) == "open"


def test_a_probe_that_never_comes_back_is_followed_by_another() -> None:
    """Its process may have died."""
    assert opened().with_probe(6, 30).admits(36)


def test_failures_of_those_that_were_asked_before_do_not_prolong_the_pause() -> None:
    """Sixteen requests that fail at the same instant are one outage."""
    breaker = opened()
    assert breaker.after_failure(0.1) == breaker


@given(st.lists(st.sampled_from(["fails", "succeeds", "waits"]), max_size=60))
def test_a_pause_is_never_longer_than_the_longest_and_always_ends(events: list[str]) -> None:
    """Whatever happens, somebody may ask again within five minutes."""
    breaker, now = CLOSED, 0.0
    for event in events:
        if event == "waits":
            now += 7.0
        elif breaker.admits(now):
            breaker = breaker.with_probe(now, 1.0)
            breaker = breaker.after_failure(now) if event == "fails" else breaker.after_success()
        assert 0 <= breaker.seconds_left(now) <= LONGEST_PAUSE_SECONDS
        assert breaker.admits(now + breaker.seconds_left(now))
