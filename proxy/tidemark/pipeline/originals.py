"""Finds the messages that a summary stands for in the request that brought them.

Both the step ``recall`` and a model's own search quote them (docs/adr/0025, docs/adr/0027).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.conversation.messages import Message
from tidemark.pipeline.values import RequestContext


def originals_of(context: RequestContext, covered: int) -> tuple[Sequence[Message], Sequence[int]]:
    """Return the client messages behind a summary's cut, as the client sent them, and their tokens.

    :param covered: the number of client messages that the summary stands for
    """
    original = context.unclipped or context
    messages, counts = original.request.messages, original.count.messages
    places = client_places(messages, len(original.chain))[:covered]
    if isinstance(places, range):
        return messages[places.start : places.stop], counts[places.start : places.stop]
    return [messages[place] for place in places], [counts[place] for place in places]


def client_places(messages: Sequence[Message], count: int) -> Sequence[int]:
    """Return the places of the client messages, those that are no system messages.

    :param count: how many there are
    """
    first = next((place for place, message in enumerate(messages) if not message.is_system), 0)
    if len(messages) - first == count:  # no system message is among them
        return range(first, len(messages))
    return [place for place, message in enumerate(messages) if not message.is_system]
