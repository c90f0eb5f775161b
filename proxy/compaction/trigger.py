"""The occasions on which a summary is made: a closed set, which the compactor and its storage match exhaustively."""

from __future__ import annotations

from enum import Enum


class Trigger(Enum):
    """Names what asks for a summary. It decides what a failure means, and how the summary is stored."""

    REQUEST = "request"
    """A request waits. A failure follows the model's policy; the summary is put into use at once."""
    PREPARATION = "preparation"
    """The next summary is made in the background. A failure changes nothing; nothing leaves the context yet."""
    MANUAL = "manual"
    """The operator or a client summarizes a stored conversation. A failure changes nothing."""
    OFFLINE = "offline"
    """A single request is compacted without a conversation. Errors are raised; nothing is stored."""
