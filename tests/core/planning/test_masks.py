"""Masks: old results become lines, in an order that keeps what a next step needs longest."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.histories import message, policies, size, up_to
from tests.core.test_promises import assert_valid, summarized
from tests.support.examples import examples
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.summary import MaskedResults, PrefixSummary, SummaryRecipe, render_summary
from tidemark.core.planning.assemble import assemble
from tidemark.core.planning.budget import Budget, CompactionPolicy, ModelProfile, ModelWindow, budget_for
from tidemark.core.planning.masks import LINE_TOKENS, maskable
from tidemark.core.planning.plan import plan, plan_ahead
from tidemark.core.planning.situation import (
    CannotFit,
    Compact,
    CompactionPlan,
    MaskResults,
    NoCompaction,
    PlanInput,
    ReuseSummary,
)
from tidemark.core.recall.result_lines import OPENING, line_for
from tidemark.dialects.chat.dialect import ChatDialect

CHAT = ChatDialect()
FIXED = 3
RECIPE = SummaryRecipe("extractive", "", 0)
LONG = "a line of a result that is as long as others\n" * 30


def step(number: int, name: str, arguments: dict[str, str], result: str) -> list[Message]:
    """A call of a tool, and what it returned."""
    call = {"id": f"c{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
    said = message(role="assistant", content=f"Step {number}.", tool_calls=[call])
    return [said, message(role="tool", tool_call_id=f"c{number}", content=f"{number}: {result}")]


def order_of(steps: Sequence[tuple[str, dict[str, str], str]]) -> list[int]:
    """The steps whose results may be masked, in the order in which they go."""
    said = [message(role="user", content="Go on.")]
    for number, (name, arguments, result) in enumerate(steps):
        said += step(number, name, arguments, result)
    results = maskable(said, [size(each) for each in said], range(len(said)))
    return [(position - 2) // 2 for position in results.positions]


def test_what_a_later_result_repeats_or_supersedes_goes_first() -> None:
    """A second read of the file, and the same command again; of others the oldest."""
    a, b, test = {"path": "a.py"}, {"file_path": "b.py"}, {"command": "make test"}
    steps = [("shell", {"command": "ls"}, LONG), ("read", a, LONG), ("shell", test, LONG), ("read", b, LONG)]
    assert order_of([*steps, ("edit", a, LONG), ("shell", test, LONG)]) == [1, 2, 0, 5, 3, 4]


def test_errors_and_the_newest_result_of_each_file_go_last() -> None:
    """They are what the next step works on."""
    fine, broken = ("shell", {"command": "x"}, LONG), ("shell", {"command": "y"}, f"{LONG}exit code 2")
    assert order_of([broken, ("read", {"path": "a.py"}, LONG), fine]) == [2, 0, 1]


def test_short_results_and_those_with_images_stay() -> None:
    """A line for them would free nothing, and the tokens of an image are not known here."""
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}
    pictured = message(role="tool", tool_call_id="c1", content=[{"type": "text", "text": LONG}, image])
    said = [
        message(role="user", content=LONG),
        *step(0, "shell", {}, "fine"),
        *step(1, "shell", {}, LONG)[:1],
        pictured,
    ]
    assert maskable(said, [size(each) for each in said], range(len(said))).positions == ()


def test_arguments_that_are_no_object_name_no_file() -> None:
    """Models write whatever they like there."""
    for arguments in ("", "[1]", "{", '"a.py"', '{"path": 7}', "null"):
        call = {"id": "c", "type": "function", "function": {"name": "read", "arguments": arguments}}
        said = [message(role="assistant", content=None, tool_calls=[call])]
        said.append(message(role="tool", tool_call_id="c", content=LONG))
        assert maskable(said, [size(each) for each in said], range(2)).positions == (1,)


def budget_of(high_water: int, low_water: int, retention: int) -> Budget:
    """Marks for a plan."""
    return Budget(10_000, 9_000, high_water, high_water // 2, low_water, retention, 500, 0)


def planned_for(steps: int, budget: Budget, policy: CompactionPolicy | None = None) -> CompactionPlan:
    """The plan for an agent's session with so many steps."""
    said = [message(role="user", content="Go on.")]
    for number in range(steps):
        said += step(number, "shell", {"command": str(number)}, LONG)
    policy = policy or CompactionPolicy(mask_results=True)
    return plan(PlanInput(said, [size(each) for each in said], FIXED, budget, policy, masks_results=True))


def test_masks_that_reach_the_low_water_need_no_summary() -> None:
    """The fewest results that suffice are masked, and none of those that retention keeps."""
    planned = planned_for(10, budget_of(3000, 2000, 500))
    assert isinstance(planned, MaskResults)
    assert planned.tokens <= 2000
    assert planned.tokens + planned.replaced_tokens // len(planned.positions) - LINE_TOKENS > 2000
    assert max(planned.positions) < planned.covered < 20


def test_masks_that_do_not_suffice_leave_the_work_to_a_summary() -> None:
    """Half of each would lose more than either."""
    assert isinstance(planned_for(10, budget_of(3000, 700, 500)), Compact)


def test_a_user_who_retains_more_messages_has_their_results_whole() -> None:
    """``keep_last_messages``: the results among them are no lines."""
    planned = planned_for(10, budget_of(4000, 3300, 100), CompactionPolicy(mask_results=True, keep_last_messages=12))
    assert isinstance(planned, MaskResults)
    assert planned.covered <= 21 - 12


@st.composite
def sessions(draw: st.DrawFn) -> list[list[Message]]:
    """The requests of an agent whose results are long or short, and of one who goes back once."""
    said = [message(role="system", content="You are an agent."), message(role="user", content="Go on.")]
    requests = []
    for number in range(draw(up_to(14, 3))):
        files = draw(st.sampled_from([{"path": "a.py"}, {"path": "b.py"}, {"command": "make"}]))
        said += step(number, "tool", files, draw(st.sampled_from(["fine", LONG, LONG * 2, f"{LONG}exit 1"])))
        if draw(up_to(5)) == 0:
            said.append(message(role="system", content="A reminder."))
        if draw(up_to(4)) == 0:
            said.append(message(role="user", content=f"And now {number}?"))
        requests.append(list(said))
        if draw(up_to(9)) == 0:
            said = said[: 2 + draw(up_to((len(said) - 2) // 2)) * 2]
    return requests


def profiles() -> st.SearchStrategy[ModelProfile]:
    """Windows that a session of some steps passes."""
    window = st.builds(ModelWindow, st.integers(1500, 8000))
    return st.builds(ModelProfile, st.just("model"), window, policies()).map(
        lambda profile: replace(profile, policy=replace(profile.policy, enabled=True, mask_results=True))
    )


class Store:
    """What is stored of a conversation's compactions, by the prefix that each stands for."""

    def __init__(self) -> None:
        self.used: dict[bytes, PrefixSummary] = {}

    def newest(self, request: Sequence[Message]) -> PrefixSummary | None:
        """The record that stands for most of a request."""
        hashes = reversed(chain_of("t", request).hashes[:-1])
        return next((self.used[each] for each in hashes if each in self.used), None)

    def put(self, request: Sequence[Message], record: PrefixSummary) -> PrefixSummary:
        """Store a record under its prefix."""
        self.used[chain_of("t", request).at(record.covered)] = record
        return record


def forwarded_by(request: Sequence[Message], record: PrefixSummary | None) -> tuple[Message, ...]:
    """What goes out of a request."""
    return assemble(request, record, replace_middle=CHAT.replace_middle) if record else tuple(request)


def tokens_of(request: Sequence[Message], record: PrefixSummary | None) -> int:
    """The tokens of a summary, with those of the messages that masked results of it stand among."""
    if record is None:
        return 0
    if record.masked is None:
        return size(render_summary(record))
    said = forwarded_by(request, replace(record, masked=replace(record.masked, base=None)))
    clients = [each for each in said if not each.is_system]
    return tokens_of(request, record.masked.base) + sum(map(size, clients[record.summarized : record.covered]))


def masked_by(request: Sequence[Message], planned: MaskResults, before: PrefixSummary | None) -> PrefixSummary:
    """The record of what a plan masks."""
    said = [each for each in request if not each.is_system]
    lines = {position: line_for(said[position], handle=True) for position in planned.positions}
    earlier = before.masked.lines if before and before.masked else ()
    assert not lines.keys() & dict(earlier).keys()
    masked = MaskedResults(before.base if before else None, tuple(sorted({**lines, **dict(earlier)}.items())))
    absorbed = before.absorbed if before else ()
    return PrefixSummary(b"", planned.covered, "", RECIPE, "mask", "automatic", 0.0, absorbed=absorbed, masked=masked)


@given(sessions(), profiles())
@settings(max_examples=examples(300), deadline=None)
def test_masked_sessions_keep_every_promise(requests: list[list[Message]], profile: ModelProfile) -> None:
    """Nothing that was said is changed, calls and results stay together, the bytes stay between two compactions."""
    store = Store()
    before: tuple[list[Message], tuple[Message, ...], PrefixSummary | None] | None = None
    for request in requests:
        record = store.newest(request)
        budget = budget_for(profile, 64)
        given_input = PlanInput(
            request,
            [size(each) for each in request],
            FIXED,
            budget,
            profile.policy,
            summary=record,
            summary_tokens=tokens_of(request, record),
            masks_results=True,
        )
        planned = plan(given_input)
        match planned:
            case CannotFit():
                return
            case NoCompaction():
                record = None
            case MaskResults():
                record = store.put(request, masked_by(request, planned, planned.upon))
            case Compact():
                record = store.put(request, summarized(request, planned))
            case ReuseSummary():
                assert planned.tokens == FIXED + sum(map(size, forwarded_by(request, record)))
            case _:
                raise AssertionError(planned)
        sent = forwarded_by(request, record)
        tokens = FIXED + sum(map(size, sent))
        assert tokens <= budget.limit
        assert sent[-1] is request[-1]
        assert_nothing_said_is_changed(request, sent, record)
        if before is not None and isinstance(planned, ReuseSummary) and record is before[2]:
            beginning, forwarded, _ = before
            if request[: len(beginning)] == beginning:
                assert CHAT.raws_of(sent)[: len(forwarded)] == CHAT.raws_of(forwarded)
        before = (request, sent, record)
        ahead = replace(given_input, summary=record, summary_tokens=tokens_of(request, record))
        coming = plan_ahead(ahead)
        assert coming is None or coming.covered >= (record.covered if record else 1)


def assert_nothing_said_is_changed(
    request: Sequence[Message], sent: Sequence[Message], record: PrefixSummary | None
) -> None:
    """Only results are lines, each of its own call, and a summary stands for what is gone."""
    if record is None or record.masked is None:
        assert_valid(request, sent)
        return
    said = [each for each in request if not each.is_system]
    rest = [each for each in sent if not each.is_system]
    lines = dict(record.masked.lines)
    assert len(rest) == len(said) - record.summarized
    for position, (original, forwarded) in enumerate(
        zip(said[record.summarized :], rest, strict=True), record.summarized
    ):
        if position in lines:
            assert original.role == forwarded.role == "tool"
            assert forwarded.answers == original.answers
            assert forwarded.text.strip() == lines[position]
            assert forwarded.text.startswith(OPENING)
        else:
            assert forwarded is original


def test_a_summary_behind_masks_replaces_the_originals() -> None:
    """Their tokens count, and not those of the messages with lines among them."""
    said = [message(role="user", content="Go on.")]
    for number in range(10):
        said += step(number, "shell", {"command": str(number)}, LONG)
    tokens = [size(each) for each in said]
    situation = PlanInput(
        said, tokens, FIXED, budget_of(3000, 2000, 500), CompactionPolicy(mask_results=True), masks_results=True
    )
    planned = plan(situation)
    assert isinstance(planned, MaskResults)
    record = masked_by(said, planned, None)
    forced = plan(replace(situation, mode="force", summary=record, summary_tokens=tokens_of(said, record)))
    assert isinstance(forced, Compact)
    assert forced.covered >= planned.covered
    assert forced.previous is None
    assert forced.replaced_tokens == sum(tokens[: forced.covered])
