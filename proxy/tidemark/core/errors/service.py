"""Errors of Tidemark itself."""

from __future__ import annotations

from tidemark.core.errors.base import RetryableError, TidemarkError


class ServiceError(TidemarkError):
    """Tidemark itself cannot do what it promised."""


class ConfigError(ServiceError):
    """The configuration cannot be used; the message names file, line and the nearest valid key."""

    code = "config_error"


class ServerBusy(RetryableError, ServiceError):
    """Tidemark has no memory or connection free for the request at this moment."""

    code = "server_busy"


class Overloaded(ServerBusy):
    """The worker answers as many requests as ``limits`` allows. The request was refused before its body was read."""

    code = "overloaded"


class TokenizerFailed(ServiceError):
    """Counting failed (FR-5.2.1). Nothing is approximated, and the client may send the request again."""

    code = "token_counting_failed"


class CompactionFailed(RetryableError, ServiceError):
    """No summary could be made and ``on_failure`` is ``block`` (FR-5.1.1)."""

    code = "compaction_failed"


class SummaryRejected(ServiceError):
    """A summarizer returned something that is no summary: empty, refused, too long, echoing."""

    code = "summary_rejected"


class SummaryOverdue(ServiceError):
    """Reading a conversation for its summary took too long."""

    code = "summary_overdue"


class SummaryOutdated(ServiceError):
    """A person replaced the summary that a new one was made upon, or deleted the conversation.

    The new one is not stored; no client gets this.
    """

    def __init__(self) -> None:
        super().__init__(
            "the conversation was deleted meanwhile, or the summary that this one was made upon was replaced"
        )


class FlushNotTaken(RetryableError, ServiceError):
    """A consumer did not take a queue entry. The courier offers it again, and no client gets this error."""


class FlushRefused(FlushNotTaken):
    """A consumer gave an answer that the protocol does not allow, so no further offer can succeed."""
