"""Finds the open request, the user's last message, and carries it from summary to summary word for word.

``extractive`` and ``hybrid`` carry it; ``llm`` asks its model for it. In an agent's loop hundreds of tool rounds follow
one message of the user. Once that message is summarized, nothing else says what the rounds are for.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark.core.conversation.messages import Message
from tidemark.core.frozen import frozen
from tidemark.summarizers.transcript import is_observation, read_back, shortened, utterances

REQUEST = "Open request"
"""The speaker of its line in a summary."""
_ANSWERED_CHARS = 600
"""The most characters of a request that has an answer, about 150 tokens."""
_OPEN_CHARS = 8000
"""The most characters of a request without an answer, about 2000 tokens: a task with the report that it brought."""
_LEAST_CHARS = 40


@frozen
class Request:
    """The user's last message among those that are summarized."""

    text: str
    """The message's text on one line."""
    answered: bool
    """Whether an assistant's message without tool calls came after it."""

    def within(self, answered_chars: int, open_chars: int) -> str:
        """Return the text, or the beginning and the end of a longer one.

        :param answered_chars: the most characters of an answered request, for which few are enough
        :param open_chars: the most characters of a request without an answer
        """
        max_chars = min(_ANSWERED_CHARS, answered_chars) if self.answered else min(_OPEN_CHARS, open_chars)
        return shortened(self.text, max(_LEAST_CHARS, max_chars))


def request_of(messages: Sequence[Message]) -> Request | None:
    """Return the last request among messages that are new to a summary."""
    answered = False
    for place in reversed(range(len(messages))):
        message, before = messages[place], messages[place - 1] if place else None
        is_persons = message.role == "user" and not is_observation(message, before)
        if is_persons and (utterance := next(iter(utterances([message])), None)):
            return Request(" ".join(utterance.text.split()), answered)
        answered = answered or _is_answer(message)
    return None


def open_request(messages: Sequence[Message], carried: Request | None) -> Request | None:
    """Return the request that no message of the assistant answers; None if there is none.

    :param carried: the open request of an earlier summary
    """
    if request := request_of(messages):
        return None if request.answered else request
    return None if any(map(_is_answer, messages)) else carried


def _is_answer(message: Message) -> bool:
    """Return whether a message is the assistant's, with text and without calls."""
    return message.role == "assistant" and not message.calls and bool(message.text)


def carried_request(previous: str | None) -> Request | None:
    """Return the request that an earlier summary carries."""
    lines = (line.text for line in read_back(previous or "") if line.speaker == REQUEST and line.text)
    return next((Request(text, answered=False) for text in lines), None)
