"""A summary that is replaced by hand is the one in use from then on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from proxy.core.conversation.prefix import chain_of
from proxy.store.codec import Codec
from proxy.store.conversations import RedisStore
from proxy.store.summary_replacement import RedisSummaryReplacement
from tests.store.turns import Client, assistant, dialogue, summary_of, user


@pytest.fixture
def replacement(store: RedisStore) -> RedisSummaryReplacement:
    """On the store's connections."""
    return RedisSummaryReplacement(store.ask, Codec(), ttl_seconds=60)


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
