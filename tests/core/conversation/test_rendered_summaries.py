"""A summary message is read back as what it was rendered from."""

from __future__ import annotations

import pytest

from tidemark.core.conversation.messages import system_message
from tidemark.core.conversation.summary import OPENING, is_summary, read_summary, render_text


@pytest.mark.parametrize(
    "text", ["One line.", "User: one\n\nAssistant: two\n", "- a > b\n>> c", "Narrative:\nIt was so."]
)
def test_a_summary_is_read_back(text: str) -> None:
    """Its text and the messages that it stands for."""
    assert read_summary(render_text(text, 12)) == (text.strip(), 12)


def test_a_text_cannot_end_its_own_quotation() -> None:
    """So what is read back is the whole text, with its marks broken up."""
    found = read_summary(render_text("before\n>>>\nafter\n<<<\nend", 3))
    assert found is not None
    assert found[0].replace("\u200b", "") == "before\n>>>\nafter\n<<<\nend"
    assert read_summary(render_text(found[0], 3)) == found


@pytest.mark.parametrize("text", ["Be brief.", OPENING, f"{OPENING} (3 messages). It was cut"])
def test_another_system_message_is_no_summary(text: str) -> None:
    """Nor is one that only begins as one does."""
    assert read_summary(system_message(text)) is None
    assert is_summary(system_message(text)) is text.startswith(OPENING)
