"""The plan's rules one by one, named by the requirement they come from."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.histories import conversations, message, pairs
from tests.support.examples import examples
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.summary import PrefixSummary, SummaryRecipe
from tidemark.core.planning.budget import Budget, CompactionPolicy
from tidemark.core.planning.cuts import open_cuts
from tidemark.core.planning.plan import plan
from tidemark.core.planning.situation import CannotFit, Compact, Mode, NoCompaction, PlanInput, ReuseSummary


def chat(count: int) -> list[Message]:
    """A plain chat: user and assistant in turn, a user's message last when ``count`` is odd."""
    return [message(role="user" if i % 2 == 0 else "assistant", content=f"m{i}") for i in range(count)]


def budget(**marks: int) -> Budget:
    """A budget of a window of 10,000 tokens, but for the given marks."""
    plain: dict[str, Any] = {
        "window": 10_000,
        "limit": 9000,
        "high_water": 8000,
        "prepare_mark": 5600,
        "low_water": 4000,
        "retention": 1000,
        "max_summary": 256,
        "min_tokens": 2000,
    }
    return Budget(**(plain | marks))


def situation(
    tokens: list[int],
    marks: Budget,
    *,
    mode: Mode = "auto",
    messages: list[Message] | None = None,
    summary: PrefixSummary | None = None,
    policy: CompactionPolicy | None = None,
) -> PlanInput:
    """A situation whose messages count as ``tokens`` says."""
    messages = chat(len(tokens)) if messages is None else messages
    known = 100 if summary else 0
    return PlanInput(messages, tokens, 3, marks, policy or CompactionPolicy(), mode, summary, known)


def summary_of(covered: int) -> PrefixSummary:
    """A stored summary."""
    return PrefixSummary(b"p", covered, "text", SummaryRecipe("llm", "general", 1), "llm", "automatic", 0.0)


def test_fr_1_3_3_the_most_messages_that_fit_the_retention_stay() -> None:
    """FR-1.3.3's own example: three messages of 900 tokens together stay, a fourth would make it 1100."""
    planned = plan(situation([8000, 200, 300, 300, 300], budget(retention=1000)))
    assert isinstance(planned, Compact)
    assert planned.covered == 2


def test_fr_1_2_1_nothing_is_compacted_below_the_high_water() -> None:
    """FR-1.2.1: compaction is due when the count passes the threshold, not before."""
    at_mark = plan(situation([7897, 50, 50], budget()))
    assert at_mark == NoCompaction("fits", 8000)
    assert isinstance(plan(situation([7898, 50, 50], budget())), Compact)


def test_fr_5_4_1_nothing_is_compacted_of_itself_below_the_minimum() -> None:
    """FR-5.4.1: a small conversation is left alone even where the threshold is smaller still."""
    planned = plan(situation([900, 900, 50], budget(high_water=1000)))
    assert planned == NoCompaction("below_minimum", 1853)


def test_fr_5_4_2_force_compacts_below_the_minimum() -> None:
    """FR-5.4.2: by hand it is allowed."""
    planned = plan(situation([900, 900, 50], budget(), mode="force"))
    assert isinstance(planned, Compact)


def test_fr_2_2_1_by_hand_nothing_is_compacted_that_the_retention_keeps() -> None:
    """FR-2.2.1: a compaction by hand keeps what an automatic one would keep, and the outcome has a name."""
    assert plan(situation([50, 60, 70, 80, 90], budget(), mode="force")) == NoCompaction("retained", 353)
    once = plan(situation([900, 600, 300, 90], budget(), mode="force"))
    assert isinstance(once, Compact)
    assert once.covered == 1


def test_fr_2_2_1_by_hand_again_keeps_the_same_messages() -> None:
    """FR-2.2.1: what stays does not depend on how often it was asked for."""
    again = situation([900, 600, 300, 90], budget(), mode="force", summary=summary_of(1))
    assert plan(again) == ReuseSummary(summary_of(1), 1093, "retained")


def test_s2_c4_by_hand_the_floor_in_messages_stays() -> None:
    """S2-C4: nothing of the last ten goes, whether three or none stand before them."""
    policy, marks = CompactionPolicy(keep_last_messages=10), budget(retention=0)
    first = plan(situation([300] * 13, marks, policy=policy, mode="force"))
    assert isinstance(first, Compact)
    assert first.covered == 3
    given_case = situation([300] * 13, marks, policy=policy, mode="force", summary=summary_of(3))
    assert plan(given_case) == ReuseSummary(summary_of(3), 3103, "retained")
    assert plan(situation([300] * 10, marks, policy=policy, mode="force")) == NoCompaction("retained", 3003)


def test_fr_2_2_2_by_hand_the_retention_goes_before_the_low_water() -> None:
    """FR-2.2.2: who asks for 5,000 tokens keeps the most whole messages within them, though the low water is 3,600."""
    planned = plan(situation([600] * 12, budget(retention=5000), mode="force"))
    assert isinstance(planned, Compact)
    assert planned.covered == 4


def test_by_hand_over_the_limit_the_retention_gives_way() -> None:
    """FR-5.3.1: what cannot be sent as it is is brought within the limit, as it would be without asking."""
    planned = plan(situation([3000, 3000, 3000, 50], budget(retention=9000), mode="force"))
    assert isinstance(planned, Compact)
    assert planned.rest_tokens + planned.max_summary_tokens <= 8000


def test_force_with_a_newest_turn_of_calls_compacts_what_is_before_it() -> None:
    """The newest messages that belong together stay, although they are more than the retention."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = [*chat(2), message(role="assistant", tool_calls=[call]), message(role="tool", tool_call_id="a", content="x")]
    planned = plan(situation([300, 300, 200, 200], budget(retention=100), mode="force", messages=said))
    assert isinstance(planned, Compact)
    assert planned.covered == 2


def test_force_with_one_message_says_that_there_is_nothing_to_summarize() -> None:
    """The newest message is never summarized away, not even by force."""
    assert plan(situation([50], budget(), mode="force")) == NoCompaction("nothing_to_summarize", 53)


def test_s2_the_last_messages_stay_where_a_floor_is_set() -> None:
    """S2: ``keep_last_messages`` keeps that many although they are more than the retention."""
    policy = CompactionPolicy(keep_last_messages=4)
    planned = plan(situation([3000, 3000, 500, 500, 500, 500, 500], budget(retention=100), policy=policy))
    assert isinstance(planned, Compact)
    assert planned.covered == 3


def test_s2_the_floor_in_messages_goes_before_the_low_water() -> None:
    """S2, "always keep last N": what is kept for it may leave the request above the low water."""
    policy = CompactionPolicy(keep_last_messages=4)
    planned = plan(situation([2500, 100, 1500, 1500, 1500, 1000], budget(), policy=policy))
    assert isinstance(planned, Compact)
    assert planned.covered == 2


def test_s2_a_floor_within_a_turn_of_calls_keeps_the_whole_turn() -> None:
    """S2 would cut the tenth message from the end off its call; here more of them stay."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    said = [
        *chat(2),
        message(role="assistant", tool_calls=[call]),
        message(role="tool", tool_call_id="a", content="x"),
        *chat(3),
    ]
    policy = CompactionPolicy(keep_last_messages=4)
    planned = plan(situation([5000, 3000, 100, 100, 50, 50, 50], budget(retention=0), messages=said, policy=policy))
    assert isinstance(planned, Compact)
    assert planned.covered == 2, "three would part the result from its call, four would keep three"


def test_s2_nothing_but_the_floor_is_left_alone_until_it_cannot_fit() -> None:
    """S2: with nothing before the last N there is nothing to summarize; over the limit the floor gives way."""
    policy = CompactionPolicy(keep_last_messages=4)
    below = situation([4000, 3000, 1000, 500], budget(), policy=policy)
    assert plan(below) == NoCompaction("nothing_to_summarize", 8503)
    assert isinstance(plan(situation([4000, 3000, 1000, 5000], budget(), policy=policy)), Compact)


def test_s4_few_messages_are_left_alone_where_a_minimum_is_set() -> None:
    """S4: a minimum number of messages before it kicks in."""
    policy = CompactionPolicy(min_messages=10)
    assert plan(situation([7000, 1000, 500], budget(), policy=policy)) == NoCompaction("below_minimum", 8503)


def test_a_small_gain_is_not_worth_a_new_prefix() -> None:
    """FIELD.md: a compaction that frees less than ``min_gain`` would be due again at once."""
    planned = plan(situation([900, 7600], budget(), messages=chat(2)))
    assert planned == NoCompaction("small_gain", 8503)


def test_what_is_over_the_limit_is_compacted_however_small_the_gain() -> None:
    """Promise 4 goes before the minimal gain: what would overflow must shrink."""
    planned = plan(situation([600, 8600], budget(), messages=chat(2)))
    assert isinstance(planned, Compact)


def test_fr_5_3_1_the_retention_shrinks_before_a_request_is_refused() -> None:
    """FR-5.3.1: where all retained messages do not fit, fewer of them stay."""
    planned = plan(situation([5000, 3000, 3000, 5000], budget(retention=9000)))
    assert isinstance(planned, Compact)
    assert planned.rest_tokens + planned.max_summary_tokens <= 9000


def test_a_newest_message_over_the_limit_is_refused_with_the_numbers() -> None:
    """Promise 4: never a silent overflow."""
    planned = plan(situation([100, 100, 9500], budget()))
    assert isinstance(planned, CannotFit)
    assert planned.limit == 9000
    assert planned.tokens > 9000


def test_a_stored_summary_is_used_again_and_again() -> None:
    """FR-2.4.1: once compacted, the conversation stays compacted, below the high water too."""
    planned = plan(situation([500, 500, 500, 500, 500], budget(), summary=summary_of(2)))
    assert isinstance(planned, ReuseSummary)
    assert planned.tokens == 3 + 100 + 1500


def test_fr_1_4_2_the_next_summary_takes_in_the_one_before() -> None:
    """FR-1.4.2: previous summary and the messages since, no message twice."""
    planned = plan(situation([500, 500, 4000, 4000, 500], budget(), summary=summary_of(2)))
    assert isinstance(planned, Compact)
    assert planned.previous == summary_of(2)
    assert [one.text for one in planned.messages] == ["m2", "m3"]
    assert planned.covered == 4


@pytest.mark.parametrize("covered", [5, 6])
def test_a_summary_that_covers_the_newest_message_is_not_used(covered: int) -> None:
    """A rewind into the summarized part: the newest message must be seen as it is."""
    planned = plan(situation([500] * 5, budget(), summary=summary_of(covered)))
    assert planned == NoCompaction("fits", 2503)


def test_system_messages_inside_the_prefix_go_into_the_summary_only_when_they_have_no_room() -> None:
    """Promise 2: kept verbatim as long as they fit; the oldest give way first."""
    said = [message(role="user", content="a")]
    said += [message(role="system", content=f"reminder {i}") for i in range(4)]
    said += [message(role="assistant", content="b"), message(role="user", content="c")]
    planned = plan(situation([3000, 2000, 2000, 2000, 2000, 100, 3000], budget(), messages=said))
    assert isinstance(planned, Compact)
    assert set(planned.absorbed) == {said[1].digest, said[2].digest}
    assert [one.text for one in planned.messages] == ["a", "reminder 0", "reminder 1", "b"]


def test_disabled_and_off_leave_the_request_alone() -> None:
    """``enabled: false`` and ``X-Tidemark-Summarize: off``: forwarded as it came, the upstream judges."""
    assert plan(situation([9500, 100], budget(), mode="off")) == NoCompaction("off", 9603)
    policy = CompactionPolicy(enabled=False)
    assert plan(situation([9500, 100], budget(), policy=policy)) == NoCompaction("disabled", 9603)


@given(conversations())
@settings(max_examples=examples(300), deadline=None)
def test_a_cut_never_parts_a_call_from_its_result(messages: list[Message]) -> None:
    """Promise 3, at its root: every allowed cut has each pair on one side."""
    for cut, allowed in enumerate(open_cuts(messages)):
        torn = any(call < cut <= result for call, result in pairs(messages))
        assert not (allowed and torn)
        if not torn and not any(said.calls for said in messages[max(cut - 1, 0) : cut]):
            assert allowed, "and a cut between whole turns is allowed"


@given(st.integers(1, 4))
def test_a_call_that_waits_for_its_result_keeps_its_turn_open(rounds: int) -> None:
    """The result may come with the next request, so its call must still be there then."""
    call = {"id": "late", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    waiting = [message(role="user", content="go"), message(role="assistant", tool_calls=[call])]
    assert open_cuts(waiting) == [True, True, False]
    dropped = [*waiting, *[message(role="user", content="never mind")] * rounds]
    assert open_cuts(dropped)[2], "a user who goes on has given the call up"
