"""Epochs: which messages are questions, and how the bound is shared among them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.core.histories import conversations, message
from tidemark.core.conversation.messages import Message
from tidemark.core.recall.epoch import LEAST_SHARE_TOKENS, EpochRecall, RecalledText, question_position, questions


def ask(text: str) -> Message:
    """A user's message."""
    return message(role="user", content=text)


def answer(text: str) -> Message:
    """An assistant's message."""
    return message(role="assistant", content=text)


def call(one: str) -> Message:
    """An assistant that calls a tool."""
    calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    return message(role="assistant", content=None, tool_calls=calls)


def result(one: str) -> Message:
    """What a tool gave."""
    return message(role="tool", tool_call_id=one, content=f"result {one}")


def test_the_question_is_the_newest_user_message_before_the_steps_of_its_turn() -> None:
    """Calls, results and a client's notes to results come after it, so the recalled text stays where it was."""
    steps = [call("1"), result("1"), ask("<system-reminder>"), call("2"), result("2")]
    assert list(questions([ask("a?"), answer("A."), ask("b?"), *steps])) == [(2, 5), (0, 7)]


def test_without_a_user_message_there_is_no_question() -> None:
    """Nor is one without words a question, such as a picture."""
    assert not list(questions([answer("A.")]))
    assert not list(questions([ask(" "), answer("A.")]))
    assert question_position([answer("A.")]) == 0


def test_of_several_user_messages_in_a_row_the_last_is_the_question() -> None:
    """Clients send a context and a question as two messages."""
    talk = [ask("Some context."), ask("a?"), answer("A."), ask("b?")]
    assert [place for place, _ in questions(talk)] == [3, 1]


def test_system_messages_count_for_no_position() -> None:
    """The chain leaves them out, too."""
    system = message(role="system", content="Be brief.")
    talk = [system, ask("a?"), answer("A."), system, ask("b?"), system]
    assert list(questions(talk)) == [(4, 0), (1, 2)]
    assert question_position(talk) == 3


@given(conversations())
def test_a_question_stays_one_while_answers_and_questions_follow(talk: list[Message]) -> None:
    """So what was recalled for it is found again in every later request."""
    before = [place for place, _ in questions(talk)]
    after = [place for place, _ in questions([*talk, answer("A."), ask("And now?")])]
    assert after == [len(talk) + 1, *before]


@given(st.integers(0, 20_000), st.lists(st.floats(0, 1), max_size=30))
def test_each_question_has_a_share_of_its_own(bound: int, parts: list[float]) -> None:
    """However much earlier ones recalled; and while much is left, the first one leaves half of it for the next."""
    epoch, own = EpochRecall(), min(bound, LEAST_SHARE_TOKENS)
    for part in parts:
        share = epoch.share(bound)
        assert own <= share <= max((bound - epoch.tokens + 1) // 2, own)
        tokens = int(part * share)
        epoch = epoch.extended("recalled", RecalledText(1, ask("a?"), "", ask("a?"), tokens, (0,)))
