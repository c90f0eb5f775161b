"""Joins the items of one assistant's turn into one message, as chat completions would tell it.

The parser of requests and ``reply.py`` call it with items in order. Reasoning stays with the call that it belongs to,
because nothing cuts a message in two.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidemark.core.conversation.messages import Message
from tidemark.dialects.responses.items import InputItem, TurnPieces, as_piece, turn_of


def messages_of(items: Iterable[InputItem]) -> list[Message]:
    """Return the messages: consecutive items of the assistant are one, and each other item is one of its own."""
    messages: list[Message] = []
    turn: list[InputItem] = []
    hosted: set[str | None] = set()
    for item in items:
        if item.pieces is not None:
            turn.append(item)
            hosted.update(item.pieces.hosted)
            continue
        if turn and item.message.answers in hosted:
            turn.append(as_piece(item))
            continue
        if turn:
            messages.append(join_turn(turn))
            turn = []
        messages.append(item.message)
    if turn:
        messages.append(join_turn(turn))
    return messages


def join_turn(items: Sequence[InputItem]) -> Message:
    """Return the message of an assistant's turn; its bytes are those of the items, with a comma between them."""
    if len(items) == 1:
        return items[0].message
    pieces = [item.pieces for item in items if item.pieces is not None]
    joined = TurnPieces(
        texts=tuple([text for piece in pieces for text in piece.texts]),
        calls=tuple([call for piece in pieces for call in piece.calls]),
        media=tuple([part for piece in pieces for part in piece.media]),
        own=tuple([part for piece in pieces for part in piece.own]),
        hosted=tuple([name for piece in pieces for name in piece.hosted]),
    )
    return turn_of(b",".join([item.message.raw for item in items]), joined).message
