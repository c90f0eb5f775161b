"""Rules of receipts: nothing that was said is counted twice or forgotten, however many summaries follow each other."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.receipt import DETAIL_KINDS, Detail, KindCount, receipt_of, render_receipt

DETAILS = st.lists(
    st.builds(
        Detail, st.sampled_from(DETAIL_KINDS), st.text(max_size=5), st.sampled_from(["kept", "shortened", "dropped"])
    )
)


@given(DETAILS)
def test_each_detail_is_counted_once(details: list[Detail]) -> None:
    """Under its kind, as kept, shortened or dropped; a kind of which nothing was said is left out."""
    receipt = receipt_of(details)
    assert sum(count.total for count in receipt) == len(details)
    assert [count.kind for count in receipt] == [
        kind for kind in DETAIL_KINDS if kind in {each.kind for each in details}
    ]
    for count in receipt:
        assert count.verbatim_count + count.shortened_count + count.dropped_count == count.total
        assert min(count.verbatim_count, count.shortened_count, count.dropped_count) >= 0


@given(DETAILS, DETAILS)
def test_no_later_receipt_forgets_a_loss(earlier: list[Detail], later: list[Detail]) -> None:
    """What the previous summary had dropped stays dropped, beside what this one drops."""
    previous, alone = receipt_of(earlier), receipt_of(later)
    continued = receipt_of(later, previous)
    for kind in DETAIL_KINDS:
        losses = [
            sum(count.dropped_count for count in one if count.kind == kind) for one in (previous, alone, continued)
        ]
        assert losses[0] + losses[1] == losses[2]


def test_a_receipt_is_one_line() -> None:
    """A shortened detail is still there, so it counts as kept."""
    receipt = (KindCount("rules", 7, 6, 1), KindCount("identifiers", 60, 41))
    assert render_receipt(receipt) == "rules 7/7, identifiers 41/60"
    assert render_receipt(()) == ""
