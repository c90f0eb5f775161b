"""What only a model's text names is reported: exact identifiers, paths and links, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.request.faithful import summaries
from tests.request.faithful import talk as talk_named
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.summary import SummaryText
from tidemark.core.receipt import KindCount, render_receipt
from tidemark.summarizers.receipts import ReceiptWriter
from tidemark.summarizers.unsupported import unsupported_details

Talk = Callable[..., tuple[Message, ...]]


def unsupported(text: str, messages: tuple[Message, ...], previous: str = "") -> list[str]:
    """Return the values that are reported."""
    return [detail.text for detail in unsupported_details(text, messages, previous)]


def test_values_that_nobody_said_are_named(talk: Talk) -> None:
    """An identifier with a slip, a path and a link; what was said in any case or inside a call is none."""
    call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": '{"path": "src/shop/money.py"}'}}
    messages = talk("Ticket SHOP-4711 is at https://example.org/t/4711.", {"role": "assistant", "tool_calls": [call]})
    text = "SHOP-4711 and SHOP-4771: money.py, src/shop/money.py and src/shop/cart.py; https://example.org/t/9."
    assert sorted(unsupported(text, messages)) == ["SHOP-4771", "https://example.org/t/9", "src/shop/cart.py"]
    assert unsupported(text, messages, "Files: src/shop/cart.py\nLinks: https://example.org/t/9\nSHOP-4771") == []


@pytest.mark.parametrize(
    "statement",
    [
        "PostgreSQL v16 runs there since v2.3.1 of the tool.",
        "The window is 2 to 4 a.m. CET.",
        "It takes 0.34 TB, 2.5 times as fast, about 90 s.",
        "No decision was made about a rollback path.",
    ],
)
def test_other_ways_to_say_a_value_are_not_reported(talk: Talk, statement: str) -> None:
    """A version with its v, other units, clocks and calculated figures prove nothing."""
    messages = talk("PostgreSQL 16 with version 2.3.1 of the tool, 340 GB, 02:00 to 04:00, 95 against 38 seconds.")
    assert unsupported(statement, messages) == []


@pytest.mark.anyio
async def test_a_receipt_counts_and_names_them(talk: Talk) -> None:
    """For a model's text only: what the deterministic strategy writes was said."""
    said = talk("Ticket ABC-1 is open. Never close it.")
    written = SummaryText("Never close ticket ABC-1 or ABC-2.", "llm", statements=20, statements_left_out=3)
    receipt = await ReceiptWriter().receipt(said, None, written)
    assert KindCount("identifiers", 1, 1, 0, ("ABC-2",)) in receipt
    assert KindCount("statements", 20, 17) in receipt
    assert render_receipt(receipt).endswith("statements 17/20, unsupported 1")
    assert "unsupported" not in render_receipt(
        await ReceiptWriter().receipt(said, None, SummaryText(written.text, "extractive"))
    )


def test_faithful_summaries_raise_hardly_an_alarm(talk: Talk) -> None:
    """Of 50 of them, whose authors had never seen the rules: at most one statement of a hundred."""
    alarms, statements = [], 0
    for summary in summaries():
        messages = talk(*talk_named(summary.talk)["messages"])
        statements += len(summary.statements)
        alarms += [(summary.talk, value) for value in unsupported(summary.text, messages)]
    assert len(alarms) <= 0.01 * statements, alarms
