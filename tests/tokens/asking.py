"""Requests as the edge reads them, and their counts: what the tests of this folder share."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.conversation.request import ModelRequest
from tidemark.dialects.chat.dialect import ChatDialect
from tidemark.dialects.chat.message import parse_message
from tidemark.tokens import LocalTokenCounter

COUNTER = LocalTokenCounter()


def message(value: JsonValue) -> Message:
    """One message."""
    return parse_message(json.dumps(value).encode(), value, 0)


def request(body: Mapping[str, JsonValue]) -> ModelRequest:
    """A chat request; everything but its messages may be billed."""
    messages = body["messages"]
    assert isinstance(messages, list)
    counted = {name: value for name, value in body.items() if name != "messages"}
    fields = {name: json.dumps(value).encode() for name, value in counted.items()}
    return ModelRequest(b"", fields, "m", tuple(map(message, messages)), ChatDialect(), billed_members=counted)


def total(body: Mapping[str, JsonValue], model: str = "gpt-4o", counter: LocalTokenCounter = COUNTER) -> int:
    """Tokens of a whole request."""
    return asyncio.run(counter.count(request(body), model)).total
