"""Clipping: removes the middle of tool results that are too large even for a compacted request (FR-5.3.1).

It comes after the plan, and only if the outcome would be ``CannotFit``, with the least retention and the shortest
summary. ``clips_for`` decides how small which results become, and ``clipped`` rewrites one. The store keeps the
original, and the newest message never changes (promise 2).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import assert_never

from tidemark.core.conversation.messages import Message
from tidemark.core.frozen import frozen
from tidemark.core.planning.cuts import open_cuts
from tidemark.core.planning.kinds import work_share
from tidemark.core.planning.plan import plan
from tidemark.core.planning.situation import (
    CannotFit,
    Compact,
    MaskResults,
    NoCompaction,
    PlanInput,
    ReuseSummary,
    SwapSummary,
)

LEAST_TOKENS = 64
"""The smallest clipped message: its frame, the mark, and a line or two of each end."""
LEAST_GAIN_TOKENS = 32
"""The least excess over a rung for which a result is clipped to it. The mark takes up to half of the gain."""
HEAD_SHARE = 0.5
"""The share of the beginning in the text that stays. The beginning says what a result is, the end how it ended."""
MARK = "[... {tokens:,} tokens clipped by Tidemark ...]"


@frozen
class Clip:
    """The new size of one message."""

    place: int
    """Index in the request's messages."""
    max_tokens: int
    """The size of the whole message, with its frame and the mark; a rung of the ladder."""


@frozen
class ClipFunctions:
    """The functions that clipping needs: a tokenizer's, for one model, and one of the message's dialect."""

    count_message: Callable[[Message], int]
    count_text: Callable[[str], int]
    cut_text: Callable[[str, int], str]
    """Return the longest beginning of a text of at most that many tokens."""
    replace_middle: Callable[[Message, int, int, str], Message]
    """Return the message with a mark in place of the characters between two places of its text."""


def clips_for(plan_input: PlanInput) -> tuple[Clip, ...]:
    """Return the fewest clips with which a request fits; none if it fits anyway, or clipping does not help.

    The same messages and limit give the same sequence of clips: the largest result first, down a ladder of sizes that
    follow from the limit alone. So a clipped result stays the same for many turns (promise 5).
    """
    if plan_input.policy.oversize == "error" or not isinstance(plan(plan_input), CannotFit):
        return ()
    steps = _steps(plan_input)
    bound = plan_input.budget.summary_for(work_share(plan_input.messages, plan_input.tokens))
    # A summary in use stays, with its bytes. A summary that was made for a larger window is replaced.
    within = plan_input.summary is not None and plan_input.summary_tokens <= bound
    return (_fewest(plan_input, steps, same_summary=True) if within else ()) or _fewest(
        plan_input, steps, same_summary=False
    )


def could_shrink(plan_input: PlanInput) -> bool:
    """Return whether a request can be made smaller, so that it need not be forwarded as it came or refused."""
    planned = plan(plan_input)
    return not isinstance(planned, NoCompaction | CannotFit) or bool(clips_for(plan_input))


def _fewest(plan_input: PlanInput, steps: Sequence[Clip], *, same_summary: bool) -> tuple[Clip, ...]:
    """Return the fewest first steps with which the plan succeeds; every further step makes the request smaller."""

    def fits(count: int) -> bool:
        planned = plan(replace(plan_input, tokens=_sizes(plan_input.tokens, steps[:count])))
        return not isinstance(planned, CannotFit) and (not same_summary or _keeps_summary(planned))

    if not steps or not fits(len(steps)):
        return ()
    needed = bisect_left(range(len(steps)), True, key=fits)  # noqa: FBT003 - the value to find
    last = {clip.place: clip for clip in steps[:needed]}
    return tuple(last[place] for place in sorted(last))


def _keeps_summary(planned: NoCompaction | ReuseSummary | SwapSummary | MaskResults | Compact) -> bool:
    """Return whether a stored summary is used, or is part of the next one."""
    match planned:
        case ReuseSummary() | SwapSummary() | MaskResults():
            return True
        case Compact():
            return planned.previous is not None
        case NoCompaction():
            return False
        case _:
            assert_never(planned)


def _sizes(tokens: Sequence[int], steps: Sequence[Clip]) -> list[int]:
    sizes = list(tokens)
    for clip in steps:
        sizes[clip.place] = clip.max_tokens
    return sizes


def _steps(plan_input: PlanInput) -> list[Clip]:
    """Return all possible clips in their order: the largest result first, rung by rung."""
    sizes = {place: plan_input.tokens[place] for place in _clippable(plan_input.messages)}
    steps: list[Clip] = []
    rung = plan_input.budget.limit // 2
    while rung >= LEAST_TOKENS:
        for place in sorted(sizes, key=lambda index: (-sizes[index], index)):
            if sizes[place] >= rung + LEAST_GAIN_TOKENS:
                steps.append(Clip(place, rung))
                sizes[place] = rung
        rung //= 2
    return steps


def _clippable(messages: Sequence[Message]) -> list[int]:
    """Return the places of the results that no cut can bring into a summary, without the newest message.

    A result with an image is never clipped, because the tokens of its text alone are not known here.
    """
    client_places = [place for place, message in enumerate(messages) if not message.is_system]
    cuts = open_cuts([messages[place] for place in client_places])
    first = next((cut for cut in range(len(client_places) - 1, 0, -1) if cuts[cut]), 0)
    return [
        place
        for place in client_places[first:-1]
        if messages[place].role == "tool" and messages[place].text and not messages[place].media
    ]


def clipped(message: Message, tokens: int, max_tokens: int, functions: ClipFunctions) -> Message:
    """Replace the middle of a message's text by a mark; all other members keep their bytes.

    :param tokens: the message's tokens before
    :param max_tokens: the most tokens after; less than a frame and a mark is not possible
    """
    text = message.text
    frame = tokens - functions.count_text(text)
    available = max_tokens - functions.count_message(functions.replace_middle(message, 0, len(text), _mark(tokens)))
    while True:
        head = functions.cut_text(text, int(available * HEAD_SHARE)) if available > 0 else ""
        tail = _end_of(text[len(head) :], available - int(available * HEAD_SHARE), functions)
        removed = tokens - frame - functions.count_text(head) - functions.count_text(tail)
        clipped_message = functions.replace_middle(message, len(head), len(text) - len(tail), _mark(removed))
        over = functions.count_message(clipped_message) - max_tokens
        if over <= 0 or available <= 0:
            return clipped_message
        available -= over


def _mark(tokens: int) -> str:
    return MARK.format(tokens=tokens)


def _end_of(text: str, max_tokens: int, functions: ClipFunctions) -> str:
    """Return an end of the text of at most that many tokens, estimated from the density of its beginning."""
    if max_tokens <= 0:
        return ""
    end = text[max(len(text) - len(functions.cut_text(text, max_tokens)), 0) :]
    while end and (tokens := functions.count_text(end)) > max_tokens:
        end = end[len(end) - int(len(end) * max_tokens / tokens * 0.98) :]
    return end
