"""Which models a grant allows: exactly those that its names match, in which ``*`` stands for any text."""

from __future__ import annotations

from fnmatch import fnmatchcase

from hypothesis import given
from hypothesis import strategies as st

from tidemark.core.grants import Grant, Quota

NAMES = st.text("abc-/.*\n", max_size=8)


@given(st.lists(NAMES, max_size=3), st.text("abc-/.\n", max_size=8))
def test_a_model_is_allowed_if_a_name_matches_it(names: list[str], model: str) -> None:
    """As in ``model_list``; without names every model is."""
    grant = Grant("id", "tenant", tuple(names))
    assert grant.allows(model) == (not names or any(fnmatchcase(model, name) for name in names))


@given(NAMES)
def test_a_star_in_what_a_client_sends_is_a_character(model: str) -> None:
    """No client widens a grant."""
    assert not Grant("id", "tenant", ("a",)).allows(model + "*")


def test_a_quota_is_none_if_it_bounds_nothing() -> None:
    """Then a request asks nobody."""
    assert not Quota()
    assert all(Quota(**{name: 1}) for name in ("requests_per_minute", "tokens_per_day", "concurrent"))
