"""One tree of errors, raised by any room and given a status only by ``server/errors.py``.

* ``TidemarkError``
    * ``ClientError``: the request is at fault, and the message names the mend
        * ``InvalidRequest``
        * ``BodyTooLarge``
        * ``NotAuthenticated``
        * ``Forbidden``
        * ``ModelNotFound``
        * ``ConversationNotFound``
        * ``ConversationConflict``
        * ``BadImport``
        * ``ContextLengthExceeded``
    * ``ServiceError``: we are at fault
        * ``ConfigError``
        * ``TokenizerFailed``
        * ``CompactionFailed``
        * ``SummaryRejected``
        * ``FlushNotTaken``
            * ``FlushRefused``
    * ``StoreError``
        * ``StoreUnavailable``
        * ``StoreInUse``
    * ``UpstreamError``: the provider, or the way to it, is at fault
        * ``UpstreamUnreachable``
        * ``UpstreamTimedOut``
        * ``UpstreamBroken``

``str(error)`` is what a client may read; ``internal`` is for the log only and may name hosts and causes.
Errors of libraries are translated where the library is used, always with ``raise ... from``.
"""

from __future__ import annotations


class TidemarkError(Exception):
    """Base of every error that Tidemark raises on purpose.

    ``code`` is the stable machine-readable name in OpenAI's error envelope.
    """

    code: str = "internal_error"
    retry_after: float = 0.0
    """Seconds after which it is of use to try again, where that is known; 0 where it is not."""

    def __init__(self, message: str, *, internal: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.internal = internal


class ClientError(TidemarkError):
    """The request cannot be served as it stands."""

    code = "invalid_request_error"


class InvalidRequest(ClientError):
    """A field is missing, of the wrong type or of an unknown value; ``param`` is its path, as OpenAI writes it."""

    def __init__(self, message: str, *, param: str | None = None, code: str = "invalid_value") -> None:
        super().__init__(message)
        self.param = param
        self.code = code


class BodyTooLarge(ClientError):
    """The body is longer than ``server.max_body_mb``."""

    code = "request_too_large"


class NotAuthenticated(ClientError):
    """The operator's token is missing or another one."""

    code = "invalid_admin_token"


class Forbidden(ClientError):
    """Nobody may do this here; the message names what would allow it."""

    code = "admin_token_required"


class ModelNotFound(ClientError):
    """No upstream is known for the model; the message names what is configured."""

    code = "model_not_found"


class ConversationNotFound(ClientError):
    """There is no such conversation, or it is another tenant's: which of both, nobody is told (promise 8)."""

    code = "conversation_not_found"


class ConversationConflict(ClientError):
    """Somebody else's turn is under way, or the conversation has gone on from where the request stands."""

    code = "conversation_conflict"


class BadImport(ClientError):
    """The lines are no conversation; the message names them, counted from 1."""

    code = "invalid_import"


class ContextLengthExceeded(ClientError):
    """Even compacted, the request does not fit its budget (FR-5.3.1): told in OpenAI's words, with the numbers."""

    code = "context_length_exceeded"


class ServiceError(TidemarkError):
    """Tidemark itself cannot do what it promised."""


class ConfigError(ServiceError):
    """The configuration cannot be used; the message names file, line and the nearest valid key."""

    code = "config_error"


class TokenizerFailed(ServiceError):
    """Counting failed (FR-5.2.1): nothing is approximated, the request may be sent again."""

    code = "token_counting_failed"


class CompactionFailed(ServiceError):
    """No summary could be made and ``on_failure`` is ``block`` (FR-5.1.1)."""

    code = "compaction_failed"

    def __init__(self, message: str, *, internal: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message, internal=internal)
        self.retry_after = retry_after


class SummaryRejected(ServiceError):
    """A summarizer answered with something that is no summary: empty, refused, too long, echoing."""

    code = "summary_rejected"


class FlushNotTaken(ServiceError):
    """A consumer did not take what left the context; it is offered again. No client is ever told."""

    def __init__(self, message: str, *, internal: str = "", retry_after: float = 0.0) -> None:
        super().__init__(message, internal=internal)
        self.retry_after = retry_after


class FlushRefused(FlushNotTaken):
    """A consumer answered what it may not answer; to offer it again would be no use."""


class StoreError(TidemarkError):
    """The conversation store is at fault."""


class StoreUnavailable(StoreError):
    """The store did not answer in time; requests go on without it."""

    code = "store_unavailable"


class StoreInUse(StoreError):
    """Another process runs on the same data folder."""

    code = "store_in_use"


class UpstreamError(TidemarkError):
    """The provider could not be reached or did not keep its side of the protocol."""

    code = "upstream_error"


class UpstreamUnreachable(UpstreamError):
    """No connection to the upstream could be made."""

    code = "upstream_unreachable"


class UpstreamTimedOut(UpstreamError):
    """The upstream did not answer within its time."""

    code = "upstream_timeout"


class UpstreamBroken(UpstreamError):
    """The answer stopped before it was complete."""

    code = "upstream_incomplete"
