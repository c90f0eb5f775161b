"""The whole of planning, request by request: recall, plan, a summary, assembly, and what is prepared for the next.

Histories grow, fork, are edited and rewound as clients do it. ``make test-deep`` draws 10,000 of each kind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.histories import (
    BOOLEANS,
    MAYBE_TEXT,
    REPLIES,
    TEXTS,
    conversations,
    message,
    orders,
    profiles,
    size,
    turns,
    up_to,
)
from tests.core.test_promises import Step, assert_prefix_only, assert_valid, summarized
from tests.support.examples import examples
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.conversation.summary import PrefixSummary, render_summary
from tidemark.core.planning.assemble import assemble
from tidemark.core.planning.budget import ModelProfile, budget_for
from tidemark.core.planning.cuts import open_cuts
from tidemark.core.planning.plan import plan, plan_ahead
from tidemark.core.planning.situation import CannotFit, Compact, MaskResults, NoCompaction, PlanInput, SwapSummary
from tidemark.dialects.bodies import array_of
from tidemark.dialects.chat.dialect import ChatDialect

CHAT = ChatDialect()
FIXED = 3
EXAMPLES = max(examples(500), settings().max_examples)
"""Of ``make test``; of ``make test-deep`` its profile's."""
Request = Sequence[Message]


class Requests(list[Request]):
    """All requests of a client; a failure shows them as roles, since pages of bytes help nobody."""

    def __repr__(self) -> str:
        return "\n".join(" ".join(map(repr, request)) for request in self)


@dataclass
class Tenant:
    """A tenant's conversations and all that is remembered of them."""

    profile: ModelProfile
    fill: float
    """How much of its bound a summary takes, from 0 to 1."""
    ahead: bool
    reply: int | None
    """The length of the reply that each request states."""
    used: dict[bytes, PrefixSummary] = field(default_factory=dict)
    waiting: dict[bytes, PrefixSummary] = field(default_factory=dict)
    """Summaries by the prefix that they stand for: those in use, and those made ahead."""
    _sent: tuple[Step, bytes] | None = None

    def walk(self, request: Request) -> None:
        """Send one request, and hold every promise that the core can keep."""
        budget = budget_for(self.profile, self.reply)
        summary, prepared = self._newest(self.used, request), self._newest(self.waiting, request)
        given = PlanInput(
            messages=request,
            tokens=[size(one) for one in request],
            other_tokens=FIXED,
            budget=budget,
            policy=self.profile.policy,
            summary=summary,
            summary_tokens=_tokens(summary),
            prepared=prepared,
            prepared_tokens=_tokens(prepared),
        )
        planned = plan(given)
        if isinstance(planned, CannotFit):
            budget = budget_for(self.profile, self.reply, least_reply=True)
            planned = plan(replace(given, budget=budget))
        if isinstance(planned, CannotFit):
            assert planned.tokens > budget.limit, "promise 4: only what cannot fit is refused"
            return
        if isinstance(planned, NoCompaction):
            summary = None
        elif isinstance(planned, Compact | MaskResults):
            assert not isinstance(planned, MaskResults), "only a policy asks for masks"
            summary = self._keep(self.used, request, self._shortened(summarized(request, planned)))
        else:
            summary = self._keep(self.used, request, planned.summary)
        forwarded = request if summary is None else assemble(request, summary)
        step = Step(request, planned, budget, forwarded, summary)
        assert step.sent_tokens <= budget.limit, "promise 4: what is forwarded fits"
        assert_prefix_only(request, step)
        assert_valid(request, forwarded)
        assert len({id(one) for one in forwarded}) == len(forwarded), "promise 3: nothing is sent twice"
        self._hold_frozen(step, given.summary)
        if self.ahead:
            self._prepare(given, summary)

    def _hold_frozen(self, step: Step, recalled: PrefixSummary | None) -> None:
        """Promise 5: what goes on without a new summary begins with the bytes that were sent before.

        After a rewind to where the newest stored summary would part a call from its result, the messages go out as they
        are, until the conversation has grown past it again.
        """
        assert step.forwarded is not None
        body = array_of(CHAT.raws_of(step.forwarded)).removesuffix(b"]")
        before, self._sent = self._sent, (step, body)
        if before is None or isinstance(step.planned, Compact | SwapSummary):
            return
        last, sent = before
        if list(step.messages[: len(last.messages)]) != list(last.messages):
            return
        if step.summary is last.summary:
            assert body.startswith(sent)
        elif step.summary is not None:
            assert not _usable(step.summary, last.messages), "it could have been used before"
        else:
            assert recalled is not None
            assert not _usable(recalled, step.messages), "it could be used now"

    def _prepare(self, given: PlanInput, summary: PrefixSummary | None) -> None:
        """What is made when the response is out; promise 3 holds for the cut, and the newest message is not in it."""
        coming = plan_ahead(replace(given, summary=summary, summary_tokens=_tokens(summary)))
        if coming is not None:
            assert 0 < coming.covered < sum(not one.is_system for one in given.messages)
            self._keep(self.waiting, given.messages, self._shortened(summarized(given.messages, coming)))

    def _newest(self, kept: dict[bytes, PrefixSummary], request: Request) -> PrefixSummary | None:
        """The one that stands for most of what the request begins with, as the store recalls it."""
        hashes = reversed(chain_of("t", request).hashes[:-1])  # one of all of them would stand for the newest, too
        return next((kept[one] for one in hashes if one in kept), None)

    def _keep(self, kept: dict[bytes, PrefixSummary], request: Request, summary: PrefixSummary) -> PrefixSummary:
        kept[chain_of("t", request).at(summary.covered)] = summary
        return summary

    def _shortened(self, summary: PrefixSummary) -> PrefixSummary:
        return replace(summary, text=summary.text[: int(self.fill * len(summary.text))])


def _usable(summary: PrefixSummary, request: Request) -> bool:
    """Whether it stands before the newest message and parts no call from its result."""
    said = [one for one in request if not one.is_system]
    return summary.covered < len(said) and open_cuts(said)[summary.covered]


def _tokens(summary: PrefixSummary | None) -> int:
    return size(render_summary(summary)) if summary else 0


def tenants() -> st.SearchStrategy[Tenant]:
    """Tenants of whom nothing is remembered yet."""
    return st.builds(Tenant, profiles(), st.floats(0, 1), BOOLEANS, REPLIES)


def growing_requests(said: Request, start: int = 0) -> Requests:
    """The requests of a conversation that is longer than ``start``: at each word of the user, result, or prefill."""
    return Requests(said[:end] for end in range(start + 1, len(said) + 1) if not said[end - 1].is_system)


KINDS = st.sampled_from(["fork", "edit", "rewind", "abandon"])


@st.composite
def talks(draw: st.DrawFn) -> Requests:
    """Requests as a client sends them: a conversation, and what becomes of it when it is taken up again elsewhere."""
    said = draw(conversations(max_turns=6))
    sent = growing_requests(said)
    for number in range(draw(up_to(2))):
        place = draw(up_to(len(said) - 1))
        kind = draw(KINDS)
        if kind == "fork":
            said = [*said[:place], *draw(turns(100 + number)), message(role="user", content="and so?")]
        elif kind == "edit" and said[place].role in ("user", "assistant") and not said[place].calls:
            edited = message(role=said[place].role, content=draw(TEXTS))
            said = [*said[:place], edited, *said[place + 1 :]]
        elif kind == "abandon":  # a call that nobody answers, and a user who goes on
            call = {"id": f"late_{number}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
            said = [*said, message(role="assistant", content=draw(TEXTS), tool_calls=[call, {**call, "id": "more"}])]
            said = [*said, *([message(role="user", content="never mind")] if draw(BOOLEANS) else [])]
        else:
            said = said[: place + 1]
        sent += growing_requests(said, min(place, len(said) - 1))
    return sent


@st.composite
def agents(draw: st.DrawFn) -> Requests:
    """One word of the user's and many rounds of calls: parallel ones, results in any order, words beside the calls."""
    said = [message(role="system", content="You are an agent."), message(role="user", content=draw(TEXTS))]
    for number in range(draw(up_to(12, 1))):
        ids = [f"{number}.{which}" for which in range(draw(up_to(4, 1)))]
        calls = [{"id": one, "type": "function", "function": {"name": "look", "arguments": "{}"}} for one in ids]
        said.append(message(role="assistant", content=draw(MAYBE_TEXT), tool_calls=calls))
        said += [message(role="tool", tool_call_id=one, content=draw(TEXTS)) for one in draw(orders(tuple(ids)))]
        if draw(up_to(4)) == 0:
            said.append(message(role="system", content="A reminder."))
    return growing_requests(said, 1)


@given(requests=talks(), tenant=tenants())
@settings(max_examples=EXAMPLES, deadline=None)
def test_conversations_that_fork_and_are_edited_keep_every_promise(requests: Requests, tenant: Tenant) -> None:
    """Chats with tool rounds, inner system messages, forks, edits, rewinds, and calls that nobody answers."""
    for request in requests:
        tenant.walk(request)


@given(requests=agents(), tenant=tenants())
@settings(max_examples=EXAMPLES, deadline=None)
def test_agent_loops_keep_every_promise(requests: Requests, tenant: Tenant) -> None:
    """Loops that are far longer than the window."""
    for request in requests:
        tenant.walk(request)
