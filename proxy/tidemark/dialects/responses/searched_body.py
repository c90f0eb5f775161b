"""Reads a response that is not streamed, over the rounds in which the model searches.

``search_function.py`` begins it. Source: OpenAI API reference, "The response object".
"""

from __future__ import annotations

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.core.recall.search_function import FUNCTION_NAME
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.responses.reply import fold_body
from tidemark.dialects.responses.searched_rounds import ResponseRounds, asks_to_search
from tidemark.dialects.responses.searched_stream import decode_object

_NAME = FUNCTION_NAME.encode()


class SearchedResponseBody:
    """``SearchedReply`` that is not streamed. Its state is what the rounds before brought."""

    def __init__(self) -> None:
        self.calls: Message | None = None
        self._before = ResponseRounds()
        self._response: dict[str, JsonValue] = {}
        """Of the newest round."""

    def read(self, data: bytes) -> bytes:
        """Return the client's response; nothing where the round only searches. Bytes without the name stay."""
        response = decode_object(data)
        if response is None or not isinstance(response.get("output"), list):
            return data
        self._before.note_head(response)
        self._response = response
        message = fold_body(data).message
        if asks_to_search(message, response.get("status")):
            self.calls = message
            return b""
        if not self._before.is_later and _NAME not in data:
            return data
        return self._write()

    def next_round(self) -> None:
        """Begin the next round."""
        usage = self._response.get("usage")
        self._before.add(self._items(), usage if isinstance(usage, dict) else {})
        self.calls = None

    def end(self) -> bytes:
        """Return the newest response without its calls."""
        self.calls = None
        return self._write()

    def _write(self) -> bytes:
        return encode_json(self._before.joined(self._response, self._items()))

    def _items(self) -> list[JsonValue]:
        output = self._response.get("output")
        return output if isinstance(output, list) else []
