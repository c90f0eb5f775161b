"""Forks, rewinds, edits and races: a conversation that went on otherwise stays as it is, nothing is lost."""

from __future__ import annotations

import asyncio

from tests.store.turns import Client, assistant, dialogue, raws, turn_of, user
from tidemark.core.conversation.prefix import chain_of, conversation_id


async def test_an_edit_begins_a_fork(client: Client) -> None:
    """The fork holds only what differs, names its parent and reads back whole; the parent is untouched."""
    said = dialogue(9)
    parent = await client.send(said, assistant("reply"))
    edited = [*said[:6], user("edited"), assistant("otherwise"), user("go on")]
    memory = await client.recall(edited)
    assert (memory.conversation, memory.stored_count, memory.diverges) == (parent, 6, True)
    fork = await client.send(edited, assistant("done"))
    assert fork == client.told[-1] == conversation_id(chain_of(client.tenant, edited), 6)
    assert await client.read(fork) == raws([*edited, assistant("done")])
    assert await client.read(parent) == raws([*said, assistant("reply")])
    record = await client.store.conversation(fork)
    assert record is not None
    assert (record.parent, record.parent_messages, record.message_count) == (parent, 6, 10)


async def test_a_fork_goes_on(client: Client) -> None:
    """The turn after the fork's first is one of the fork."""
    parent = await client.send(dialogue(3), assistant("reply"))
    edited = [user("message 1"), assistant("message 2"), user("edited")]
    fork = await client.send(edited, assistant("a"))
    memory = await client.recall([*edited, assistant("a"), user("b")])
    assert (memory.conversation, memory.stored_count, memory.diverges) == (fork, 4, False)
    assert await client.send([*edited, assistant("a"), user("b")], assistant("c")) == fork != parent


async def test_a_rewind_goes_back(client: Client) -> None:
    """The user takes back the last turns and asks otherwise; going on from the end still works."""
    conversation = await client.send(dialogue(1), assistant("message 2"))
    for count in (3, 5, 7):
        await client.send(dialogue(count), assistant(f"message {count + 1}"))
    rewound = [*dialogue(4), user("otherwise")]
    memory = await client.recall(rewound)
    assert (memory.conversation, memory.stored_count, memory.diverges) == (conversation, 4, True)
    fork = await client.send(rewound, assistant("indeed"))
    assert await client.read(fork) == raws([*rewound, assistant("indeed")])
    memory = await client.recall([*dialogue(8), user("on")])
    assert (memory.conversation, memory.stored_count, memory.diverges) == (conversation, 8, False)


async def test_an_edit_far_back_is_found(client: Client) -> None:
    """More than 64 messages back, it takes a second look and no more."""
    said = dialogue(401)
    parent = await client.send(said, assistant("reply"))
    edited = [*said[:150], user("edited"), *said[151:]]
    memory = await client.recall(edited)
    assert (memory.conversation, memory.stored_count, memory.diverges) == (parent, 150, True)
    fork = await client.send(edited, assistant("done"))
    assert await client.read(fork) == raws([*edited, assistant("done")])
    record = await client.store.conversation(fork)
    assert record is not None
    assert record.parent_messages == 150


async def test_forks_of_forks_read_back(client: Client) -> None:
    """A client that changes every reply on echo forks with every turn."""
    said = [user("begin")]
    for number in range(40):
        conversation = await client.send(said, assistant(f"reply {number}"))
        assert await client.read(conversation) == raws([*said, assistant(f"reply {number}")])
        said = [*said, assistant(f"trimmed {number}"), user(f"go on {number}")]
        assert (await client.recall(said)).stored_count == len(said) - 2


async def test_another_reply_to_the_same_request_is_a_fork(client: Client) -> None:
    """Regenerate: both replies are kept, and the id that was told leads to the new one."""
    said = dialogue(5)
    first = await client.send(said, assistant("one"))
    memory = await client.recall(said)
    assert (memory.stored_count, memory.diverges) == (5, True)
    second = await client.send(said, assistant("two"))
    assert second == client.told[-1] != first
    assert await client.read(first) == raws([*said, assistant("one")])
    assert await client.read(second) == raws([*said, assistant("two")])
    third = await client.send(said, assistant("three"))
    assert await client.read(third) == raws([*said, assistant("three")])
    for text, conversation in (("one", first), ("two", second), ("three", third)):
        memory = await client.recall([*said, assistant(text), user("on")])
        assert (memory.conversation, memory.stored_count, memory.diverges) == (conversation, 6, False)


async def test_the_same_reply_again_is_no_fork(client: Client) -> None:
    """The id that was told for a fork leads to the conversation that holds the turn already."""
    said = dialogue(5)
    first = await client.send(said, assistant("one"))
    assert await client.send(said, assistant("one")) == first
    record = await client.store.conversation(client.told[-1])
    assert record is not None
    assert record.id == first
    assert await client.read(client.told[-1]) == raws([*said, assistant("one")])


async def test_replies_at_the_same_time_are_all_kept(client: Client) -> None:
    """Twenty workers answer one request, each otherwise: twenty conversations, none lost."""
    said = dialogue(3)
    memory = await client.recall(said)
    replies = [assistant(f"reply {number}") for number in range(20)]
    held = await asyncio.gather(*(client.finish(said, reply, memory) for reply in replies))
    assert len(set(held)) == 20
    for conversation, reply in zip(held, replies, strict=True):
        assert await client.read(conversation) == raws([*said, reply])


async def test_an_edit_within_one_large_request_is_found(client: Client) -> None:
    """Only the ends of requests and replies are marked; between them the messages are compared."""
    parent = await client.send(dialogue(31), assistant("reply"))
    memory = await client.recall([*dialogue(20), user("edited")])
    assert memory.conversation is None or (memory.conversation, memory.stored_count) == (parent, 20)
    fork = await client.send([*dialogue(20), user("edited")], assistant("done"))
    assert await client.read(fork) == raws([*dialogue(20), user("edited"), assistant("done")])
    record = await client.store.conversation(fork)
    assert record is not None
    assert (record.parent, record.parent_messages) == (parent, 20)


async def test_a_turn_told_to_go_elsewhere_finds_its_place(client: Client) -> None:
    """The conversation it was told is another branch by now: it goes where it belongs."""
    parent = await client.send(dialogue(5), assistant("reply"))
    fork = await client.send([*dialogue(4), user("otherwise")], assistant("reply"))
    whole = [*dialogue(5), assistant("reply"), user("on"), assistant("on")]
    assert await client.store.record(turn_of(client.tenant, whole, known=6, conversation=fork)) == parent
    assert await client.read(parent) == raws(whole)


async def test_a_turn_of_the_parents_ends_where_the_fork_begins(client: Client) -> None:
    """An answer that was asked for anew is told by its own turn, and by that alone."""
    said = dialogue(1)
    parent = await client.send(said, assistant("first answer"))
    fork = await client.send(said, assistant("second answer"))
    assert fork != parent
    assert [(turn.first, turn.last, turn.beyond) for turn in await client.store.all_turns(fork)] == [
        (1, 1, 1),
        (2, 2, 0),
    ]
    assert [(turn.first, turn.last, turn.beyond) for turn in await client.store.all_turns(parent)] == [(1, 2, 0)]
