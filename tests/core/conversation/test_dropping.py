"""What a request has dropped of an earlier one is told from the messages that stay."""

from __future__ import annotations

import pytest

from tidemark.core.conversation.dropping import Dropped, dropped_messages


def digests(text: str) -> list[bytes]:
    """One digest for each letter."""
    return [letter.encode() for letter in text]


@pytest.mark.parametrize(
    ("before", "now", "expected"),
    [
        ("abcdefgh", "abcdefghij", Dropped(0, 0)),  # it goes on
        ("abcdefgh", "cdefghij", Dropped(0, 2)),  # the oldest are gone
        ("abcdefgh", "abefghij", Dropped(2, 2)),  # all but the first ones
        ("abcdefgh", "cdefgXij", Dropped(0, 2)),  # and something else is new near the end
        ("abcdefgh", "efghij", Dropped(0, 4)),
        ("abcdefgh", "fghij", None),  # three in a row may be chance
        ("abcdefghijkl", "ijklmn", None),  # most are gone: it begins anew
        ("abcdefghijkl", "abcefghijklmn", None),  # a person deleted something in the middle
        ("abcdefghijkl", "abcdefhijklmn", Dropped(0, 0)),
        ("abcdNefgh", "abcdefNghij", Dropped(0, 0)),  # a note moves with the end
        ("abcdefgh", "stuvwxyz", None),
        ("abc", "bcde", None),
    ],
)
def test_the_messages_that_stay_show_what_is_gone(before: str, now: str, expected: Dropped | None) -> None:
    """The first messages are gone, or those behind the very first ones; anything else is no such client."""
    assert dropped_messages(digests(before), digests(now)) == expected


def test_what_a_summary_stands_for_must_be_the_same() -> None:
    """A message that was changed before the summary's end makes the summary useless, and one behind it does not."""
    before, now = digests("abcdefgh"), digests("cdefXhij")
    assert dropped_messages(before, now, 6) == Dropped(0, 2)
    assert dropped_messages(before, now, 7) is None


def test_a_client_that_has_dropped_messages_keeps_the_same_first_ones() -> None:
    """What it kept before tells where the next ones go, also if none goes this time."""
    assert dropped_messages(digests("abefghij"), digests("abghijkl"), head=2) == Dropped(2, 2)
    assert dropped_messages(digests("abefghij"), digests("abefghijkl"), head=2) == Dropped(2, 0)
    assert dropped_messages(digests("abefghij"), digests("Xbghijkl"), head=2) is None


def comparisons_of(size: int) -> int:
    """How often digests are compared in two talks of equal messages whose last ones differ."""
    count = 0

    class Digest(bytes):
        def __eq__(self, other: object) -> bool:
            nonlocal count
            count += 1
            return bytes(self) == other

        __hash__ = bytes.__hash__

    before, now = ([*(Digest(b"a") for _ in range(size - 1)), Digest(last)] for last in (b"b", b"c"))
    assert dropped_messages(before, now, size) is None
    return count


def test_equal_messages_take_no_more_than_their_number() -> None:
    """Twice as many take twice as long: nobody waits for a talk that says one thing again and again."""
    assert 1 < comparisons_of(800) / comparisons_of(400) < 3
