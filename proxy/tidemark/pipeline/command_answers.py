"""The texts of Tidemark's answers to commands, for a person in a chat.

The step ``commands`` (``pipeline/commands.py``) writes an answer with them; the dialect puts it into its format.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

from tidemark.core.frozen import frozen

_NOTE = "Tidemark answers this itself; the model sees neither the command nor this answer."


@frozen
class ContextFacts:
    """The content of the answer to ``/context`` (S2-6), in the tokens of the response headers."""

    tokens: int
    """The whole conversation's."""
    forwarded: int
    """Tokens that the model would get now."""
    limit: int
    window: int
    messages: int
    covered: int
    """How many of the messages a summary stands for."""
    summaries: int | None
    """None if the store does not answer."""
    last_summary_at: float | None
    """Unix time, seconds."""
    strategy: str


def context_text(mark: str, facts: ContextFacts) -> str:
    """Return the answer to ``/context``."""
    share = f"{100 * facts.forwarded / facts.limit:.0f} %" if facts.limit else "all"
    if facts.summaries is None:
        summaries = "unknown, the store does not answer"
    elif facts.last_summary_at is None:
        summaries = f"{facts.summaries:,}"
    else:
        last = datetime.fromtimestamp(facts.last_summary_at, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
        summaries = f"{facts.summaries:,}, the last one of {last}"
    lines = {
        "Total tokens": f"{facts.tokens:,}; the model gets {facts.forwarded:,}",
        "Limit": f"{facts.limit:,} of a window of {facts.window:,}",
        "Used": f"{share} of the limit",
        "Messages": f"{facts.messages:,}, of which a summary stands for {facts.covered:,}",
        "Summaries": summaries,
        "Strategy": facts.strategy,
    }
    return _answer(mark, "Context", lines)


def nothing_text(mark: str, *, covered: int, reason: str | None) -> str:
    """Return the answer to ``/summarize`` if all other messages have to stay.

    :param covered: how many messages a summary stands for already
    """
    return _answer(mark, "Not summarized", {"Messages that a summary stands for": f"{covered:,}"}, reason)


def summarized_text(mark: str, *, messages: int, before: int, after: int, strategy: str, warning: str | None) -> str:
    """Return the answer to ``/summarize`` after a summary was made."""
    lines = {
        "Messages summarized": f"{messages:,}",
        "Tokens": f"{before:,} before, {after:,} after",
        "Strategy": strategy,
    }
    return _answer(mark, "Summarized", lines, warning)


def failed_text(mark: str, reason: str, *, full: float | None = None, retry_seconds: float = 0.0) -> str:
    """Return the answer to ``/summarize`` if no summary could be made (FR-5.1.2).

    :param full: share of the limit that the conversation takes as it is; None if that is unknown
    :param retry_seconds: how long the summarizer is not asked
    """
    when = f" in {math.ceil(retry_seconds)} s" if retry_seconds > 0 else ""
    share = "" if full is None else f" It takes {100 * full:.0f} % of what the model can be sent."
    lines = {
        "Reason": reason,
        "The conversation": f"nothing was changed or lost, and it can go on as it is.{share}",
        "To try again": f"send /summarize once more{when}. Without a summary, a conversation that gets too long for "
        "the model may not be answered any more.",
    }
    return _answer(mark, "Not summarized", lines)


def _answer(mark: str, title: str, lines: dict[str, str], warning: str | None = None) -> str:
    """Write an answer that reads well as plain text and as Markdown."""
    items = [f"- {name}: {text}" for name, text in lines.items()]
    items += [f"- Note: {warning}"] if warning else []
    return "\n".join([f"{mark} {_NOTE}", "", f"{title}:", "", *items])
