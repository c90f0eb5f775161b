"""Responses that can be asked for again: what is stored of each, and how a dialect reads and writes them.

OpenAI's Responses API lets a client go on from an earlier response by its id, and refer to earlier items by theirs. The
pipeline resolves both from what is stored (``pipeline/continuing.py``). Source: OpenAI API reference, "Responses".
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import field
from typing import Protocol

from tidemark.core.conversation.messages import JsonValue
from tidemark.core.frozen import frozen

OUTPUT = "output"
"""The member of a response that is not stored with it: the conversation has it as the assistant's message."""
CONVERSATION = "conversation"
"""The member of a request and of its response that names their conversation."""
EARLIER_RESPONSE = "previous_response_id"
"""The member of a request and of its response that names the response that both go on from."""
REPEATED_MEMBERS: Mapping[str, JsonValue] = {
    "instructions": None,
    "max_output_tokens": None,
    "metadata": {},
    "parallel_tool_calls": True,
    "previous_response_id": None,
    "reasoning": {"effort": None, "summary": None},
    "store": False,
    "temperature": 1.0,
    "text": {"format": {"type": "text"}},
    "tool_choice": "auto",
    "tools": [],
    "top_p": 1.0,
    "truncation": "disabled",
}
"""Members of the request that a response repeats, with their defaults."""


@frozen
class OutputItem:
    """The name of an item of a response."""

    type: str
    id: str
    """Empty if the upstream gave none."""


@frozen
class ResponseRecord:
    """What is stored of one response. Its conversation has the messages."""

    id: str
    message_count: int
    """Non-system messages of the conversation up to this response; the last one is its output."""
    model: str
    """As the client named it."""
    created_at: float
    tenant: str = ""
    """Whose request it answered: only at its upstream may it be gone on from."""
    tip: bytes = b""
    """The chain hash at ``message_count``: the conversation's messages are this response's only if it agrees."""
    conversation: str = ""
    """The conversation that has the messages; empty until it is stored."""
    systems: Sequence[tuple[int, bytes]] = ()
    """Each system message of the request: how many other messages stand before it, and a digest of its bytes."""
    earlier_count: int = 0
    """How many of the messages were there before the request's own input."""
    earlier_systems: int = 0
    """How many of ``systems`` were."""
    head: Mapping[str, bytes] = field(default_factory=dict)
    """The raw members of the response object, in order; that of ``OUTPUT`` is empty."""
    items: Sequence[OutputItem] = ()
    """Those of the output, in order."""
    upstream_has: str = ""
    """The id of what only the upstream has before this response; empty if nothing is missing here."""
    background: bool = False
    """Whether the upstream makes the response in the background, and has to be asked for it."""
    account: str = ""
    """The account of a configured key that has the response too; empty if its client's own key has it. It is not
    stored with the response."""

    def may_be_sent_for(self, tenant: str) -> bool:
        """Return whether the messages may go to a tenant's upstream: only to the one that answered them (promise 8)."""
        return self.tenant == tenant


@frozen
class InputReference:
    """An element of a request that stands for something that is stored or sealed."""

    place: int
    """Its place in the array of elements."""
    text: str
    """The id of an item, or a sealed text."""


@frozen
class SealedAnswer:
    """The answer to a request that asks for a compaction; a dialect writes it."""

    sealed: str
    """The summary, for its tenant only."""
    id: str
    """Hex; a dialect puts its own prefixes before it."""
    created_at: float
    """Unix time, seconds."""
    input_tokens: int
    """Tokens of the conversation, by Tidemark's own count; no provider bills them."""
    output_tokens: int
    """Tokens of the summary, by the same count."""
    members: Mapping[str, JsonValue]
    """Members of the client's request that were resolved before."""


class ResponseFormat(Protocol):
    """How a dialect with stored responses reads and writes what belongs to them. It takes raw members by name."""

    def is_kept(self, fields: Mapping[str, bytes]) -> bool:
        """Return whether the client lets the response of this request be stored."""
        ...

    def conversation_at_upstream(self, fields: Mapping[str, bytes]) -> str:
        """Return the name of the conversation that the upstream has for this request; empty without one."""
        ...

    def references(self, fields: Mapping[str, bytes]) -> Sequence[InputReference]:
        """Return the elements that refer to stored items by their ids."""
        ...

    def input_items(self, fields: Mapping[str, bytes]) -> Sequence[bytes]:
        """Return the elements of a request, each in its own bytes."""
        ...

    def sendable_items(self, raws: Sequence[bytes]) -> Sequence[bytes]:
        """Return stored elements as a client would send them: answers without what only answers have."""
        ...

    def sealed_summaries(self, fields: Mapping[str, bytes]) -> Sequence[InputReference]:
        """Return the elements that are sealed summaries, whoever made them."""
        ...

    def sealed_texts(self, raw: bytes) -> Sequence[str]:
        """Return the sealed summaries of a stored message, whoever made them."""
        ...

    def asks_to_compact(self, raw: bytes) -> bool:
        """Return whether a stored message asks for a compaction."""
        ...

    def summary_element(self, text: str) -> bytes:
        """Write an opened summary as an element."""
        ...

    def sealed_answer(self, fields: Mapping[str, bytes], answer: SealedAnswer, *, stream: bool) -> bytes:
        """Write the answer to a request that asks for a compaction: a response with one element, or its events."""
        ...

    def rewritten(
        self, fields: Mapping[str, bytes], replaced: Mapping[int, Sequence[bytes]], earlier: Sequence[bytes] | None
    ) -> bytes:
        """Write a body with other elements at some places, and with earlier messages before them.

        :param replaced: the elements by place; none removes the one that is there
        :param earlier: None leaves the member that names what came before; else that member is removed
        """
        ...

    def response_of(self, original: bytes) -> tuple[str, Mapping[str, bytes]] | None:
        """Read an upstream's response object: its id and raw members, that of ``OUTPUT`` empty; None for another."""
        ...

    def items_of(self, raw: bytes) -> Sequence[tuple[OutputItem, bytes]]:
        """Return the items of a stored message, each with its bytes."""
        ...

    def output_of(self, raw: bytes, items: Sequence[OutputItem]) -> bytes:
        """Return a stored message as the output of a response, with commas between the items.

        A message is stored once, though two responses may have it: each has the ids that its own client knows.

        :param items: those of the response
        """
        ...

    def has_encrypted(self, body: bytes) -> bool:
        """Return whether a body may have elements that only their provider can read, without a parse."""
        ...

    def refused_items(self, refusal: bytes, body: bytes, *, all_of_them: bool) -> Sequence[str]:
        """Return the encrypted contents of a body's elements that an upstream's error is about; none for another.

        :param all_of_them: whether also those that stand before the one that the error names
        """
        ...

    def without_items(self, body: bytes, left_out: Container[str]) -> bytes | None:
        """Return a body without elements of these encrypted contents; None if nothing would be left to answer."""
        ...

    def refuses_continuation(self, body: bytes) -> bool:
        """Return whether an upstream's error says that it cannot go on from an earlier response."""
        ...

    def repeats_continuation(self, head: Mapping[str, bytes], earlier: str) -> bool:
        """Return whether a response says that it goes on from ``earlier``, so its upstream has looked that up."""
        ...
