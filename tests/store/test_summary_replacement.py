"""A summary that is replaced by hand is the one in use from then on."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from tests.store.turns import Client, assistant, dialogue, summary_of, user
from tidemark.core.conversation.prefix import chain_of
from tidemark.core.errors import SummaryConflict, SummaryOutdated
from tidemark.store.codec import Codec
from tidemark.store.conversations import RedisStore
from tidemark.store.lifetimes import Lifetimes, lifetime
from tidemark.store.previews import ID_BYTES, MAX_PREVIEWS, RedisPreviews
from tidemark.store.summary_replacement import MAX_VERSIONS, RedisSummaryReplacement


@pytest.fixture
def replacement(store: RedisStore) -> RedisSummaryReplacement:
    """On the store's connections."""
    return RedisSummaryReplacement(store.ask, Codec(), lifetimes=Lifetimes(lifetime(60)))


async def test_a_replaced_summary_is_the_one_in_use(client: Client, replacement: RedisSummaryReplacement) -> None:
    """From the next recall on, and there is still one of that prefix."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(10))
    first = summary_of(chain, 4, "the first")
    await client.store.keep_summary(client.tenant, conversation, chain, first)
    second = replace(first, text="the second", created_at=first.created_at + 9)
    await replacement.replace(client.tenant, conversation, second)
    assert (await client.recall(dialogue(11))).summary == second
    assert await client.store.summaries(conversation) == [second]
    record = await client.store.conversation(conversation)
    assert record is not None
    assert (record.summary_count, record.last_summary_at) == (1, second.created_at)
    assert await client.store.keep_summary(client.tenant, conversation, chain, first) == second


async def test_what_was_prepared_upon_the_old_summary_goes(
    client: Client, replacement: RedisSummaryReplacement
) -> None:
    """It took in the text that is replaced, so it must not come into use."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(10))
    first = summary_of(chain, 4, "the first")
    await client.store.keep_summary(client.tenant, conversation, chain, first)
    await client.store.keep_summary(client.tenant, conversation, chain, summary_of(chain, 8), waiting=True)
    assert (await client.recall(dialogue(11))).prepared is not None
    await replacement.replace(client.tenant, conversation, replace(first, text="the second"))
    assert (await client.recall(dialogue(11))).prepared is None


async def test_a_summary_of_a_new_prefix_is_kept(client: Client, replacement: RedisSummaryReplacement) -> None:
    """Where nothing is to be replaced, it is the newest from then on; of a fork, too."""
    await client.send(dialogue(9), assistant("message 10"))
    fork = [*dialogue(8), user("otherwise")]
    conversation = await client.send(fork, assistant("so be it"))
    chain = chain_of(client.tenant, fork)
    made = summary_of(chain, 6)
    await replacement.replace(client.tenant, conversation, made)
    assert (await client.recall([*fork, assistant("so be it"), user("and?")])).summary == made
    assert await client.store.summaries(conversation) == [made]


async def test_what_is_replaced_stays_as_a_version(client: Client, replacement: RedisSummaryReplacement) -> None:
    """Oldest first, and no more than a bounded number; the summaries in use do not contain them."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(10))
    first = summary_of(chain, 4, "text 0")
    await client.store.keep_summary(client.tenant, conversation, chain, first)
    assert await client.store.summary_versions(conversation) == []
    for number in range(1, MAX_VERSIONS + 3):
        await replacement.replace(client.tenant, conversation, replace(first, text=f"text {number}", edited=True))
    versions = await client.store.summary_versions(conversation)
    assert [version.text for version in versions] == [f"text {number}" for number in range(2, MAX_VERSIONS + 2)]
    assert all(version.edited for version in versions)
    assert len(await client.store.summaries(conversation)) == 1


async def test_of_two_people_the_second_replaces_nothing(client: Client, replacement: RedisSummaryReplacement) -> None:
    """Both read the same text; also where the text has gone altogether."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(10))
    first = summary_of(chain, 4, "the first")
    with pytest.raises(SummaryConflict):
        await replacement.replace(client.tenant, conversation, replace(first, text="none"), first)
    await client.store.keep_summary(client.tenant, conversation, chain, first)
    second = replace(first, text="the second", created_at=first.created_at + 1)
    await replacement.replace(client.tenant, conversation, second, first)
    with pytest.raises(SummaryConflict):
        await replacement.replace(client.tenant, conversation, replace(first, text="the third"), first)
    assert (await client.recall(dialogue(11))).summary == second
    assert await client.store.summary_versions(conversation) == [first]


async def test_what_was_made_upon_a_replaced_text_is_not_stored(
    client: Client, replacement: RedisSummaryReplacement
) -> None:
    """Neither in use nor prepared; what was made upon the new text is."""
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(10))
    keep = partial(client.store.keep_summary, client.tenant, conversation, chain)
    first = summary_of(chain, 4, "the first")
    await keep(first)
    second = replace(first, text="the second", created_at=first.created_at + 1)
    await replacement.replace(client.tenant, conversation, second)
    late = summary_of(chain, 8, "upon the first")
    for waiting in (False, True):
        with pytest.raises(SummaryOutdated):
            await keep(late, upon=first, waiting=waiting)
    assert (await client.recall(dialogue(11))).summary == second
    assert await keep(late, upon=second) == late


async def test_a_fork_and_its_parent_prepare_nothing_upon_a_replaced_text(
    client: Client, replacement: RedisSummaryReplacement
) -> None:
    """A fork uses its parent's preparations too, and a summary of messages that both share is both's."""
    parent = await client.send(dialogue(9), assistant("message 10"))
    branch = [*dialogue(8), user("otherwise")]
    fork = await client.send(branch, assistant("so be it"))
    chains = {parent: chain_of(client.tenant, dialogue(10)), fork: chain_of(client.tenant, branch)}
    first = summary_of(chains[parent], 4, "the first")
    for number, edited in enumerate((fork, parent)):
        await client.store.keep_summary(client.tenant, parent, chains[parent], first)
        for conversation, chain in chains.items():
            prepared = summary_of(chain, 7)
            await client.store.keep_summary(client.tenant, conversation, chain, prepared, waiting=True)
        text = replace(first, text=f"by hand {number}", created_at=first.created_at + 1 + number)
        await replacement.replace(client.tenant, edited, text)
        for messages in (dialogue(11), [*branch, assistant("so be it"), user("and?")]):
            state = await client.recall(messages)
            assert (state.prepared, state.summary) == (None, text)


async def test_versions_and_previews_are_forgotten_with_their_conversation(
    client: Client, replacement: RedisSummaryReplacement
) -> None:
    """A preview of a conversation that is gone is not kept either."""
    previews = RedisPreviews(client.store.ask, Codec())
    conversation = await client.send(dialogue(9), assistant("message 10"))
    chain = chain_of(client.tenant, dialogue(10))
    first = summary_of(chain, 4, "the first")
    await client.store.keep_summary(client.tenant, conversation, chain, first)
    await replacement.replace(client.tenant, conversation, replace(first, text="the second"))
    name, shown = b"x" * ID_BYTES, replace(first, text="shown", written_with="llm:coding:1:auto")
    assert await previews.keep(conversation, name, shown, first, 60, owner=client.tenant)
    assert await previews.read(conversation, name) == (shown, first)
    assert await previews.read(conversation, b"y" * ID_BYTES) is None
    await client.store.forget(conversation, client.tenant, "", 1.0)
    assert await client.store.summary_versions(conversation) == []
    assert await previews.read(conversation, name) is None
    assert not await previews.keep(conversation, name, shown, first, 60, owner=client.tenant)


async def test_of_many_previews_the_oldest_goes(client: Client) -> None:
    """A conversation has a bounded number."""
    previews = RedisPreviews(client.store.ask, Codec())
    conversation = await client.send(dialogue(9), assistant("message 10"))
    made = summary_of(chain_of(client.tenant, dialogue(10)), 4)
    for number in range(MAX_PREVIEWS + 1):
        await previews.keep(conversation, bytes([number]) * ID_BYTES, made, made, 60, owner=client.tenant)
    assert await previews.read(conversation, bytes([0]) * ID_BYTES) is None
    assert await previews.read(conversation, bytes([1]) * ID_BYTES) is not None
