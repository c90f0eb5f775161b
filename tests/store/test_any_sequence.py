"""Any sequence of turns, forks, edits and retries, against a plain dictionary: what was sent is read back."""

from __future__ import annotations

import uuid
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.store.turns import RECIPE, Client, assistant, dialogue, raws, say, summary_of, system, user
from tests.support.examples import examples
from tidemark.core.conversation.messages import Message
from tidemark.core.conversation.prefix import chain_of
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.embedded.server import EmbeddedValkey
from tidemark.store.scripts import NEAR

_WORDS = st.sampled_from(["a", "b"])
"""Few words, so that branches meet again."""


@dataclass(frozen=True)
class Step:
    """One turn of a client: it takes an earlier history, cuts it, perhaps edits it, and goes on."""

    branch: int
    cut: int
    edit: int | None
    new: tuple[str, ...]
    reply: str | None
    summarize: int | None
    again: bool
    forgetful: bool


_STEPS = st.builds(
    Step,
    branch=st.integers(0, 5),
    cut=st.integers(0, 6) | st.integers(60, 90),
    edit=st.none() | st.integers(0, 8),
    new=st.lists(_WORDS, min_size=1, max_size=4).map(tuple),
    reply=st.none() | _WORDS,
    summarize=st.none() | st.integers(1, 12),
    again=st.booleans(),
    forgetful=st.booleans(),
)


@dataclass
class Model:
    """What must be true, told by lists of bytes."""

    histories: list[list[Message]]
    """Where a step may go on from."""
    recorded: set[tuple[bytes, ...]] = field(default_factory=set)
    """Every whole turn that was recorded."""
    summaries: set[tuple[bytes, ...]] = field(default_factory=set)
    """Every prefix that was summarized."""

    def request(self, step: Step) -> list[Message]:
        """The messages that the step sends."""
        history = self.histories[step.branch % len(self.histories)]
        kept = list(history[: max(0, len(history) - step.cut)])
        if step.edit is not None and kept:
            place = step.edit % len(kept)
            kept[place] = say(kept[place].role, kept[place].text + "'")
        return [*kept, *(user(word) for word in step.new)]

    def known(self, said: list[bytes]) -> int:
        """How many leading messages the store has seen together."""
        shared = (sum(1 for _ in _common(turn, said)) for turn in self.recorded)
        return max(shared, default=0)

    def newest(self, said: list[bytes]) -> int:
        """How many messages the newest summary stands for that leaves the newest message."""
        shorter = (prefix for prefix in self.summaries if len(prefix) < len(said))
        fitting = (len(prefix) for prefix in shorter if tuple(said[: len(prefix)]) == prefix)
        return max(fitting, default=0)


def _common(one: tuple[bytes, ...], other: list[bytes]) -> list[bytes]:
    shared: list[bytes] = []
    for left, right in zip(one, other, strict=False):
        if left != right:
            break
        shared.append(left)
    return shared


async def _play(client: Client, model: Model, step: Step) -> None:
    request = model.request(step)
    said = raws(request)
    memory = await client.recall(request)
    assert memory.stored_count == model.known(said)
    covered = memory.summary.covered if memory.summary else 0
    assert covered == 0 or tuple(said[:covered]) in model.summaries
    assert covered == model.newest(said) or len(said) > NEAR  # so far back only its own
    if step.summarize:
        prefix = min(step.summarize, len(said))
        chain = chain_of(client.tenant, request)
        told = memory.conversation or chain.family + chain.at(1).hex()[:16]
        await client.store.keep_summary(client.tenant, told, chain, summary_of(chain, prefix, recipe=RECIPE))
        model.summaries.add(tuple(said[:prefix]))
    reply = assistant(step.reply) if step.reply else None
    sent = [system("rules"), *request]
    conversation = ""
    for _ in range(2 if step.again else 1):
        known = await client.recall(request) if step.forgetful else memory
        conversation = await client.finish(sent, reply, known)
    whole = [*request, reply] if reply else request
    assert (await client.read(conversation))[: len(whole)] == raws(whole)
    assert system("rules").raw in (await client.store.system_messages(conversation)).values()
    model.recorded.add(tuple(raws(whole)))
    model.histories.append(whole)


@pytest.mark.parametrize("opening", [0, 70])
@settings(max_examples=examples(60), deadline=None)
@given(steps=st.lists(_STEPS, min_size=1, max_size=14))
async def test_whatever_is_sent_is_read_back(server: EmbeddedValkey, opening: int, steps: list[Step]) -> None:
    """Known prefixes, summaries and messages are what the model says, after every step and at the end."""
    store = RedisStore(server.url, Codec(), ttl_seconds=3600, recall_timeout_seconds=5, record_timeout_seconds=5)
    client, model = Client(store, uuid.uuid4().hex), Model([dialogue(opening)])
    try:
        for step in steps:
            await _play(client, model, step)
        for turn in model.recorded:
            messages = [history for history in model.histories if tuple(raws(history)) == turn]
            memory = await client.recall(messages[0])
            assert memory.conversation is not None
            assert memory.stored_count == len(turn)
            assert (await client.read(memory.conversation))[: len(turn)] == list(turn)
    finally:
        await store.close()
