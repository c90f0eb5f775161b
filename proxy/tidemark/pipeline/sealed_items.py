"""Opens the summaries that Tidemark has sealed for a client, wherever a request brings them.

The step ``continue`` (``continuing.py``) asks for it: for items of the client's own, for items that it refers to by id,
and for earlier messages. What a provider has sealed stays as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.compaction.sealing import TenantSeal
from tidemark.core.conversation.request import Dialect, ModelRequest
from tidemark.core.conversation.responses import InputReference, ResponseFormat
from tidemark.core.conversation.summary import is_summary
from tidemark.core.errors import InvalidRequest
from tidemark.core.frozen import frozen


@frozen
class SinceSummary:
    """The messages of a conversation from its last sealed summary on."""

    raws: Sequence[bytes]
    others: int
    """How many of them are no system messages."""
    is_own: bool
    """Whether Tidemark has sealed the summary, so that the upstream does not have it."""


@frozen
class SealedItems:
    """Opens; it holds no state."""

    seal: TenantSeal

    async def opened(
        self, request: ModelRequest, responses: ResponseFormat, sealed: Sequence[InputReference], tenant: str
    ) -> ModelRequest:
        """Return a request with the texts of Tidemark's own sealed summaries in their places.

        :raises InvalidRequest: one is another tenant's, or was changed since
        """
        opened: dict[int, Sequence[bytes]] = {}
        for reference in sealed:
            try:
                text = self.seal.open(tenant, reference.text)
            except InvalidRequest as error:
                param = f"{request.dialect.messages_member}[{reference.place}]"
                raise InvalidRequest(f"{param}: {error}", param=param, code=error.code) from error
            if text is not None:
                opened[reference.place] = [responses.summary_element(text)]
        if not opened:
            return request
        return await request.dialect.parse(responses.rewritten(request.fields, opened, None))

    def opened_element(self, raw: bytes, responses: ResponseFormat, tenant: str) -> bytes:
        """Return a stored element, or the summary that Tidemark has sealed in it.

        :raises InvalidRequest: it is another tenant's, or was changed since
        """
        for sealed in responses.sealed_texts(raw):
            text = self.seal.open(tenant, sealed)
            if text is not None:
                return responses.summary_element(text)
        return raw

    def since_summary(
        self, raws: Sequence[bytes], dialect: Dialect, responses: ResponseFormat, tenant: str
    ) -> SinceSummary | None:
        """Return what a client that was given a sealed summary would send: the summary and what followed it.

        System messages from before it stay, since it has none of them but earlier summaries.

        :returns: None without a summary that Tidemark has sealed, or that a provider has sealed when it was asked to
        :raises InvalidRequest: it is another tenant's, or was changed since
        """
        for place in reversed(range(len(raws))):
            summary = self.opened_element(raws[place], responses, tenant)
            is_own = summary is not raws[place]
            if is_own or (place and responses.sealed_texts(summary) and responses.asks_to_compact(raws[place - 1])):
                before = dialect.parse_messages(raws[:place])
                systems = [message.raw for message in before if message.is_system and not is_summary(message)]
                rest = raws[place + 1 :]
                others = sum(not message.is_system for message in dialect.parse_messages(rest))
                return SinceSummary([*systems, summary, *rest], others + (not is_own), is_own=is_own)
        return None
