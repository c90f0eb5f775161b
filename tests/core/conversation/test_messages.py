"""Messages and digests: no two lists of pieces share a digest, and nobody changes a message."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import message
from tidemark.core.conversation.messages import digest_of


@given(st.lists(st.binary(max_size=4), max_size=4), st.lists(st.binary(max_size=4), max_size=4))
def test_two_lists_of_pieces_never_share_a_digest(one: list[bytes], other: list[bytes]) -> None:
    """Every piece is framed by its length, so that no boundary can be moved."""
    assert (digest_of(*one) == digest_of(*other)) == (one == other)


def test_nobody_changes_a_message() -> None:
    """Requests share what was parsed: the constructor alone reaches the slots."""
    said = message(role="user", content="a", name="ann")
    for one in fields(said):
        with pytest.raises(FrozenInstanceError):
            setattr(said, one.name, None)
    assert replace(said) == said != replace(said, name=None)
    assert {said: 1}[replace(said)] == 1
