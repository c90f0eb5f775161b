"""Reads a completion that is not streamed, over the rounds in which the model searches.

``search_function.py`` begins it. Source: OpenAI API reference, "The chat completion object".
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec

from tidemark.core.conversation.messages import JsonValue, Message
from tidemark.dialects.bodies import encode_json
from tidemark.dialects.chat.reply import fold_body
from tidemark.dialects.chat.searched_rounds import THINKING, RoundsBefore, asks_to_search, is_search
from tidemark.dialects.raw_json import decode_or_none


class SearchedBody:
    """``SearchedReply`` that is not streamed. Its state is what the rounds before brought."""

    def __init__(self) -> None:
        self.calls: Message | None = None
        self._before = RoundsBefore()
        self._body: dict[str, JsonValue] = {}
        """The body of the newest round."""
        self._thinking: JsonValue = None
        """Signed thinking of the first round whose text the client gets."""

    def read(self, data: bytes) -> bytes:
        """Return the client's completion; nothing where the round only searches. A plain answer keeps its bytes."""
        body = decode_or_none(data, msgspec.json.decode)
        choice = _choice_of(body)
        if not isinstance(body, dict) or choice is None:
            return data
        self._body = body
        message = choice.get("message")
        calls = message.get("tool_calls") if isinstance(message, dict) else None
        calls = [call for call in calls if isinstance(call, dict)] if isinstance(calls, list) else []
        searches = [is_search(call) for call in calls]
        if asks_to_search(searches, choice.get("finish_reason")):
            self.calls = fold_body(data, msgspec.json.decode).message
            if self.calls is not None:
                self._before.note_head(body)
                return b""
        if not any(searches) and not self._before.number:
            return data
        return self._write(ends=False)

    def next_round(self) -> None:
        """Begin the next round."""
        usage, has_text = self._body.get("usage"), bool(self._before.text)
        self._before.add(self.calls, usage if isinstance(usage, dict) else {})
        if self._before.text and not has_text:
            self._thinking = _message_of(self._body).get(THINKING)
        self.calls = None

    def end(self) -> bytes:
        """Return the newest completion without its calls, as one that has ended."""
        self.calls = None
        return self._write(ends=True)

    def _write(self, *, ends: bool) -> bytes:
        """Write the newest completion for the client.

        :param ends: whether nothing is left to call, so that the model just stopped
        """
        body = self._before.with_head(self._body)
        choice = dict(_choice_of(body) or {})
        members = dict(_message_of(body))
        if self._before.text:
            members.pop(THINKING, None)
            members |= {THINKING: self._thinking} if self._thinking else {}
        calls = members.pop("tool_calls", None)
        remaining = [
            call
            for call in (calls if isinstance(calls, list) else ())
            if isinstance(call, dict) and not is_search(call)
        ]
        if remaining:
            members["tool_calls"] = remaining
        text = members.get("content")
        if isinstance(text, str) and text:
            members["content"] = self._before.text + self._before.separator(text) + text
        elif not text and self._before.text:
            members["content"] = self._before.text
        choice["message"] = members
        if ends and choice.get("finish_reason") == "tool_calls":
            choice["finish_reason"] = "stop"
        body["choices"] = [choice]
        return encode_json(body)


def _message_of(body: Mapping[str, JsonValue]) -> Mapping[str, JsonValue]:
    """Return the message of a completion; an empty one where it has none."""
    message = (_choice_of(body) or {}).get("message")
    return message if isinstance(message, dict) else {}


def _choice_of(body: object) -> dict[str, JsonValue] | None:
    """Return the one choice of a completion."""
    choices = body.get("choices") if isinstance(body, dict) else None
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    return choice if isinstance(choice, dict) else None
