"""Quotation: exchanges stay whole, the budget holds, and nothing inside closes the frame."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import conversations, message, size
from tidemark.core.conversation.messages import Message
from tidemark.core.recall.quotation import CLOSING, OPENING, chosen, exchange_of, quoted


def ask(text: str) -> Message:
    """A user's message."""
    return message(role="user", content=text)


def answer(text: str) -> Message:
    """An assistant's message."""
    return message(role="assistant", content=text)


def call(*ids: str) -> Message:
    """An assistant that calls a tool for each id."""
    calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
    return message(role="assistant", content=None, tool_calls=calls)


def result(one: str) -> Message:
    """What a tool gave."""
    return message(role="tool", tool_call_id=one, content=f"result {one}")


TALK = [ask("a?"), answer("A."), ask("b?"), call("1", "2"), result("1"), result("2"), answer("B."), answer("More.")]


def test_a_question_comes_with_its_answer() -> None:
    """Each of the two brings the other."""
    assert exchange_of(TALK, 0) == exchange_of(TALK, 1) == (0, 2)


def test_calls_come_with_all_their_results() -> None:
    """A result alone says nothing of what was asked."""
    assert {exchange_of(TALK, place) for place in (3, 4, 5)} == {(3, 6)}


def test_other_messages_come_alone() -> None:
    """An answer after results, and a second answer, belong to no single message."""
    assert [exchange_of(TALK, place) for place in (2, 6, 7)] == [(2, 3), (6, 7), (7, 8)]


@given(conversations(), st.integers(0, 3000), st.randoms(use_true_random=False))
def test_what_is_chosen_fits_and_is_whole(talk: list[Message], budget: int, order: object) -> None:
    """Nothing comes twice, and no result comes without the message before it."""
    messages = [one for one in talk if not one.is_system]
    places = list(range(len(messages)))
    order.shuffle(places)  # type: ignore[attr-defined]
    tokens = [size(one) for one in messages]
    exchanges = chosen(messages, tokens, places, budget)
    taken = [place for exchange in exchanges for place in exchange.places]
    assert len(set(taken)) == len(taken)
    assert sum(tokens[place] for place in taken) <= budget
    assert all(place - 1 in taken for place in taken if place and messages[place].role == "tool")


def test_what_the_request_has_already_is_not_repeated() -> None:
    """A message that stands behind the cut and also after it is in the context."""
    messages = [ask("a?"), answer("A."), ask("b?")]
    exchanges = chosen(messages, [9, 9, 9], [2, 0], 200, in_context={messages[2].digest, messages[1].digest})
    assert [exchange.places for exchange in exchanges] == [(0,)]


def test_originals_stand_in_the_order_of_the_conversation() -> None:
    """Whatever their ranks."""
    exchanges = chosen(TALK, [9] * len(TALK), [7, 0], 200)
    text = quoted(TALK, exchanges)
    assert text.startswith(OPENING)
    assert text.endswith(CLOSING)
    assert text.index("a?") < text.index("A.") < text.index("More.")


@given(st.lists(st.text(alphabet="<>a\n", max_size=12), min_size=1, max_size=4))
def test_no_original_closes_its_frame_or_opens_another(texts: list[str]) -> None:
    """The frame's marks are as many as there are originals, whatever those contain."""
    messages = [ask(text) for text in texts]
    exchanges = chosen(messages, [9] * len(messages), range(len(messages)), 1000)
    text = quoted(messages, exchanges)
    assert text.count("<<<") == text.count(">>>") == len(messages)
