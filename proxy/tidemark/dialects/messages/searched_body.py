"""Reads a message that is not streamed, over the rounds in which the model searches.

``search_function.py`` begins it. Source: Anthropic API reference, "Create a Message" (the response).
"""

from __future__ import annotations

from collections.abc import Mapping

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.messages.reply import fold_body
from tidemark.dialects.messages.searched_blocks import asks_to_search, clients_blocks, is_search
from tidemark.dialects.raw_json import decode_or_none
from tidemark.dialects.searching import sum_of

_HEAD = ("id", "model")
"""The members that the client has of the first round."""


class SearchedMessageBody:
    """``SearchedReply`` that is not streamed. Its state is what the rounds before brought."""

    def __init__(self) -> None:
        self.calls: Message | None = None
        self._head: dict[str, JsonValue] = {}
        self._blocks: list[JsonValue] = []
        """The client's, of all earlier rounds."""
        self._usage: Mapping[str, JsonValue] = {}
        self._is_later = False
        """Whether a round came before the present one."""
        self._body: dict[str, JsonValue] = {}
        """The body of the newest round."""

    def read(self, data: bytes) -> bytes:
        """Return the client's message; nothing where the round only searches. A plain answer keeps its bytes."""
        body = decode_or_none(data)
        content = body.get("content") if isinstance(body, dict) else None
        if not isinstance(body, dict) or not isinstance(content, list):
            return data
        self._body = body
        message = fold_body(data).message
        if asks_to_search(message, body.get("stop_reason")):
            self.calls = message
            self._head = self._head or {name: body[name] for name in _HEAD if name in body}
            return b""
        if not self._is_later and not any(isinstance(block, dict) and is_search(block) for block in content):
            return data
        return self._write(ends=False)

    def next_round(self) -> None:
        """Begin the next round."""
        self._blocks += self._clients(is_over=False)
        self._usage = sum_of(self._usage, _usage_of(self._body))
        self.calls, self._is_later = None, True

    def end(self) -> bytes:
        """Return the newest message without its calls, as one that has ended."""
        self.calls = None
        return self._write(ends=True)

    def _write(self, *, ends: bool) -> bytes:
        """Write the newest message for the client.

        :param ends: whether nothing is left to call, so that the model just stopped
        """
        body = {**self._body, **self._head}
        body["content"] = self._blocks + self._clients(is_over=True)
        body["usage"] = sum_of(self._usage, _usage_of(body))
        if ends:
            body["stop_reason"] = "end_turn"
        return encode_json(body)

    def _clients(self, *, is_over: bool) -> list[JsonValue]:
        """Return the client's blocks of the newest round."""
        content = self._body.get("content")
        blocks = content if isinstance(content, list) else []
        return clients_blocks(blocks, has_earlier=bool(self._blocks), is_over=is_over)


def _usage_of(body: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    usage = body.get("usage")
    return usage if isinstance(usage, dict) else {}
