"""The first part of a prompt that a client changed is named, and nothing else is an alarm."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tidemark.core.conversation.prompt_changes import PromptChange, SentPrompt, first_change


def _prompt(random: Random) -> SentPrompt:
    tools = tuple((b"name %d" % i, random.randbytes(8)) for i in range(random.randint(2, 6)))
    return SentPrompt(
        tools,
        tuple(random.randbytes(8) for _ in range(random.randint(1, 3))),
        tuple(random.randbytes(8) for _ in range(random.randint(3, 30))),
    )


@pytest.mark.parametrize("seed", range(100))
def test_a_talk_that_is_only_added_to_or_taken_back_is_no_alarm(seed: int) -> None:
    """Appended messages, dropped ones and another question in place of the newest ones change nothing that stays."""
    random = Random(seed)
    sent = _prompt(random)
    kept = sent.messages[: random.randrange(len(sent.messages))]
    assert first_change(sent, sent) is None
    assert first_change(sent, replace(sent, messages=(*sent.messages, b"more"))) is None
    assert first_change(sent, replace(sent, messages=kept)) is None
    assert first_change(sent, replace(sent, messages=(*kept, b"another question"))) is None


@pytest.mark.parametrize("seed", range(100))
def test_one_changed_part_is_named_exactly(seed: int) -> None:
    """Whatever follows it, the place of the one changed element is the answer."""
    random = Random(seed)
    sent = _prompt(random)
    place = random.randrange(len(sent.messages) - 1)
    edited = (*sent.messages[:place], b"edited", *sent.messages[place + 1 :], b"more")
    assert first_change(sent, replace(sent, messages=edited)) == PromptChange("message", place)
    place = random.randrange(len(sent.systems))
    systems = (*sent.systems[:place], b"a clock", *sent.systems[place + 1 :])
    assert first_change(sent, replace(sent, systems=systems)) == PromptChange("system", place)
    place = random.randrange(len(sent.tools))
    before, tool, after = sent.tools[:place], sent.tools[place], sent.tools[place + 1 :]
    changes = {
        "changed": (*before, (tool[0], b"other"), *after),
        "added": (*before, (b"new", b"new"), tool, *after),
        "removed": (*before, *after),
    }
    for change, tools in changes.items():
        assert first_change(sent, replace(sent, tools=tools)) == PromptChange("tools", place, change)  # type: ignore[arg-type]
    reversed_tools = replace(sent, tools=sent.tools[::-1])
    assert first_change(sent, reversed_tools) == PromptChange("tools", 0, "order")


def test_what_stands_first_is_named_first() -> None:
    """Tools stand before system messages, and those before all others, as providers cache them."""
    sent = SentPrompt(((b"a", b"1"),), (b"s",), (b"m", b"n"))
    now = SentPrompt(((b"a", b"2"),), (b"t",), (b"x", b"n"))
    assert first_change(sent, now) == PromptChange("tools", 0, "changed")
    assert first_change(sent, replace(now, tools=sent.tools)) == PromptChange("system", 0)


def test_words_that_are_said_again_after_a_rewind_are_no_alarm() -> None:
    """A person goes back, asks something else and says "go on" again: nothing that stays was changed."""
    sent = SentPrompt((), (), (b"question", b"answer", b"go on", b"more"))
    other = replace(sent, messages=(b"another", b"its answer", b"and", b"further", b"go on", b"its end"))
    assert first_change(sent, other) is None
    aligned = replace(sent, messages=(b"another", b"its answer", b"go on", b"its end"))
    assert first_change(sent, aligned) is None


def test_a_message_that_was_put_in_is_named() -> None:
    """The messages after it stay, and stand one place later."""
    sent = SentPrompt((), (), (b"question", b"answer", b"go on", b"more"))
    now = replace(sent, messages=(b"question", b"put in", b"answer", b"go on", b"more"))
    assert first_change(sent, now) == PromptChange("message", 1)
